// Goal: a fake drafter that proposes 1 to 5 tokens, with every number of accepted ones, leaves the same bits in every cache as one token at a time.

#include <gtest/gtest.h>

#include "rig.h"

namespace lathe::models::golden {
namespace {

constexpr int kDraftsMax = 5;

struct Mode {
  const char* name;
  Precision precision;
  std::optional<CacheFormats> caches = {};
};

class Commit : public testing::TestWithParam<Mode> {
 protected:
  Commit() : rig_(options()), text_(text()), width_(rig_.vocabulary()) {}
  static RigOptions options() {
    return {.directory = data_path("builtin"),
            .model = {.precision = GetParam().precision,
                      .max_batch_tokens = 128,
                      .tentative_max = kDraftsMax,
                      .caches = GetParam().caches,
                      .shards = {},
                      .groups = {}},
            .isa = "",
            .slots = 2,
            .dispatch = {}};
  }
  static std::vector<TokenId> text() {
    std::vector<TokenId> ids = GoldenFile(data_path("golden/tiny/golden_fp8.safetensors")).tokens("ids.9");
    ids.resize(100);
    return ids;
  }

  /// Draft caches of positions [begin, begin + rows) from the last step's hidden rows; logits of the last.
  std::vector<float> draft(SequenceId sequence, int64_t begin, int64_t rows, const View& hidden) {
    const std::vector<TokenId> next(text_.begin() + begin + 1, text_.begin() + begin + rows + 1);
    const DraftItem item{.sequence = sequence, .kind = ItemKind::kDecode, .start = begin, .tokens = next, .rows = {}, .hidden_begin = 0};
    const DraftResult result = must(rig_.model().draft_prefill({&item, 1}, hidden, rig_.store()), "draft");
    last_row_ = result.items[0].hidden_begin + result.items[0].hidden_count - 1;
    return rig_.host(result.logits);
  }
  /// Later steps of a round, as a real drafter would take them: they write into the draft caches what must not be seen afterwards.
  void recycle(SequenceId sequence, int64_t origin_position, int64_t origin, int steps) {
    int64_t row = last_row_;
    for (int step = 1; step < steps; ++step) {
      const DraftStepItem item{.sequence = sequence,
                               .position = origin_position + step,
                               .token = static_cast<TokenId>(17 * step),
                               .row = row,
                               .origin = origin,
                               .origin_position = origin_position};
      must(rig_.model().draft_step({&item, 1}, rig_.store()), "draft step");
      row = 0;
    }
  }
  struct Step {
    std::vector<float> logits;
    View hidden;
  };
  Step step(SequenceId sequence, const std::vector<TokenId>& tokens, int tentative, ItemKind kind = ItemKind::kDecode) {
    const StepItem item{.sequence = sequence, .kind = kind, .tokens = tokens, .rows = {}, .tentative = tentative, .logits = Logits::kAll, .at = {}};
    const StepResult result = must(rig_.model().step({&item, 1}, rig_.store()), "step");
    return {rig_.host(result.logits), result.hidden};
  }
  SequenceId begin(int64_t prompt) {
    const SequenceId sequence = rig_.open();
    must(rig_.store().append(sequence, prompt, 0), "append");
    const Step first = step(sequence, {text_.begin(), text_.begin() + prompt}, 0, ItemKind::kPrefill);
    rig_.store().commit(sequence, 0);
    draft(sequence, 0, prompt, first.hidden);
    return sequence;
  }

  Rig rig_;
  std::vector<TokenId> text_;
  int64_t width_;
  int64_t last_row_ = 0;
  int64_t last_drafted_row_ = 0;
};

TEST_P(Commit, EveryCountOfEveryProposal) {
  constexpr int64_t kPrompt = 21;
  const SequenceId single = begin(kPrompt);
  const SequenceId drafted = begin(kPrompt);
  int64_t at = kPrompt;
  for (int proposed = 1; proposed <= kDraftsMax; ++proposed) {
    for (int accepted = 0; accepted <= proposed; ++accepted) {
      const int64_t kept = 1 + accepted;
      std::vector<float> wanted;
      std::vector<float> wanted_draft;
      for (int64_t i = 0; i < kept; ++i) {
        must(rig_.store().append(single, 1, 0), "append");
        const Step one = step(single, {text_[static_cast<size_t>(at + i)]}, 0);
        rig_.store().commit(single, 0);
        wanted.insert(wanted.end(), one.logits.begin(), one.logits.end());
        wanted_draft = draft(single, at + i, 1, one.hidden);
      }
      must(rig_.store().append(drafted, 1 + proposed, proposed), "append");
      const std::string where = std::to_string(accepted) + " of " + std::to_string(proposed) + " at " + std::to_string(at);
      // The round that would have made these drafts starts from what the previous step left behind.
      if (at > kPrompt) recycle(drafted, at - 1, last_drafted_row_, proposed);
      std::vector<TokenId> tokens(text_.begin() + at, text_.begin() + at + kept);
      while (static_cast<int>(tokens.size()) < 1 + proposed) tokens.push_back(static_cast<TokenId>(500 + tokens.size()));
      const Step all = step(drafted, tokens, proposed);
      rig_.store().commit(drafted, accepted);
      const std::vector<float> got_draft = draft(drafted, at, kept, all.hidden);
      last_drafted_row_ = last_row_;
      EXPECT_TRUE(same_bits(slice_rows(all.logits, width_, 0, kept), wanted)) << where;
      EXPECT_TRUE(same_bits(got_draft, wanted_draft)) << where;
      EXPECT_TRUE(same_bits(rig_.caches(drafted), rig_.caches(single))) << where;
      at += kept;
    }
  }
  EXPECT_EQ(rig_.store().length(drafted), at);
}

INSTANTIATE_TEST_SUITE_P(Modes, Commit,
                         testing::Values(Mode{"exact", Precision::kExact}, Mode{"fast", Precision::kFast},
                                         Mode{"fast_balanced", Precision::kFast, kBalancedCaches},
                                         Mode{"exact_fp8_rows_int8_states", Precision::kExact,
                                              CacheFormats{.latent = DType::kF8E4M3, .index = DType::kF8E4M3, .state = DType::kI8}}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace lathe::models::golden
