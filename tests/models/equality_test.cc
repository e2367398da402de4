// Goal: the bits of a token depend on its own sequence alone: not on chunk borders, other sequences of the step, threads, or whether it came by prefill or decode.

#include <gtest/gtest.h>

#include <random>

#include "rig.h"

namespace lathe::models::golden {
namespace {

struct Case {
  Precision precision;
  MlaPath prefill;
  const char* caches_name = "";
  std::optional<CacheFormats> caches = {};
};

std::string case_name(const testing::TestParamInfo<Case>& test) {
  return std::string(test.param.precision == Precision::kExact ? "exact" : "fast") +
         (test.param.prefill == MlaPath::kAbsorbed ? "_absorbed" : "_expanded") + test.param.caches_name;
}

class Equality : public testing::TestWithParam<Case> {
 protected:
  static RigOptions options(int threads = 2) {
    const Case param = GetParam();
    return {
        .directory = data_path("golden/base"),
        .model =
            {.precision = param.precision, .prefill_mla = param.prefill, .max_batch_tokens = 512, .caches = param.caches, .shards = {}, .groups = {}},
        .isa = "",
        .threads = threads,
        .blocks = 160,
        .slots = 36,
        .dispatch = {}};
  }
  static std::vector<TokenId> prompt() { return GoldenFile(data_path("golden/base.safetensors")).tokens("ids.6"); }
  static std::vector<TokenId> random_tokens(size_t count, std::mt19937& random) {
    std::vector<TokenId> out(count);
    for (TokenId& token : out) token = static_cast<TokenId>(random() % 480);
    return out;
  }
  /// A step of several sequences; logits of all rows, item by item.
  static std::vector<std::vector<float>> step(Rig& rig, const std::vector<SequenceId>& sequences, const std::vector<std::vector<TokenId>>& tokens,
                                              const std::vector<ItemKind>& kinds) {
    std::vector<StepItem> items;
    for (size_t i = 0; i < sequences.size(); ++i) {
      must(rig.store().append(sequences[i], static_cast<int64_t>(tokens[i].size()), 0), "append");
      items.push_back({.sequence = sequences[i], .kind = kinds[i], .tokens = tokens[i], .rows = {}, .logits = Logits::kAll, .at = {}});
    }
    const StepResult result = must(rig.model().step(items, rig.store()), "step");
    std::vector<std::vector<float>> out;
    for (size_t i = 0; i < sequences.size(); ++i) {
      rig.store().commit(sequences[i], 0);
      const ItemRows& rows = result.items[i];
      out.push_back(rig.host(result.logits.rows(rows.logits_begin, rows.logits_begin + rows.logits_count)));
    }
    return out;
  }
};

TEST_P(Equality, ChunksOfAnySize) {
  Rig rig(options());
  SequenceId sequence;
  const std::vector<TokenId> ids = prompt();
  const std::vector<float> whole = rig.prefill(ids, {}, &sequence);
  const std::vector<float> kept = rig.caches(sequence);
  rig.store().close(sequence);
  for (const int64_t size : {1, 2, 3, 7, 64, 65}) {
    const std::vector<int64_t> chunks(ids.size(), size);
    EXPECT_TRUE(same_bits(rig.prefill(ids, chunks, &sequence), whole)) << "chunks of " << size;
    EXPECT_TRUE(same_bits(rig.caches(sequence), kept)) << "chunks of " << size;
    rig.store().close(sequence);
  }
}

TEST_P(Equality, DecodeStepsArePrefill) {
  if (GetParam().prefill == MlaPath::kExpanded) GTEST_SKIP() << "decode is absorbed: see Paths";
  Rig rig(options());
  SequenceId sequence;
  std::vector<TokenId> ids = prompt();
  ids.resize(90);
  const std::vector<float> whole = rig.prefill(ids, {}, &sequence);
  const std::vector<float> kept = rig.caches(sequence);
  const SequenceId stepped = rig.open();
  std::vector<float> all;
  for (const TokenId id : ids) {
    const std::vector<float> logits = rig.feed(stepped, {id}, ItemKind::kDecode);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  EXPECT_TRUE(same_bits(all, whole));
  EXPECT_TRUE(same_bits(rig.caches(stepped), kept));
}

TEST_P(Equality, AloneAsInABatch) {
  Rig rig(options());
  std::mt19937 random(20261130);
  std::vector<TokenId> first = prompt();
  const std::vector<TokenId> second(first.begin() + 40, first.begin() + 45);
  first.resize(40);
  const SequenceId lonely = rig.open();
  const std::vector<float> prefilled = rig.feed(lonely, first);
  const std::vector<float> decoded = rig.feed(lonely, second, ItemKind::kDecode);
  const std::vector<float> kept = rig.caches(lonely);
  for (const size_t others : {1u, 2u, 3u, 4u, 7u, 12u, 20u, 33u}) {
    const size_t place = others / 2;
    std::vector<SequenceId> sequences;
    std::vector<std::vector<TokenId>> a;
    std::vector<std::vector<TokenId>> b;
    std::vector<ItemKind> kinds_a;
    std::vector<ItemKind> kinds_b;
    for (size_t i = 0; i <= others; ++i) {
      const bool mine = i == place;
      sequences.push_back(rig.open());
      a.push_back(mine ? first : random_tokens(1 + random() % 13, random));
      b.push_back(mine ? second : random_tokens(1 + random() % 5, random));
      kinds_a.push_back(mine || random() % 2 == 0 ? ItemKind::kPrefill : ItemKind::kDecode);
      kinds_b.push_back(mine || random() % 2 == 0 ? ItemKind::kDecode : ItemKind::kPrefill);
    }
    EXPECT_TRUE(same_bits(step(rig, sequences, a, kinds_a)[place], prefilled)) << others << " others";
    EXPECT_TRUE(same_bits(step(rig, sequences, b, kinds_b)[place], decoded)) << others << " others";
    EXPECT_TRUE(same_bits(rig.caches(sequences[place]), kept)) << others << " others";
    for (const SequenceId sequence : sequences) rig.store().close(sequence);
  }
}

TEST_P(Equality, AnyNumberOfThreads) {
  std::vector<float> first;
  for (const int threads : {1, 2, 3, 5}) {
    Rig rig(options(threads));
    SequenceId sequence;
    std::vector<float> all = rig.prefill(prompt(), {100}, &sequence);
    const std::vector<float> decoded = rig.feed(sequence, {7}, ItemKind::kDecode);
    const std::vector<float> kept = rig.caches(sequence);
    all.insert(all.end(), decoded.begin(), decoded.end());
    all.insert(all.end(), kept.begin(), kept.end());
    if (threads == 1) first = all;
    EXPECT_TRUE(same_bits(all, first)) << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, Equality,
                         testing::Values(Case{Precision::kExact, MlaPath::kAbsorbed}, Case{Precision::kExact, MlaPath::kExpanded},
                                         Case{Precision::kFast, MlaPath::kAbsorbed}, Case{Precision::kFast, MlaPath::kExpanded}),
                         case_name);

/// Every format of every family, and mixes of them; INT8 states are rounded where pieces of a prompt end, and come with replay alone (replay_model_test.cc).
INSTANTIATE_TEST_SUITE_P(
    Caches, Equality,
    testing::Values(Case{Precision::kFast, MlaPath::kAbsorbed, "_int8_rows", CacheFormats{.latent = DType::kI8, .index = DType::kI8}},
                    Case{Precision::kFast, MlaPath::kExpanded, "_fp8_rows", CacheFormats{.latent = DType::kF8E4M3, .index = DType::kF8E4M3}},
                    Case{Precision::kFast, MlaPath::kAbsorbed, "_fp16_states_bf16_windows", CacheFormats{.state = DType::kF16, .conv = DType::kBF16}},
                    Case{Precision::kFast, MlaPath::kAbsorbed, "_balanced", kBalancedCaches},
                    Case{Precision::kExact, MlaPath::kExpanded, "_balanced", kBalancedCaches},
                    Case{Precision::kExact, MlaPath::kAbsorbed, "_plain", kPlainCaches}),
    case_name);

/// FP8 blocks, experts, head sizes of 128 and a selection that leaves most of the context out.
class TrainedEquality : public Equality {};
INSTANTIATE_TEST_SUITE_P(Modes, TrainedEquality,
                         testing::Values(Case{Precision::kExact, MlaPath::kAbsorbed}, Case{Precision::kExact, MlaPath::kExpanded},
                                         Case{Precision::kFast, MlaPath::kAbsorbed}, Case{Precision::kFast, MlaPath::kExpanded},
                                         Case{Precision::kFast, MlaPath::kAbsorbed, "_balanced", kBalancedCaches}),
                         case_name);
TEST_P(TrainedEquality, ChunksAndSteps) {
  RigOptions trained = options();
  trained.directory = data_path("builtin");
  trained.slots = 2;
  Rig rig(trained);
  std::vector<TokenId> ids = GoldenFile(data_path("golden/tiny/golden_fp8.safetensors")).tokens("ids.10");
  ids.resize(420);
  SequenceId sequence;
  const std::vector<float> whole = rig.prefill(ids, {}, &sequence);
  const std::vector<float> kept = rig.caches(sequence);
  rig.store().close(sequence);
  EXPECT_TRUE(same_bits(rig.prefill(ids, {65, 64, 7, 3, 2, 1, 1, 1, 200}, &sequence), whole));
  EXPECT_TRUE(same_bits(rig.caches(sequence), kept));
  rig.store().close(sequence);
  if (GetParam().prefill == MlaPath::kExpanded) return;
  constexpr int64_t kSteps = 20;
  const auto length = static_cast<int64_t>(ids.size());
  rig.prefill({ids.begin(), ids.end() - kSteps}, {}, &sequence);
  std::vector<float> steps;
  for (int64_t i = length - kSteps; i < length; ++i) {
    const std::vector<float> logits = rig.feed(sequence, {ids[static_cast<size_t>(i)]}, ItemKind::kDecode);
    steps.insert(steps.end(), logits.begin(), logits.end());
  }
  EXPECT_TRUE(same_bits(steps, slice_rows(whole, rig.vocabulary(), length - kSteps, length)));
  EXPECT_TRUE(same_bits(rig.caches(sequence), kept));
}

/// Absorbed and expanded attention are two code paths with another order of additions: equal within rounding.
TEST(Paths, AbsorbedAndExpanded) {
  GoldenFile gold(data_path("golden/base.safetensors"));
  std::vector<std::vector<float>> logits;
  for (const MlaPath path : {MlaPath::kAbsorbed, MlaPath::kExpanded}) {
    Capture capture;
    capture.want("dsa.expanded", "out");
    Rig rig({.directory = data_path("golden/base"),
             .model = {.precision = Precision::kExact, .prefill_mla = path, .max_batch_tokens = 512, .shards = {}, .groups = {}},
             .isa = "",
             .dispatch = {}});
    rig.dispatch().set_observer(&capture);
    logits.push_back(rig.prefill(gold.tokens("ids.6")));
    EXPECT_EQ(capture.at("dsa.expanded", 3).empty(), path == MlaPath::kAbsorbed);
    EXPECT_LE(worst_difference(logits.back(), gold.floats("logits.6")), 1e-3);
    rig.dispatch().set_observer(nullptr);
  }
  EXPECT_LE(worst_difference(logits[0], logits[1]), 5e-4);
  EXPECT_GT(worst_difference(logits[0], logits[1]), 0.0);
}

}  // namespace
}  // namespace lathe::models::golden
