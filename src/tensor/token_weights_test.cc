// Goal: weights of tokens follow their definition, alone or among others.
#include "tensor/token_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace lathe::tensor {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(TokenWeights, ExpIsRoundedOnce) {
  EXPECT_EQ(token_exp(0.0f), 1.0f);
  int64_t off = 0, all = 0;
  for (float x = -79.9f; x <= 0; x += 0.0137f, ++all) {
    const double exact = std::exp(static_cast<double>(x));
    EXPECT_NEAR(token_exp(x) / exact, 1.0, 6.1e-8) << x;
    off += token_exp(x) != static_cast<float>(exact) ? 1 : 0;
  }
  EXPECT_LE(off, all / 1000) << "rounded otherwise than the exact value";
  for (const float x : {-80.1f, -1e30f, -kInfinity, std::nanf("")}) EXPECT_EQ(token_exp(x), 0.0f) << x;
}

TEST(TokenWeights, AreTheIntegersOfTheDefinition) {
  std::vector<float> x;
  for (int i = 0; i < 1003; ++i) x.push_back(3.5f - 0.07f * static_cast<float>(i * 37 % 1003));
  x[5] = -kInfinity;
  std::vector<uint64_t> weights(x.size());
  token_weights(x, 3.5f, weights);
  uint64_t sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const auto one = static_cast<uint64_t>(std::nearbyint(static_cast<double>(token_exp(x[i] - 3.5f)) * kTokenWeightOne));
    EXPECT_EQ(weights[i], one) << x[i];
    sum += one;
  }
  EXPECT_EQ(token_weight_sum(x, 3.5f), sum);
  EXPECT_EQ(weights[0], uint64_t{1} << 44);
  EXPECT_EQ(weights[5], 0U);
  for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{9}, x.size()}) {
    uint64_t part = 0;
    for (size_t i = 0; i < count; ++i) part += weights[i];
    EXPECT_EQ(token_weight_sum({x.data(), count}, 3.5f), part) << count;
  }
}

}  // namespace
}  // namespace lathe::tensor
