// Goal: conversions are exact where they must be, slices keep their scales, and cut canonical sums give the bits of the uncut one.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tensor/argmax.h"
#include "tensor/dtype.h"
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

}  // namespace
}  // namespace lathe::tensor
