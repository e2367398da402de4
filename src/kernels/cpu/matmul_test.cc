#include <gtest/gtest.h>

#include "kernels/cpu/test_support.h"
#include "ops/basic.h"
#include "tensor/shard.h"

namespace lathe::kernels::cpu {
namespace {

using namespace testing;
using ops::Compute;

struct Case {
  int64_t rows, outputs, channels;
  DType type;
  int32_t block = 0, row_offset = 0, col_offset = 0;
  int64_t leaf = 0;
  Compute compute = Compute::kF32;
};

/// y in double, inputs as the compute mode takes them; `size` gets Σ|x·w|.
double expected(const Case& c, const std::vector<float>& x, int64_t stride, const MatrixView& w, int64_t t, int64_t n, double* size) {
  double sum = 0;
  *size = 0;
  for (int64_t k = 0; k < c.channels; ++k) {
    const float a = x[static_cast<size_t>(t * stride + k)];
    const bool narrow = c.compute == Compute::kBF16 && (c.type == DType::kF32 || c.type == DType::kF16);  // wider weights are rounded in fast mode
    const float b = element(w, n, k);
    const double product = static_cast<double>(c.compute == Compute::kBF16 ? rounded_bf16(a) : a) * (narrow ? rounded_bf16(b) : b);
    sum += product, *size += std::abs(product);
  }
  return sum;
}

std::vector<float> run(const ops::Variant& variant, const Case& c, const std::vector<float>& x, int64_t stride, const MatrixView& w, const View& bias,
                       int64_t first, int64_t rows, int threads) {
  TestContext context(threads);
  std::vector<float> y(static_cast<size_t>(rows * c.outputs), NAN);
  ops::MatmulParams p;
  p.x = tensor::make_view(const_cast<float*>(x.data()) + first * stride, DType::kF32, {rows, c.channels});
  p.x.stride[0] = stride;
  p.part_count = 1;
  p.compute = c.compute;
  p.parts[0] = {.weight = w, .bias = bias, .y = tensor::make_view(y.data(), DType::kF32, {rows, c.outputs}), .leaf_channels = c.leaf};
  if (c.leaf > 0) p.parts[0].leaf_total = (c.channels + c.leaf - 1) / c.leaf;
  variant.run(&p, context.context());
  return y;
}

void check(const Case& c, uint64_t seed) {
  Random random(seed);
  const int64_t stride = c.channels + 5;
  const TestMatrix w = random_matrix(random, c.type, c.outputs, c.channels, c.block, c.row_offset, c.col_offset);
  const std::vector<float> x = random.normals(c.rows * stride);
  std::vector<float> bias = random.normals(c.outputs);
  const View bias_view = seed % 2 == 0 ? View{} : tensor::make_view(bias.data(), DType::kF32, {c.outputs});
  ops::MatmulParams probe;
  probe.part_count = 1, probe.compute = c.compute;
  probe.parts[0] = {.weight = w.view, .bias = {}, .y = {}, .leaf_channels = c.leaf};
  for (const ops::Variant* variant : usable(ops::OpId::kMatmul, &probe)) {
    SCOPED_TRACE(std::string(variant->name) + " T " + std::to_string(c.rows) + " N " + std::to_string(c.outputs) + " K " +
                 std::to_string(c.channels));
    const std::vector<float> y = run(*variant, c, x, stride, w.view, bias_view, 0, c.rows, 2);
    for (int64_t t = 0; t < c.rows; ++t) {
      const std::vector<float> alone = run(*variant, c, x, stride, w.view, bias_view, t, 1, 1);
      for (int64_t n = 0; n < c.outputs; ++n) {
        double size;
        double want = expected(c, x, stride, w.view, t, n, &size);
        if (bias_view.present()) want += static_cast<double>(bias[static_cast<size_t>(n)]);
        const float got = y[static_cast<size_t>(t * c.outputs + n)];
        ASSERT_NEAR(got, want, 1e-5 * size + 1e-6) << "t " << t << " n " << n;
        ASSERT_EQ(got, alone[static_cast<size_t>(n)]) << "t " << t << " n " << n;
      }
    }
  }
}

TEST(CpuMatmul, EveryTypeAndTail) {
  uint64_t seed = 1;
  for (const Compute compute : {Compute::kF32, Compute::kBF16}) {
    for (const DType type : {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3}) {
      for (const int64_t rows : {1, 3, 12, 13, 30}) {
        for (const int64_t channels : {1, 7, 64, 129, 300}) {
          check({.rows = rows, .outputs = 1 + static_cast<int64_t>(seed * 7 % 80), .channels = channels, .type = type, .compute = compute}, seed);
          ++seed;
        }
      }
    }
  }
}

TEST(CpuMatmul, BlockScalesAndLeaves) {
  uint64_t seed = 100;
  for (const Compute compute : {Compute::kF32, Compute::kBF16}) {
    for (const int64_t rows : {1, 5, 40}) {
      for (const int64_t leaf : {0, 64, 128}) {
        check({.rows = rows, .outputs = 200, .channels = 384, .type = DType::kF8E4M3, .block = 128, .leaf = leaf, .compute = compute}, seed++);
        check({.rows = rows,
               .outputs = 130,
               .channels = 200,
               .type = DType::kF8E4M3,
               .block = 128,
               .row_offset = 64,
               .col_offset = 96,
               .leaf = leaf,
               .compute = compute},
              seed++);
        check({.rows = rows, .outputs = 33, .channels = 321, .type = DType::kBF16, .leaf = leaf, .compute = compute}, seed++);
      }
    }
    check({.rows = 2,
           .outputs = 70,
           .channels = 90,
           .type = DType::kF8E4M3,
           .block = 16,
           .row_offset = 5,
           .col_offset = 3,
           .leaf = 9,
           .compute = compute},
          seed++);
  }
}

// More channels than are packed at once, and more rows than a task takes.
TEST(CpuMatmul, ManySegmentsAndBlocks) {
  uint64_t seed = 200;
  for (const int64_t rows : {6, 7, 70, 210}) {
    check({.rows = rows, .outputs = 37, .channels = 1100, .type = DType::kBF16, .compute = Compute::kBF16}, seed++);
    check({.rows = rows, .outputs = 35, .channels = 600, .type = DType::kF32}, seed++);
    check({.rows = rows, .outputs = 33, .channels = 560, .type = DType::kBF16, .leaf = 280, .compute = Compute::kBF16}, seed++);
    check({.rows = rows, .outputs = 40, .channels = 700, .type = DType::kF8E4M3, .block = 128, .col_offset = 64, .compute = Compute::kBF16}, seed++);
  }
}

// INT8: every level gives the bits of the scalar one, for rows that go straight to the weights and for packed ones.
TEST(CpuMatmul, CodesAreTheSameAtEveryLevel) {
  Random random(9);
  for (const int64_t channels : {48, 1024, 2128}) {
    const int64_t outputs = 70;
    TestMatrix w = random_matrix(random, DType::kF8E4M3, outputs, channels);
    w.view.values.dtype = DType::kI8;
    for (uint8_t& code : w.values) code = static_cast<uint8_t>(random.below(255) - 127);
    w.scales = random.normals(outputs, 0.01f);
    w.view.scales = tensor::make_view(w.scales.data(), DType::kF32, {outputs, 1});
    w.view.block_rows = 1, w.view.block_cols = static_cast<int32_t>(channels);
    for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 70, 210}) {
      const std::vector<float> x = random.normals(rows * channels);
      const Case c{.rows = rows, .outputs = outputs, .channels = channels, .type = DType::kI8, .compute = Compute::kInt8};
      ops::MatmulParams probe;
      probe.part_count = 1, probe.compute = c.compute, probe.parts[0] = {.weight = w.view, .bias = {}, .y = {}};
      std::vector<float> first;
      for (const ops::Variant* variant : usable(ops::OpId::kMatmul, &probe)) {
        SCOPED_TRACE(std::string(variant->name) + " T " + std::to_string(rows) + " K " + std::to_string(channels));
        const std::vector<float> y = run(*variant, c, x, channels, w.view, {}, 0, rows, 2);
        if (first.empty()) first = y;
        ASSERT_EQ(y, first);
      }
    }
  }
}

// Shards of the input channels, combined by the tree, give the bits of the whole product.
TEST(CpuMatmul, ShardsMakeTheWhole) {
  Random random(7);
  const int64_t rows = 5, outputs = 70, leaf = 64, leaves = 7, channels = 6 * leaf + 40;
  for (const Compute compute : {Compute::kF32, Compute::kBF16}) {
    const TestMatrix w = random_matrix(random, DType::kF8E4M3, outputs, channels, 128);
    const std::vector<float> x = random.normals(rows * channels);
    const Case c{.rows = rows, .outputs = outputs, .channels = channels, .type = DType::kF8E4M3, .leaf = leaf, .compute = compute};
    ops::MatmulParams probe;
    probe.part_count = 1, probe.compute = compute, probe.parts[0] = {.weight = w.view, .bias = {}, .y = {}, .leaf_channels = leaf};
    for (const ops::Variant* variant : usable(ops::OpId::kMatmul, &probe)) {
      SCOPED_TRACE(variant->name);
      const std::vector<float> whole = run(*variant, c, x, channels, w.view, {}, 0, rows, 1);
      std::vector<std::vector<float>> partials;
      std::vector<tensor::TreeNode> nodes;
      for (const auto& [lo, hi] : {std::pair<int64_t, int64_t>{0, 3}, {3, 4}, {4, 7}}) {
        const int64_t begin = lo * leaf, end = std::min(hi * leaf, channels);
        const auto cover = tensor::tree_cover(leaves, lo, hi);
        std::vector<float> y(cover.size() * static_cast<size_t>(rows * outputs));
        ops::MatmulParams p;
        p.x = tensor::make_view(const_cast<float*>(x.data()), DType::kF32, {rows, channels}).slice(1, begin, end);
        p.part_count = 1, p.compute = compute;
        p.parts[0] = {.weight = tensor::slice_matrix(w.view, {0, outputs}, {begin, end}),
                      .bias = {},
                      .y = tensor::make_view(y.data(), DType::kF32, {static_cast<int64_t>(cover.size()), rows, outputs}),
                      .leaf_channels = leaf,
                      .leaf_begin = lo,
                      .leaf_total = leaves};
        TestContext context(2);
        ASSERT_TRUE(variant->supports(&p));
        variant->run(&p, context.context());
        for (size_t i = 0; i < cover.size(); ++i) {
          nodes.push_back(cover[i]);
          partials.emplace_back(y.begin() + static_cast<int64_t>(i) * rows * outputs, y.begin() + static_cast<int64_t>(i + 1) * rows * outputs);
        }
      }
      std::vector<const float*> pointers;
      for (const auto& partial : partials) pointers.push_back(partial.data());
      std::vector<float> sum(static_cast<size_t>(rows * outputs));
      tensor::tree_combine({leaves, nodes, pointers.data(), rows * outputs}, sum.data());
      for (size_t i = 0; i < sum.size(); ++i) ASSERT_EQ(sum[i], whole[i]) << i;
    }
  }
}

}  // namespace
}  // namespace lathe::kernels::cpu
