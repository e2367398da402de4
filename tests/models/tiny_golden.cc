#include "tiny_golden.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lathe::models::golden {

void TinyPrompt::check() {
  ids_ = gold_.tokens(name("ids"));
  greedy_ = gold_.tokens(name("greedy"));
  if (gold_.has(name("pixel_values"))) encode_pictures();
  prefill();
  const int64_t width = rig_.vocabulary();
  const int64_t rows = gold_.dim(name("logits"), 0);
  const auto length = static_cast<int64_t>(ids_.size());
  EXPECT_LE(worst_difference(slice_rows(logits_, width, length - rows, length), gold_.floats(name("logits"))), tolerance()) << "prompt " << number_;
  decode();
}

void TinyPrompt::encode_pictures() {
  const std::vector<float> pixels = gold_.floats(name("pixel_values"));
  const std::vector<int64_t> grid = gold_.integers(name("grid"));
  const auto values = static_cast<size_t>(rig_.model().info().patch_values);
  std::vector<float> embeds;
  size_t at = 0;
  for (size_t i = 0; i + 2 < grid.size(); i += 3) {
    const size_t count = static_cast<size_t>(grid[i] * grid[i + 1] * grid[i + 2]) * values;
    const ImageInput input{.patches = std::span(pixels).subspan(at, count), .steps = grid[i], .height = grid[i + 1], .width = grid[i + 2]};
    pictures_.push_back(must(rig_.model().encode_image(input), "picture"));
    const std::vector<float> rows = rig_.host(pictures_.back().rows);
    embeds.insert(embeds.end(), rows.begin(), rows.end());
    at += count;
  }
  EXPECT_LE(worst_difference(embeds, gold_.floats(name("image_embeds"))), 1e-3) << "prompt " << number_;
}

std::vector<EmbeddingRows> TinyPrompt::rows_for(int64_t begin, int64_t end) const {
  std::vector<EmbeddingRows> out;
  auto at = ids_.begin();
  for (const ImageRows& picture : pictures_) {
    at = std::find(at, ids_.end(), rig_.model().info().image_token);
    const int64_t first = at - ids_.begin();
    const int64_t last = first + picture.rows.dim(0);
    const int64_t from = std::max(first, begin);
    const int64_t to = std::min(last, end);
    if (from < to) out.push_back({.begin = from - begin, .rows = picture.rows.rows(from - first, to - first)});
    at += picture.rows.dim(0);
  }
  return out;
}

void TinyPrompt::prefill() {
  sequence_ = rig_.open();
  const auto length = static_cast<int64_t>(ids_.size());
  const int64_t chunk = rig_.model().options().max_batch_tokens;
  // Drafting needs room two positions behind the prompt; the draft layer gets a sequence of its own, so that the text's stays as it is.
  draft_sequence_ = rig_.open();
  must(rig_.store().append(draft_sequence_, length + 2, 0), "append");
  for (int64_t begin = 0; begin < length; begin += chunk) {
    const int64_t end = std::min(length, begin + chunk);
    const std::vector<TokenId> tokens(ids_.begin() + begin, ids_.begin() + end);
    const std::vector<EmbeddingRows> rows = rows_for(begin, end);
    must(rig_.store().append(sequence_, end - begin, 0), "append");
    const StepItem item{.sequence = sequence_, .kind = ItemKind::kPrefill, .tokens = tokens, .rows = rows, .logits = Logits::kAll, .at = {}};
    const StepResult result = must(rig_.model().step({&item, 1}, rig_.store()), "step");
    rig_.store().commit(sequence_, 0);
    const std::vector<float> logits = rig_.host(result.logits);
    logits_.insert(logits_.end(), logits.begin(), logits.end());
    if (rig_.model().info().has_draft) draft_chunk(begin, end, result.hidden);
  }
  rig_.store().commit(draft_sequence_, 0);
  rig_.store().close(draft_sequence_);
}

void TinyPrompt::draft_chunk(int64_t begin, int64_t end, const View& hidden) {
  const auto length = static_cast<int64_t>(ids_.size());
  const int64_t together = std::min(end, std::max(begin, length - kDraftPositions));
  if (together > begin) {
    // Ids and pictures of the position after.
    std::vector<TokenId> next(ids_.begin() + begin + 1, ids_.begin() + together + 1);
    const std::vector<EmbeddingRows> rows = rows_for(begin + 1, together + 1);
    const DraftItem item{.sequence = draft_sequence_, .start = begin, .tokens = next, .rows = rows, .hidden_begin = 0, .logits = Logits::kNone};
    must(rig_.model().draft_prefill({&item, 1}, hidden, rig_.store()), "draft");
  }
  for (int64_t position = together; position < end; ++position) draft_position(position, hidden, position - begin);
}

void TinyPrompt::draft_position(int64_t position, const View& hidden, int64_t row) {
  const auto length = static_cast<int64_t>(ids_.size());
  const int64_t width = rig_.vocabulary();
  const int64_t at = position - (length - kDraftPositions);
  const TokenId next = position + 1 < length ? ids_[static_cast<size_t>(position + 1)] : greedy_.front();
  const std::vector<EmbeddingRows> rows = rows_for(position + 1, position + 2);
  const DraftItem first{
      .sequence = draft_sequence_, .kind = ItemKind::kDecode, .start = position, .tokens = {&next, 1}, .rows = rows, .hidden_begin = row};
  DraftResult result = must(rig_.model().draft_prefill({&first, 1}, hidden, rig_.store()), "draft");
  int64_t step = 1;
  for (const char* const tensor : {"mtp_logits", "mtp2_logits", "mtp3_logits"}) {
    const std::vector<float> gold = gold_.floats(name(tensor));
    EXPECT_LE(worst_difference(rig_.host(result.logits), slice_rows(gold, width, at, at + 1)), 1e-3)
        << "prompt " << number_ << " " << tensor << " at " << position;
    if (step == 3) break;
    const DraftStepItem later{.sequence = draft_sequence_,
                              .position = position + step,
                              .token = static_cast<TokenId>(arg_max(gold, at, width)),
                              .row = 0,
                              .origin = 0,
                              .origin_position = position};
    result = must(rig_.model().draft_step({&later, 1}, rig_.store()), "draft step");
    ++step;
  }
}

void TinyPrompt::decode() {
  const int64_t width = rig_.vocabulary();
  const int64_t compared = gold_.dim(name("greedy_logits"), 0);
  const auto length = static_cast<int64_t>(ids_.size());
  std::vector<float> last = slice_rows(logits_, width, length - 1, length);
  std::vector<float> first;
  for (size_t i = 0; i < greedy_.size(); ++i) {
    ASSERT_EQ(arg_max(last, 0, width), greedy_[i]) << "prompt " << number_ << " greedy token " << i;
    if (static_cast<int64_t>(i) < compared) first.insert(first.end(), last.begin(), last.end());
    last = rig_.feed(sequence_, {greedy_[i]}, ItemKind::kDecode);
  }
  EXPECT_LE(worst_difference(first, gold_.floats(name("greedy_logits"))), tolerance()) << "prompt " << number_;
  rig_.store().close(sequence_);
}

}  // namespace lathe::models::golden
