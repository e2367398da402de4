#include "evaluate/draft_eval.h"

#include <algorithm>

#include "engine/generate.h"
#include "evaluate/text_logits.h"
#include "tensor/argmax.h"

namespace lathe::evaluate {
namespace {

constexpr int64_t kTextTokens = 150;
constexpr size_t kShortest = 6;

Result<std::vector<std::vector<TokenId>>> greedy_texts(engine::Engine& engine, const EvalSets& sets) {
  engine::Generator generator(engine);
  for (const DraftRow& row : sets.drafts) {
    LATHE_TRY(const int32_t id, generator.add({.prompt = row.prompt,
                                               .images = {},
                                               .sampling = {.temperature = 0, .logit_bias = {}},
                                               .max_tokens = kTextTokens,
                                               .stop_tokens = sets.stop_tokens}));
    (void)id;
  }
  std::vector<std::vector<TokenId>> texts(sets.drafts.size());
  int32_t failed = -1;
  const auto on_token = [&](const engine::TokenEvent& event) {
    if (event.finish == engine::Finish::kError) {
      failed = event.request;
      return;
    }
    texts[static_cast<size_t>(event.request)].push_back(event.token);
  };
  for (bool more = true; more;) {
    LATHE_TRY(more, generator.step(on_token));
    if (failed >= 0) return tl::unexpected<Error>(generator.error(failed).with_context(sets.drafts[static_cast<size_t>(failed)].place));
  }
  return texts;
}

/// Drafts along one text.
class DraftRun {
 public:
  DraftRun(engine::Engine& engine, std::vector<TokenId> ids, size_t prompt) : engine_(engine), ids_(std::move(ids)), prompt_(prompt) {}

  Result<DraftScore> run() {
    LATHE_TRY(sequence_, engine_.store().open());
    auto done = positions();
    engine_.store().close(sequence_);
    if (!done) return base::forward_error(done);
    return score_;
  }

 private:
  Result<void> positions() {
    LATHE_TRY(const View hidden, hidden_states());
    // Position t of the draft layer is fed with token t + 1; drafts begin at the prompt's last position.
    const auto first = static_cast<int64_t>(prompt_) - 1;
    for (int64_t begin = 0; begin < first;) {
      const int64_t tokens = std::min(first - begin, engine_.model().options().max_batch_tokens);
      const models::DraftItem before{.sequence = sequence_,
                                     .start = begin,
                                     .tokens = part(begin + 1, tokens),
                                     .rows = {},
                                     .hidden_begin = begin,
                                     .logits = models::Logits::kNone};
      LATHE_TRY_VOID(engine_.model().draft_prefill({&before, 1}, hidden, engine_.store()));
      begin += tokens;
    }
    for (int64_t t = first; t <= length() - 3; ++t) LATHE_TRY_VOID(position(t, hidden));
    return {};
  }

  /// Hidden states of the whole text, in memory of our own: the model's are gone with its next step.
  Result<View> hidden_states() {
    const int64_t width = engine_.info().hidden;
    LATHE_TRY(memory_, backend::Buffer::create(engine_.device(), length() * width * 4));
    const View all = tensor::make_view(memory_.data(), DType::kF32, {length(), width});
    for (int64_t begin = 0; begin < length();) {
      const int64_t tokens = std::min(length() - begin, engine_.model().options().max_batch_tokens);
      LATHE_TRY_VOID(engine_.store().append(sequence_, tokens, 0));
      const models::StepItem item{.sequence = sequence_,
                                  .kind = models::ItemKind::kPrefill,
                                  .tokens = part(begin, tokens),
                                  .rows = {},
                                  .logits = models::Logits::kNone,
                                  .at = {}};
      const auto step = engine_.model().step({&item, 1}, engine_.store());
      engine_.store().commit(sequence_, 0);
      if (!step) return base::forward_error(step);
      engine_.device().copy_on_device(all.rows(begin, begin + tokens).data, step->hidden.data, tokens * width * 4);
      begin += tokens;
    }
    return all;
  }

  int64_t length() const { return static_cast<int64_t>(ids_.size()); }
  std::span<const TokenId> part(int64_t begin, int64_t count) const {
    return std::span(ids_).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
  }

  Result<void> position(int64_t t, const View& hidden) {
    const models::DraftItem item{.sequence = sequence_, .start = t, .tokens = part(t + 1, 1), .rows = {}, .hidden_begin = t};
    LATHE_TRY(models::DraftResult result, engine_.model().draft_prefill({&item, 1}, hidden, engine_.store()));
    for (int64_t step = 1; step <= 3; ++step) {
      const auto at = static_cast<size_t>(t + 1 + step);
      if (at >= ids_.size()) return {};
      LATHE_TRY(const TokenId drafted, best(result.logits, t + step));
      ++score_.tried[static_cast<size_t>(step - 1)];
      if (drafted != ids_[at]) return {};
      ++score_.right[static_cast<size_t>(step - 1)];
      if (step == 3) return {};
      const models::DraftStepItem next{.sequence = sequence_, .position = t + step, .token = drafted, .row = 0, .origin = 0, .origin_position = t};
      LATHE_TRY(result, engine_.model().draft_step({&next, 1}, engine_.store()));
    }
    return {};
  }

  Result<TokenId> best(const View& logits, int64_t at) {
    engine_.read_rows(logits, 0, 1, row_);
    LATHE_TRY_VOID(check_finite(row_, "draft logits", at));
    return static_cast<TokenId>(tensor::argmax(std::span(row_).first(std::min(static_cast<size_t>(engine_.sampled_vocabulary()), row_.size()))));
  }

  engine::Engine& engine_;
  std::vector<TokenId> ids_;
  size_t prompt_;
  SequenceId sequence_;
  backend::Buffer memory_;
  DraftScore score_;
  std::vector<float> row_;
};

void add(DraftScore& sum, const DraftScore& score) {
  for (size_t i = 0; i < 3; ++i) {
    sum.right[i] += score.right[i];
    sum.tried[i] += score.tried[i];
  }
}

Result<void> judge(engine::Engine& engine, const EvalSets& sets, const std::vector<std::vector<TokenId>>& texts,
                   std::map<std::string, DraftScore>& out, EvalProgress progress) {
  for (size_t i = 0; i < sets.drafts.size(); ++i) {
    const DraftRow& row = sets.drafts[i];
    if (texts[i].size() >= kShortest) {
      std::vector<TokenId> ids = row.prompt;
      ids.insert(ids.end(), texts[i].begin(), texts[i].end());
      const auto score = DraftRun(engine, std::move(ids), row.prompt.size()).run();
      if (!score) return base::forward_error(score, row.place);
      add(out[row.kind], *score);
      add(out["all"], *score);
    }
    progress("drafts", static_cast<int64_t>(i) + 1, static_cast<int64_t>(sets.drafts.size()));
  }
  return {};
}

}  // namespace

Result<void> run_draft_eval(engine::Engine& engine, const EvalSets& sets, EvalReport& report, EvalProgress progress) {
  LATHE_TRY(const auto own, greedy_texts(engine, sets));
  LATHE_TRY_VOID(judge(engine, sets, own, report.drafts, progress));
  std::vector<std::vector<TokenId>> given;
  for (const DraftRow& row : sets.drafts) given.push_back(row.given);
  return judge(engine, sets, given, report.drafts_given, progress);
}

}  // namespace lathe::evaluate
