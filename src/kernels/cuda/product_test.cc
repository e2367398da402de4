// Goal: products on clusters and products with flowing x give the same bits, for every shape of their blocks; so a launch may take either. Over the emulation.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cuda/args.h"

namespace lathe::kernels::cuda {
namespace {

struct Sizes {
  Type type;
  int tokens, cols;
  std::vector<int> rows;  ///< of the parts
};

/// Operands of a product with a part for each of `rows`.
class Products {
 public:
  explicit Products(const Sizes& sizes) : sizes_(sizes), x_(static_cast<size_t>(sizes.tokens) * static_cast<size_t>(sizes.cols)) {
    std::mt19937 random(7);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (float& v : x_) v = uniform(random);
    for (const int rows : sizes.rows) {
      const auto count = static_cast<size_t>(rows) * static_cast<size_t>(sizes.cols);
      auto& bytes = values_.emplace_back(count * (sizes.type == Type::kF8 ? 1 : 2));
      if (sizes.type == Type::kF8) {
        for (uint8_t& b : bytes) b = static_cast<uint8_t>(random() % 256 & 0xF7);  // no NaN
      } else {
        for (size_t i = 0; i < count; ++i) {
          const float v = uniform(random);
          std::memcpy(bytes.data() + 2 * i, reinterpret_cast<const char*>(&v) + 2, 2);
        }
      }
      auto& scales = scales_.emplace_back(static_cast<size_t>((rows + 127) / 128) * static_cast<size_t>(sizes.cols / 128));
      for (float& v : scales) v = uniform(random);
      auto& bias = bias_.emplace_back(static_cast<size_t>(rows));
      for (float& v : bias) v = uniform(random);
    }
  }
  /// y of all parts, one after the other; NaN where nothing was written.
  template <class Launch>
  std::vector<float> run(const Launch& launch) const {
    size_t total = 0;
    for (const int rows : sizes_.rows) total += static_cast<size_t>(rows) * static_cast<size_t>(sizes_.tokens);
    std::vector<float> y(total, NAN);
    std::vector<ProductArgs> args;
    float* at = y.data();
    for (size_t i = 0; i < sizes_.rows.size(); ++i) {
      args.push_back(part(i, at));
      at += sizes_.rows[i] * sizes_.tokens;
    }
    launch(args.data(), static_cast<int>(args.size()));
    return y;
  }

 private:
  ProductArgs part(size_t i, float* y) const {
    const bool fp8 = sizes_.type == Type::kF8;
    ProductArgs a{};
    a.weight = {.values = values_[i].data(),
                .stride = sizes_.cols,
                .scales = fp8 ? scales_[i].data() : nullptr,
                .scale_stride = sizes_.cols / 128,
                .rows = sizes_.rows[i],
                .cols = sizes_.cols,
                .block_rows = 128,
                .block_cols = 128,
                .row_offset = 0,
                .col_offset = 0,
                .type = sizes_.type};
    a.bias = {bias_[i].data(), Type::kF32};
    a.x = x_.data(), a.x_stride = sizes_.cols;
    a.y = y, a.y_stride = sizes_.rows[i];
    a.tokens = sizes_.tokens, a.heads = 1, a.head_rows = a.rows = sizes_.rows[i], a.fast = true;
    return a;
  }
  Sizes sizes_;
  std::vector<float> x_;
  std::vector<std::vector<uint8_t>> values_;
  std::vector<std::vector<float>> scales_, bias_;
};

class ProductForms : public testing::TestWithParam<Sizes> {};

TEST_P(ProductForms, GiveTheSameBits) {
  const Products products(GetParam());
  const std::vector<float> expected = products.run([](const ProductArgs* args, int count) { launch_product_cluster(args, count, nullptr); });
  const std::vector<float> found = products.run([](const ProductArgs* args, int count) {
    std::vector<char> scratch(static_cast<size_t>(product_stream_bytes(args, count)) + 16);
    char* const aligned = scratch.data() + (16 - reinterpret_cast<uintptr_t>(scratch.data()) % 16) % 16;
    launch_product_stream(args, count, aligned, nullptr);
  });
  ASSERT_EQ(found.size(), expected.size());
  size_t other = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_TRUE(std::isfinite(expected[i])) << i;
    other += std::memcmp(&found[i], &expected[i], 4) != 0 ? 1 : 0;
  }
  EXPECT_EQ(other, 0U) << "of " << found.size();
}

INSTANTIATE_TEST_SUITE_P(Shapes, ProductForms,
                         testing::Values(Sizes{Type::kF8, 9, 1024, {64}}, Sizes{Type::kF8, 20, 2048, {40, 70}}, Sizes{Type::kF8, 70, 1024, {64}},
                                         Sizes{Type::kF8, 33, 384, {200}}, Sizes{Type::kF8, 12, 1024, {600}}, Sizes{Type::kF8, 40, 2048, {300, 300}},
                                         Sizes{Type::kBF16, 9, 1024, {64}}, Sizes{Type::kBF16, 20, 2048, {40, 70}},
                                         Sizes{Type::kBF16, 70, 1024, {64}}, Sizes{Type::kBF16, 33, 192, {200}}, Sizes{Type::kBF16, 12, 1024, {600}},
                                         Sizes{Type::kBF16, 40, 2048, {300, 300}}));

}  // namespace
}  // namespace lathe::kernels::cuda
