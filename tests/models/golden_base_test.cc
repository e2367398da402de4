// Goal: the forward pass is the one of the public reference, value by value: golden/base on the reference table and on this machine's best kernels.

#include <gtest/gtest.h>

#include "reference_golden.h"

namespace lathe::models::golden {
namespace {

class GoldenBase : public testing::TestWithParam<bool> {
 protected:
  static RigOptions options(bool reference) { return {.directory = data_path("golden/base"), .reference = reference, .isa = "", .dispatch = {}}; }
  GoldenBase() : gold_(data_path("golden/base.safetensors")), rig_(options(GetParam())), reference_(gold_, rig_) {}

  GoldenFile gold_;
  Rig rig_;
  ReferenceGolden reference_;
};

TEST_P(GoldenBase, FullPrefill) { EXPECT_EQ(reference_.logits(), 7); }
TEST_P(GoldenBase, ChunkedPrefill) { EXPECT_EQ(reference_.chunked_logits(), 3); }
TEST_P(GoldenBase, CachedDecodeIsGreedyAsTheReference) { EXPECT_EQ(reference_.greedy(), 7); }
TEST_P(GoldenBase, StreamsOfEveryLayer) { EXPECT_EQ(reference_.streams(), 2 * 8 + 3); }
TEST_P(GoldenBase, SelectionsAreTheSameSets) { EXPECT_EQ(reference_.selections(), 6); }
TEST_P(GoldenBase, StatesAndWindows) { EXPECT_EQ(reference_.states(), 2 * 18); }
TEST_P(GoldenBase, Pictures) { EXPECT_EQ(reference_.pictures(), 3 * 3); }

TEST_P(GoldenBase, TemporalStepsDoNotSeeEachOther) {
  const std::vector<float> pixels = gold_.floats("image.2.pixels");  // 6 x 8 patches
  const auto encode = [&](std::span<const float> patches, int64_t steps, int64_t height) {
    const ImageRows rows = must(rig_.model().encode_image({.patches = patches, .steps = steps, .height = height, .width = 4}), "picture");
    return rig_.host(rows.rows);
  };
  // Read as three steps of 4 x 4 patches, and each of them alone.
  const std::vector<float> together = encode(pixels, 3, 4);
  std::vector<float> apart;
  const size_t step = pixels.size() / 3;
  for (size_t i = 0; i < 3; ++i) {
    const std::vector<float> one = encode(std::span(pixels).subspan(i * step, step), 1, 4);
    apart.insert(apart.end(), one.begin(), one.end());
  }
  EXPECT_TRUE(same_bits(together, apart));
  EXPECT_GT(worst_difference(together, encode(pixels, 1, 12)), 1e-3);
  EXPECT_FALSE(rig_.model().encode_image({.patches = pixels, .steps = 1, .height = 5, .width = 8}).has_value());
  EXPECT_FALSE(rig_.model().encode_image({.patches = pixels, .steps = 1, .height = 4, .width = 8}).has_value());
}

INSTANTIATE_TEST_SUITE_P(Tables, GoldenBase, testing::Values(true, false), [](const auto& test) { return test.param ? "reference" : "best"; });

}  // namespace
}  // namespace lathe::models::golden
