#include "reference_golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace lathe::models::golden {

int ReferenceGolden::prompts() const {
  int count = 0;
  while (gold_.has(name("ids", count))) ++count;
  return count;
}

int ReferenceGolden::logits() {
  for (int p = 0; p < prompts(); ++p) {
    EXPECT_LE(worst_difference(rig_.prefill(gold_.tokens(name("ids", p))), gold_.floats(name("logits", p))), kLogits) << "prompt " << p;
  }
  return prompts();
}

int ReferenceGolden::chunked_logits() {
  int compared = 0;
  for (int p = 0; p < prompts(); ++p) {
    if (!gold_.has(name("chunked_logits", p))) continue;
    const std::vector<float> mine = rig_.prefill(gold_.tokens(name("ids", p)), gold_.integers(name("chunks", p)));
    EXPECT_LE(worst_difference(mine, gold_.floats(name("chunked_logits", p))), kLogits) << "prompt " << p;
    ++compared;
  }
  return compared;
}

int ReferenceGolden::greedy() {
  const int64_t width = rig_.vocabulary();
  for (int p = 0; p < prompts(); ++p) {
    const std::vector<TokenId> ids = gold_.tokens(name("ids", p));
    const std::vector<TokenId> wanted = gold_.tokens(name("greedy", p));
    SequenceId sequence;
    std::vector<float> last = rig_.prefill(ids, {}, &sequence);
    last = slice_rows(last, width, static_cast<int64_t>(ids.size()) - 1, static_cast<int64_t>(ids.size()));
    std::vector<float> all;
    for (size_t i = ids.size(); i < wanted.size(); ++i) {
      EXPECT_EQ(arg_max(last, 0, width), wanted[i]) << "prompt " << p << " token " << i;
      all.insert(all.end(), last.begin(), last.end());
      last = rig_.feed(sequence, {wanted[i]}, ItemKind::kDecode);
    }
    EXPECT_LE(worst_difference(all, gold_.floats(name("greedy_logits", p))), kLogits) << "prompt " << p;
    rig_.store().close(sequence);
  }
  return prompts();
}

int ReferenceGolden::streams() {
  int compared = 0;
  Capture capture;
  capture.want("mhc.ffn_out", "out");
  capture.want("final.norm", "out");
  rig_.dispatch().set_observer(&capture);
  for (int p = 0; p < prompts(); ++p) {
    if (!gold_.has(name("hidden", p, 0)) && !gold_.has(name("final", p))) continue;
    capture.clear();
    rig_.prefill(gold_.tokens(name("ids", p)));
    for (int layer = 0; layer < layers(); ++layer) {
      if (!gold_.has(name("hidden", p, layer))) continue;
      EXPECT_LE(relative_frobenius(capture.at("mhc.ffn_out", layer), gold_.floats(name("hidden", p, layer))), kStreams)
          << "prompt " << p << " layer " << layer;
      ++compared;
    }
    EXPECT_LE(relative_frobenius(capture.at("final.norm", -1), gold_.floats(name("final", p))), kStreams) << "prompt " << p;
    ++compared;
  }
  rig_.dispatch().set_observer(nullptr);
  return compared;
}

void ReferenceGolden::selection(int prompt, int layer, const std::vector<float>& chosen) {
  constexpr int64_t kPool = 4;
  const std::vector<int64_t> wanted = gold_.integers(name("topk", prompt, layer));
  const int64_t rows = gold_.dim(name("topk", prompt, layer), 0);
  const int64_t width = gold_.dim(name("topk", prompt, layer), 1);
  const int64_t pools = (width - (kPool - 1)) / kPool;  // the rest is the tail
  ASSERT_EQ(static_cast<int64_t>(chosen.size()), rows * pools);
  for (int64_t t = 0; t < rows; ++t) {
    std::set<int64_t> mine;
    for (int64_t i = 0; i < pools; ++i) {
      const auto pool = static_cast<int64_t>(chosen[static_cast<size_t>(t * pools + i)]);
      for (int64_t j = 0; pool >= 0 && j < kPool; ++j) mine.insert(pool * kPool + j);
    }
    for (int64_t token = (t + 1) / kPool * kPool; token <= t; ++token) mine.insert(token);
    std::set<int64_t> theirs(wanted.begin() + t * width, wanted.begin() + (t + 1) * width);
    theirs.erase(-1);
    EXPECT_EQ(mine, theirs) << "prompt " << prompt << " layer " << layer << " token " << t;
  }
}

int ReferenceGolden::selections() {
  int compared = 0;
  Capture capture;
  capture.want("dsa.select", "selection");
  rig_.dispatch().set_observer(&capture);
  for (int p = 0; p < prompts(); ++p) {
    capture.clear();
    bool ran = false;
    for (int layer = 0; layer < layers(); ++layer) {
      if (!gold_.has(name("topk", p, layer))) continue;
      if (!ran) rig_.prefill(gold_.tokens(name("ids", p)));
      ran = true;
      selection(p, layer, capture.at("dsa.select", layer));
      ++compared;
    }
  }
  rig_.dispatch().set_observer(nullptr);
  return compared;
}

/// Ours: ring rows of all channels; theirs: four columns a channel, oldest first, of which the last three matter.
void ReferenceGolden::conv_window(SequenceId sequence, int prompt, int layer) {
  constexpr int64_t kTaps = 4;
  const int64_t length = rig_.store().length(sequence);
  const std::vector<float> ring = rig_.state(sequence, layer, "kda.conv");
  const std::vector<float> columns = gold_.floats(name("conv_state", prompt, layer));
  const int64_t channels = gold_.dim(name("conv_state", prompt, layer), 0);
  const int64_t rows = static_cast<int64_t>(ring.size()) / channels;
  std::vector<float> mine;
  std::vector<float> theirs;
  for (int64_t back = 1; back < kTaps && back <= length; ++back) {
    for (int64_t c = 0; c < channels; ++c) {
      mine.push_back(ring[static_cast<size_t>((length - back) % rows * channels + c)]);
      theirs.push_back(columns[static_cast<size_t>(c * kTaps + kTaps - back)]);
    }
  }
  EXPECT_LE(relative_frobenius(mine, theirs), kStates) << "prompt " << prompt << " layer " << layer;
}

int ReferenceGolden::states() {
  int compared = 0;
  for (int p = 0; p < prompts(); ++p) {
    if (!gold_.has(name("kda_state", p, 0))) continue;
    SequenceId sequence;
    rig_.prefill(gold_.tokens(name("ids", p)), {}, &sequence);
    for (int layer = 0; layer < layers(); ++layer) {
      if (!gold_.has(name("kda_state", p, layer))) continue;
      EXPECT_LE(relative_frobenius(rig_.state(sequence, layer, "kda.state"), gold_.floats(name("kda_state", p, layer))), kStates)
          << "prompt " << p << " layer " << layer;
      conv_window(sequence, p, layer);
      compared += 2;
    }
    rig_.store().close(sequence);
  }
  return compared;
}

void ReferenceGolden::picture(int image) {
  const auto tensor = [image](const char* what) { return "image." + std::to_string(image) + "." + what; };
  const std::vector<float> pixels = gold_.floats(tensor("pixels"));
  const std::vector<int64_t> grid = gold_.integers(tensor("grid"));
  Capture capture;
  capture.want("vision.downsample", "y");
  rig_.dispatch().set_observer(&capture);
  const ImageRows rows = must(rig_.model().encode_image({.patches = pixels, .steps = grid[0], .height = grid[1], .width = grid[2]}), "picture");
  rig_.dispatch().set_observer(nullptr);
  EXPECT_LE(relative_frobenius(capture.at("vision.downsample", -1), gold_.floats(tensor("hidden"))), kStreams) << image;
  EXPECT_LE(relative_frobenius(rig_.host(rows.rows), gold_.floats(tensor("embeds"))), kStreams) << image;
  const std::vector<TokenId> ids = gold_.tokens(tensor("ids"));
  const auto first = std::find(ids.begin(), ids.end(), rig_.model().info().image_token);
  const SequenceId sequence = rig_.open();
  const std::vector<float> mine = rig_.feed(sequence, ids, ItemKind::kPrefill, Logits::kAll, {{.begin = first - ids.begin(), .rows = rows.rows}});
  EXPECT_LE(worst_difference(mine, gold_.floats(tensor("logits"))), kLogits) << image;
  rig_.store().close(sequence);
}

int ReferenceGolden::pictures() {
  int compared = 0;
  for (int i = 0; gold_.has("image." + std::to_string(i) + ".pixels"); ++i) {
    picture(i);
    compared += 3;
  }
  return compared;
}

}  // namespace lathe::models::golden
