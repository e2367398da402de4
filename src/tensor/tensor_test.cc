// Goal: conversions are exact where they must be, slices keep their scales, and cut canonical sums give the bits of the uncut one.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tensor/argmax.h"
#include "tensor/dtype.h"
#include "tensor/quantised.h"
#include "tensor/shard.h"
#include "tensor/view.h"

namespace lathe::tensor {
namespace {

TEST(DType, RoundTripsEveryCode) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    if (!std::isnan(f16_to_float(half))) {
      EXPECT_EQ(float_to_f16(f16_to_float(half)), half);
    }
    if (!std::isnan(bf16_to_float(half))) {
      EXPECT_EQ(float_to_bf16(bf16_to_float(half)), half);
    }
  }
  for (uint32_t bits = 0; bits < 256; ++bits) {
    const auto code = static_cast<uint8_t>(bits);
    if (!std::isnan(f8e4m3_to_float(code))) {
      EXPECT_EQ(float_to_f8e4m3(f8e4m3_to_float(code)), code);
    }
  }
  EXPECT_EQ(f8e4m3_to_float(0x7E), 448.0f);
  EXPECT_EQ(f8e4m3_to_float(0x01), 0x1p-9f);
  EXPECT_EQ(float_to_f8e4m3(1000.0f), 0x7E);
  EXPECT_EQ(float_to_f8e4m3(17.0f), float_to_f8e4m3(16.0f));  // ties to even
  EXPECT_EQ(float_to_f8e4m3(19.0f), float_to_f8e4m3(20.0f));
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::nanf("")))));
  EXPECT_EQ(float_to_f16(65520.0f), 0x7C00);
}

TEST(View, SlicesAndExtents) {
  float data[24];
  const View view = make_view(data, DType::kF32, {2, 3, 4});
  EXPECT_EQ(describe(view), "f32[2, 3, 4]");
  EXPECT_EQ(view.at(1).slice(0, 1, 3).data, data + 16);
  EXPECT_EQ(view.slice(1, 1, 2).extent_bytes(), (12 + 4) * 4);
  EXPECT_FALSE(view.slice(1, 1, 2).contiguous());
  EXPECT_TRUE(view.rows(1, 2).contiguous());
  EXPECT_EQ(view.rows(1, 1).extent_bytes(), 0);
}

float element(const MatrixView& m, int64_t i, int64_t j) {
  const float value = m.values.f32()[i * m.values.step(0) + j];
  return value * m.scales.f32()[(i + m.row_offset) / m.block_rows * m.scales.step(0) + (j + m.col_offset) / m.block_cols];
}

TEST(Matrix, SliceInsideScaleBlocks) {
  std::vector<float> values(130 * 200), scales(2 * 2);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<float>(i + 1);
  const MatrixView whole{.values = make_view(values.data(), DType::kF32, {130, 200}),
                         .scales = make_view(scales.data(), DType::kF32, {2, 2}),
                         .block_rows = 128,
                         .block_cols = 128};
  const MatrixView once = slice_matrix(whole, {5, 130}, {100, 190});
  const MatrixView twice = slice_matrix(once, {60, 125}, {20, 90});
  for (int64_t i = 0; i < twice.rows(); ++i) {
    for (int64_t j = 0; j < twice.cols(); ++j) ASSERT_EQ(element(twice, i, j), element(whole, i + 65, j + 120));
  }
}

TEST(Tree, CutSumsHaveTheSameBits) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (const int64_t leaves : {1, 2, 3, 4, 5, 7, 8, 64, 96, 288}) {
    std::vector<float> leaf(static_cast<size_t>(leaves));
    for (float& value : leaf) value = normal(random);
    const auto sum = [&](int64_t lo, int64_t hi, std::vector<TreeNode>& nodes, std::vector<float>& rows) {
      for (const TreeNode& node : tree_cover(leaves, lo, hi)) {
        std::vector<TreeNode> single;
        std::vector<const float*> pointers;
        for (int64_t i = node.begin; i < node.end; ++i) {
          single.push_back({i - node.begin, i - node.begin + 1});
          pointers.push_back(&leaf[static_cast<size_t>(i)]);
        }
        float value = 0;
        tree_combine({node.end - node.begin, single, pointers.data(), 1}, &value);
        nodes.push_back(node);
        rows.push_back(value);
      }
    };
    std::vector<TreeNode> whole_nodes;
    std::vector<float> whole_rows;
    sum(0, leaves, whole_nodes, whole_rows);
    ASSERT_EQ(whole_nodes.size(), 1u);
    for (int ranks : {2, 3, 4, 8}) {
      std::vector<TreeNode> nodes;
      std::vector<float> rows;
      for (int rank = 0; rank < ranks; ++rank) {
        const Shard shard = default_shard({.kind = ShardKind::kHead, .total = leaves}, rank, ranks);
        sum(shard.begin, shard.end, nodes, rows);
      }
      std::vector<const float*> pointers;
      for (const float& row : rows) pointers.push_back(&row);
      float combined = 0;
      tree_combine({leaves, nodes, pointers.data(), 1}, &combined);
      EXPECT_EQ(std::memcmp(&combined, whole_rows.data(), 4), 0) << leaves << " leaves, " << ranks << " ranks";
    }
  }
}

TEST(Tree, NodesWithoutContributionAreSkipped) {
  const float minus_zero = -0.0f;
  const float* row = &minus_zero;
  float out = 1;
  tree_combine({4, {{2, 3}}, &row, 1}, &out);
  EXPECT_TRUE(std::signbit(out));
  tree_combine({4, {}, nullptr, 1}, &out);
  EXPECT_EQ(out, 0);
  EXPECT_EQ(tree_cover(4, 1, 4), (std::vector<TreeNode>{{1, 2}, {2, 4}}));
}

TEST(Argmax, FirstOfTheGreatest) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(argmax({}), -1);
  EXPECT_EQ(argmax(std::vector<float>{kNan, kNan}), -1);
  EXPECT_EQ(argmax(std::vector<float>{kNan, -kInfinity, -kInfinity}), 1);
  for (const size_t size : {1u, 15u, 16u, 17u, 33u, 100u}) {
    for (size_t at = 0; at < size; ++at) {
      std::vector<float> values(size, -2.0f);
      values[at] = -1.0f, values[size - 1] = -1.0f;
      if (at > 0) values[at - 1] = kNan;
      EXPECT_EQ(argmax(values), static_cast<int64_t>(at)) << size;
    }
  }
}

TEST(Quantised, CodesAreTheNearestAndTiesGoToEven) {
  const float x[] = {-127, 0.5f, 1.5f, 2.5f, -0.5f, 126.5f, 3.0f};
  int8_t codes[7];
  float scale = 0;
  quantise_row(x, 7, DType::kI8, codes, &scale);
  EXPECT_EQ(scale, 1.0f);
  const int want[] = {-127, 0, 2, 2, 0, 126, 3};
  for (size_t i = 0; i < 7; ++i) EXPECT_EQ(codes[i], want[i]) << x[i];
  const float y[] = {448, 1.0625f, 1.1875f, -0x1p-10f, 0x1.8p-9f};
  uint8_t f8[5];
  quantise_row(y, 5, DType::kF8E4M3, f8, &scale);
  EXPECT_EQ(scale, 1.0f);
  const float near[] = {448, 1, 1.25f, -0.0f, 0x1p-8f};
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(f8e4m3_to_float(f8[i]), near[i]) << y[i];
}

TEST(Quantised, EachRunHasItsScaleAndTheLastMayBeShort) {
  std::vector<float> x(300, 1.0f);
  x[5] = 254, x[200] = -12.7f, x[299] = 0;
  std::vector<int8_t> codes(300);
  std::vector<float> scales(3);
  quantise_row(x.data(), 300, DType::kI8, codes.data(), scales.data());
  EXPECT_EQ(scales, (std::vector<float>{254.0f / 127, 12.7f / 127, 1.0f / 127}));
  EXPECT_EQ(codes[5], 127);
  EXPECT_EQ(codes[6], 0) << "half a step: to even";
  EXPECT_EQ(codes[200], -127);
  EXPECT_EQ(codes[298], 127);
  EXPECT_EQ(codes[299], 0);
}

TEST(Quantised, ErrorIsHalfAStepAtMost) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 3);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<float> x(128);
    for (float& v : x) v = normal(random) * std::ldexp(1.0f, trial - 25);
    std::vector<int8_t> codes(128);
    float scale = 0;
    quantise_row(x.data(), 128, DType::kI8, codes.data(), &scale);
    for (size_t i = 0; i < 128; ++i) EXPECT_LE(std::fabs(x[i] - static_cast<float>(codes[i]) * scale), 0.5001f * scale);
  }
}

TEST(Quantised, ZerosSubnormalsAndWhatIsNotFinite) {
  for (const DType type : {DType::kI8, DType::kF8E4M3}) {
    uint8_t codes[3];
    float scale = 7;
    const auto quantise = [&](float a, float b, float c) {
      const float x[] = {a, b, c};
      quantise_row(x, 3, type, codes, &scale);
      return load_as_float(type, codes, 0);
    };
    EXPECT_EQ(quantise(0, -0.0f, 0), 0);
    EXPECT_EQ(scale, 0);
    EXPECT_EQ(quantise(0x1p-101f, 0x1p-140f, 0), 0);
    EXPECT_EQ(scale, 0) << "below the least amax";
    EXPECT_EQ(quantise(kAmaxMin, 0, 0), code_max(type));
    EXPECT_GT(scale, 0x1p-126f);
    EXPECT_EQ(quantise(1, std::nanf(""), 2), 0);
    EXPECT_TRUE(std::isnan(scale));
    EXPECT_EQ(quantise(1, -INFINITY, 2), 0);
    EXPECT_TRUE(std::isnan(scale));
    EXPECT_EQ(quantise(0x1.fffffep127f, 1, 0), code_max(type));
    EXPECT_TRUE(std::isfinite(scale));
  }
}

}  // namespace
}  // namespace lathe::tensor
