// The vector functions through the tables that export them.

#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "kernels/cpu/attention_isa.h"
#include "kernels/cpu/kda_isa.h"
#include "kernels/cpu/matmul_isa.h"
#include "kernels/cpu/row_isa.h"
#include "kernels/cpu/test_support.h"

namespace lathe::kernels::cpu {
namespace {

using namespace testing;

struct Tables {
  const char* name;
  const AttentionIsa& attention;
  const KdaIsa& kda;
  const MatmulIsa& matmul;
  const RowIsa& row;
};

std::vector<Tables> tables() {
  std::vector<Tables> out = {{"scalar", kAttentionScalar, kKdaScalar, kMatmulScalar, kRowScalar}};
  if (has_avx2()) out.push_back({"avx2", kAttentionAvx2, kKdaAvx2, kMatmulAvx2, kRowAvx2});
  if (has_avx512()) out.push_back({"avx512", kAttentionAvx512, kKdaAvx512, kMatmulAvx512, kRowAvx512});
  return out;
}

/// Distance in units of the last place of `want`.
double ulps(float got, double want) {
  const auto nearest = static_cast<float>(want);
  const float next = std::nextafter(std::abs(nearest), std::numeric_limits<float>::infinity());
  return std::abs(static_cast<double>(got) - want) / (static_cast<double>(next) - static_cast<double>(std::abs(nearest)));
}

TEST(CpuFunctions, ExponentialWithinTwoUlp) {
  for (const Tables& t : tables()) {
    SCOPED_TRACE(t.name);
    double worst = 0;
    for (float x = -87.0f; x < 88.7f; x += 0.0137f) worst = std::max(worst, ulps(t.attention.exp(x), std::exp(static_cast<double>(x))));
    EXPECT_LE(worst, 2.0);
    // Below the normal range the result is rounded to a subnormal, at the ends it is exact.
    for (float x = -103.0f; x < -87.0f; x += 0.0137f) EXPECT_NEAR(t.attention.exp(x), std::exp(static_cast<double>(x)), 3e-45) << x;
    EXPECT_EQ(t.attention.exp(0.0f), 1.0f);
    EXPECT_EQ(t.attention.exp(-1000.0f), 0.0f);
    EXPECT_EQ(t.attention.exp(-std::numeric_limits<float>::infinity()), 0.0f);
    EXPECT_EQ(t.attention.exp(90.0f), std::numeric_limits<float>::infinity());
    EXPECT_EQ(t.attention.exp(std::numeric_limits<float>::infinity()), std::numeric_limits<float>::infinity());
    EXPECT_TRUE(std::isnan(t.attention.exp(std::numeric_limits<float>::quiet_NaN())));
  }
}

TEST(CpuFunctions, ExpM1KeepsSmallDecays) {
  for (const Tables& t : tables()) {
    SCOPED_TRACE(t.name);
    double worst = 0;
    const auto check = [&](float x) {
      float y = 0;
      t.kda.expm1(&x, 1, &y);
      worst = std::max(worst, ulps(y, std::expm1(static_cast<double>(x))));
    };
    for (float x = -20.0f; x < 20.0f; x += 0.00731f) check(x);
    for (float x = 1.0f; x > 1e-30f; x *= 0.83f) check(x), check(-x);
    EXPECT_LE(worst, 2.0);
    float zero = 0, y = 1;
    t.kda.expm1(&zero, 1, &y);
    EXPECT_EQ(y, 0.0f);
  }
}

TEST(CpuFunctions, SoftplusAndGelu) {
  for (const Tables& t : tables()) {
    SCOPED_TRACE(t.name);
    for (float x = -40.0f; x < 40.0f; x += 0.0173f) {
      const float zero = 0;
      float y = 0;
      t.kda.gate_unbounded(&x, &zero, 1.0f, 1, &y);
      const double want = x > 20.0f ? static_cast<double>(x) : std::log1p(std::exp(static_cast<double>(x)));
      EXPECT_NEAR(-y, want, 4e-7 * want) << x;
    }
    for (float x = -6.0f; x < 9.0f; x += 0.0173f) {
      float y = 0;
      t.row.gelu(&x, 1, &y);
      const double d = static_cast<double>(x), want = 0.5 * d * std::erfc(-d / std::sqrt(2.0));
      EXPECT_NEAR(y, want, 2e-6 * std::abs(want) + 1e-12) << x;
    }
  }
}

TEST(CpuFunctions, Bf16RoundsToNearestEven) {
  Random random(5);
  std::vector<float> x = random.normals(4099, 3.0f);
  for (uint32_t i = 0; i < 4000; ++i) x.push_back(std::bit_cast<float>(static_cast<uint32_t>(random.below(1ll << 32))));
  for (const uint32_t special :
       {0x3F808000u, 0x3F818000u, 0x7F7FFFFFu, 0x7F800000u, 0xFF800000u, 0x7F800001u, 0x7FFFFFFFu, 0x00000001u, 0x80008000u}) {
    x.push_back(std::bit_cast<float>(special));
  }
  for (const Tables& t : tables()) {
    SCOPED_TRACE(t.name);
    std::vector<uint16_t> bits(x.size());
    std::vector<float> rounded(x.size());
    t.matmul.to_bf16(x.data(), static_cast<int64_t>(x.size()), bits.data());
    t.matmul.round_bf16(x.data(), static_cast<int64_t>(x.size()), rounded.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const uint16_t want = tensor::float_to_bf16(x[i]);
      ASSERT_EQ(std::isnan(x[i]), std::isnan(tensor::bf16_to_float(bits[i]))) << i;
      ASSERT_EQ(std::isnan(x[i]), std::isnan(rounded[i])) << i;
      if (std::isnan(x[i])) continue;
      ASSERT_EQ(bits[i], want) << i;
      ASSERT_EQ(rounded[i], tensor::bf16_to_float(want)) << i;
    }
  }
}

// All 256 codes through the decoders of every level, scaled and not.
TEST(CpuFunctions, EveryE4m3Code) {
  std::vector<uint8_t> codes(256);
  for (int i = 0; i < 256; ++i) codes[static_cast<size_t>(i)] = static_cast<uint8_t>(i);
  for (const Tables& t : tables()) {
    SCOPED_TRACE(t.name);
    const int64_t width = t.matmul.width, lanes = width / 2;
    std::vector<const char*> rows(static_cast<size_t>(width), reinterpret_cast<const char*>(codes.data()));
    std::vector<float> packed(static_cast<size_t>(256 * width));
    t.matmul.pack_f8({.rows = rows.data(), .channels = 256, .out = packed.data()});
    for (int64_t group = 0; group < 2; ++group) {
      for (int64_t channel = 0; channel < 256; ++channel) {
        for (int64_t row = 0; row < lanes; ++row) {
          const size_t at = static_cast<size_t>((group * 64 + channel / 4) * 4 * lanes + row % 4 * lanes + row / 4 * 4 + channel % 4);
          const float want = tensor::f8e4m3_to_float(static_cast<uint8_t>(channel));
          if (std::isnan(want)) {
            ASSERT_TRUE(std::isnan(packed[at])) << channel;
          } else {
            ASSERT_EQ(packed[at], want) << channel << " row " << row;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace lathe::kernels::cpu
