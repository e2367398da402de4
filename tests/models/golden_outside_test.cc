// Goal: the same for checkpoints that stay outside the project (LATHE_TEST_DATA): head sizes of the published model, BF16 weights of the trained one.

#include <gtest/gtest.h>

#include "reference_golden.h"
#include "tiny_golden.h"

namespace lathe::models::golden {
namespace {

TEST(GoldenOutside, RealHeads) {
  const auto directory = outside_path("golden/real_heads");
  const auto values = outside_path("golden/real_heads.safetensors");
  if (!directory || !values) GTEST_SKIP() << "golden/real_heads is not below LATHE_TEST_DATA";
  GoldenFile gold(*values);
  Rig rig({.directory = *directory, .isa = "", .dispatch = {}});
  ReferenceGolden reference(gold, rig);
  EXPECT_EQ(reference.logits(), 7);
  EXPECT_EQ(reference.chunked_logits(), 3);
  EXPECT_EQ(reference.greedy(), 7);
  EXPECT_EQ(reference.streams(), 2 * 4 + 3);
  EXPECT_EQ(reference.selections(), 3);
  EXPECT_EQ(reference.states(), 2 * 9);
  EXPECT_EQ(reference.pictures(), 3 * 3);
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
