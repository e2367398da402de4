// Goal: the same for checkpoints that stay outside the project (LATHE_TEST_DATA): head sizes of the published model, BF16 weights of the trained one.

#include <gtest/gtest.h>

#include "tiny_golden.h"

namespace lathe::models::golden {
namespace {

TEST(GoldenOutside, RealHeads) {
  const auto directory = outside_path("golden/real_heads");
  const auto values = outside_path("golden/real_heads.safetensors");
  if (!directory || !values) GTEST_SKIP() << "golden/real_heads is not below LATHE_TEST_DATA";
  GoldenFile gold(*values);
  Rig rig({.directory = *directory, .isa = "", .dispatch = {}});
  const int64_t width = rig.vocabulary();
  for (int p = 0; p < 7; ++p) {
    const std::string number = "." + std::to_string(p);
    const std::vector<TokenId> ids = gold.tokens("ids" + number);
    SequenceId sequence;
    std::vector<float> logits = rig.prefill(ids, {}, &sequence);
    EXPECT_LE(worst_difference(logits, gold.floats("logits" + number)), 1e-3) << p;
    if (gold.has("chunks" + number)) {
      EXPECT_LE(worst_difference(rig.prefill(ids, gold.integers("chunks" + number)), gold.floats("chunked_logits" + number)), 1e-3) << p;
    }
    for (const int layer : {0, 1, 2}) {
      const std::string tensor = "kda_state" + number + "." + std::to_string(layer);
      if (!gold.has(tensor)) continue;
      EXPECT_LE(relative_frobenius(rig.state(sequence, layer, "kda.state"), gold.floats(tensor)), 5e-5) << tensor;
    }
    const std::vector<TokenId> greedy = gold.tokens("greedy" + number);
    logits = slice_rows(logits, width, static_cast<int64_t>(ids.size()) - 1, static_cast<int64_t>(ids.size()));
    std::vector<float> steps;
    for (size_t i = ids.size(); i < greedy.size(); ++i) {
      ASSERT_EQ(arg_max(logits, 0, width), greedy[i]) << p;
      steps.insert(steps.end(), logits.begin(), logits.end());
      logits = rig.feed(sequence, {greedy[i]}, ItemKind::kDecode);
    }
    EXPECT_LE(worst_difference(steps, gold.floats("greedy_logits" + number)), 1e-3) << p;
    rig.store().close(sequence);
  }
}

TEST(GoldenOutside, TrainedModelInBf16) {
  const auto directory = outside_path("tiny/bf16");
  const auto values = outside_path("tiny/golden.safetensors");
  if (!directory || !values) GTEST_SKIP() << "tiny/bf16 is not below LATHE_TEST_DATA";
  GoldenFile gold(*values);
  Rig rig({.directory = *directory, .isa = "", .blocks = 256, .slots = 2, .dispatch = {}});
  for (int number = 0; number < 17; ++number) TinyPrompt(gold, rig, number).check();
}

}  // namespace
}  // namespace lathe::models::golden
