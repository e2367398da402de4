// Goal: values have the spread they are asked for, depend on key and place alone, and are never out of range.
#include "models/random_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace lathe::models {
namespace {

constexpr size_t kCount = 1 << 16;

std::vector<std::byte> filled(const RandomTensor& tensor, size_t count = kCount) {
  std::vector<std::byte> out(count * tensor::dtype_bytes(tensor.dtype));
  RandomValues().fill(tensor, 0, out);
  return out;
}

struct Moments {
  double mean = 0, deviation = 0, low = INFINITY, high = -INFINITY;
};
Moments moments(const RandomTensor& tensor) {
  const std::vector<std::byte> bytes = filled(tensor);
  Moments out;
  double squares = 0;
  for (size_t i = 0; i < kCount; ++i) {
    const double value = tensor::load_as_float(tensor.dtype, bytes.data(), static_cast<int64_t>(i));
    out.mean += value / kCount;
    squares += value * value / kCount;
    out.low = std::min(out.low, value);
    out.high = std::max(out.high, value);
  }
  out.deviation = std::sqrt(squares - out.mean * out.mean);
  return out;
}

// Budgets: four standard errors of 65,536 draws.
TEST(RandomValues, AreNormal) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Moments m = moments({.key = 7, .dtype = dtype, .centre = 1.0f, .width = 0.5f});
    EXPECT_NEAR(m.mean, 1.0, 4 * 0.5 / 256) << tensor::dtype_name(dtype);
    EXPECT_NEAR(m.deviation, 0.5, 4 * 0.5 / 362) << tensor::dtype_name(dtype);
    EXPECT_GT(m.high, 1.0 + 3.4 * 0.5);
    EXPECT_LT(m.high, 1.0 + 3.8 * 0.5);
  }
}

TEST(RandomValues, EightBitsTimesTheirScalesHaveTheWidth) {
  const Moments codes = moments({.key = 7, .dtype = DType::kF8E4M3, .centre = 0, .width = 0.02f});
  EXPECT_EQ(codes.high, 448.0);
  EXPECT_EQ(codes.low, -448.0);
  const Moments scales = moments({.key = 8, .dtype = DType::kF32, .centre = 0, .width = 0.02f, .scales = true});
  EXPECT_NEAR(scales.mean * codes.deviation, 0.02, 0.02 * 0.01);
  EXPECT_NEAR(scales.low / scales.mean, 0.75, 0.01);
  EXPECT_NEAR(scales.high / scales.mean, 1.25, 0.01);
}

TEST(RandomValues, DoNotDependOnTheCut) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF8E4M3}) {
    const RandomTensor tensor{.key = 3, .dtype = dtype, .centre = 0, .width = 1};
    const std::vector<std::byte> whole = filled(tensor, 101);
    std::vector<std::byte> pieces(whole.size());
    const RandomValues values;
    for (size_t begin = 0; begin < pieces.size(); begin += 24)
      values.fill(tensor, begin, std::span(pieces).subspan(begin, std::min<size_t>(24, pieces.size() - begin)));
    EXPECT_EQ(pieces, whole) << tensor::dtype_name(dtype);
  }
}

TEST(RandomValues, HangOnSeedAndName) {
  EXPECT_EQ(random_key(1, "a.weight"), random_key(1, "a.weight"));
  EXPECT_NE(random_key(1, "a.weight"), random_key(2, "a.weight"));
  EXPECT_NE(random_key(1, "a.weight"), random_key(1, "b.weight"));
  EXPECT_NE(filled({.key = 1}), filled({.key = 2}));
}

}  // namespace
}  // namespace lathe::models
