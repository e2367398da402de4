// Goal: the sampler follows its integer definition, does not depend on how the vocabulary is cut, and its filters keep exactly what they say.
#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tensor/token_weights.h"

namespace lathe::engine {
namespace {

std::vector<LogitRange> cut(const std::vector<float>& logits, const std::vector<size_t>& borders) {
  std::vector<LogitRange> ranges;
  size_t begin = 0;
  for (const size_t end : borders) {
    ranges.push_back({static_cast<TokenId>(begin), {logits.data() + begin, end - begin}});
    begin = end;
  }
  ranges.push_back({static_cast<TokenId>(begin), {logits.data() + begin, logits.size() - begin}});
  return ranges;
}

TokenId draw(const std::vector<float>& logits, const SamplingParams& params, int64_t position = 0, int64_t vocabulary = 0,
             const std::vector<size_t>& borders = {}) {
  const int64_t size = vocabulary > 0 ? vocabulary : static_cast<int64_t>(logits.size());
  Sampler sampler(size);
  const TokenCounts counts(static_cast<int64_t>(logits.size()));
  return sampler.sample(cut(logits, borders), {.params = params, .counts = counts, .position = position}).value().token;
}

TEST(Sampler, GreedyTakesTheLowestOfEqualIds) {
  EXPECT_EQ(draw({1, 3, 3, 2}, {.temperature = 0}), 1);
  EXPECT_EQ(draw({-0.0f, 0.0f}, {.temperature = 0}), 0);
  EXPECT_EQ(draw({0.0f, -1.0f, 9.0f}, {.temperature = 0}, 0, 2), 0);  // id 2 is a padding row
  EXPECT_EQ(draw({1, 5, 5, 9}, {.temperature = 1, .top_k = 1}), 3);
}

TEST(Sampler, NoCutOfTheVocabularyChangesAToken) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 3);
  std::uniform_int_distribution<size_t> border(0, 500);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<float> logits(500);
    for (float& z : logits) z = trial % 3 == 0 ? std::round(normal(random)) : normal(random);  // every third with many ties
    SamplingParams params{.temperature = trial % 2 ? 0.7 : 1.3,
                          .top_p = trial % 5 ? 0.9 : 1.0,
                          .top_k = trial % 4 ? 0 : 20,
                          .min_p = trial % 7 ? 0.0 : 0.05,
                          .seed = static_cast<uint64_t>(trial)};
    const TokenId whole = draw(logits, params, trial);
    for (int ranks = 2; ranks <= 4; ++ranks) {
      std::vector<size_t> borders;
      for (int i = 1; i < ranks; ++i) borders.push_back(border(random));
      std::sort(borders.begin(), borders.end());
      EXPECT_EQ(draw(logits, params, trial, 0, borders), whole);
    }
  }
}

/// The definition, by sorting everything.
TokenId defined(const std::vector<float>& logits, const SamplingParams& params, int64_t position) {
  struct Token {
    float x;
    TokenId id;
    uint64_t weight;
  };
  std::vector<Token> tokens;
  float most = -INFINITY;
  for (const float z : logits) most = std::max(most, z / static_cast<float>(params.temperature));
  for (size_t id = 0; id < logits.size(); ++id) {
    const float x = logits[id] / static_cast<float>(params.temperature);
    tokens.push_back({x, static_cast<TokenId>(id), static_cast<uint64_t>(std::nearbyint(static_cast<double>(tensor::token_exp(x - most)) * 0x1p44))});
  }
  std::sort(tokens.begin(), tokens.end(), [](const Token& a, const Token& b) { return a.x != b.x ? a.x > b.x : a.id < b.id; });
  if (params.top_k > 0) tokens.resize(std::min(tokens.size(), static_cast<size_t>(params.top_k)));
  using Wide = unsigned __int128;
  if (params.top_p < 1) {
    Wide all = 0, running = 0;
    for (const Token& t : tokens) all += t.weight;
    size_t kept = 0;
    while ((running << 32) < static_cast<Wide>(std::nearbyint(params.top_p * 0x1p32)) * all) running += tokens[kept++].weight;
    tokens.resize(kept);
  }
  std::erase_if(tokens, [&](const Token& t) { return static_cast<double>(t.weight) < std::ceil(params.min_p * 0x1p44); });
  std::sort(tokens.begin(), tokens.end(), [](const Token& a, const Token& b) { return a.id < b.id; });
  Wide total = 0;
  for (const Token& t : tokens) total += t.weight;
  const Wide target = (total * random_bits(params.seed, static_cast<uint64_t>(position), 0)) >> 64;
  Wide running = 0;
  for (const Token& t : tokens) {
    if ((running += t.weight) > target) return t.id;
  }
  return -1;
}

TEST(Sampler, DrawsWhatTheDefinitionSays) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 3);
  std::vector<int> seen(3);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<float> logits(static_cast<size_t>(1 + trial % 200));
    for (float& z : logits) z = trial % 3 == 0 ? std::round(normal(random)) : normal(random);
    SamplingParams params{.temperature = trial % 2 ? 0.7 : 1.3,
                          .top_p = trial % 5 ? (trial % 11 ? 0.9 : 1e-9) : 1.0,
                          .top_k = trial % 4 ? 0 : 1 + trial % 30,
                          .min_p = trial % 7 ? 0.0 : 0.05,
                          .seed = static_cast<uint64_t>(trial)};
    ASSERT_EQ(draw(logits, params, trial), defined(logits, params, trial)) << trial;
    ++seen[params.top_p < 1 ? 0 : params.top_k > 0 ? 1 : 2];
  }
  for (const int count : seen) EXPECT_GT(count, 50);
}

/// Greedy without a log probability goes another way: it is the same choice, and refuses the same rows.
TEST(Sampler, TheGreatestAloneIsTheSameChoice) {
  std::mt19937 random(8);
  std::normal_distribution<float> normal(0, 3);
  Sampler sampler(90);
  const TokenCounts counts(100);
  const SamplingParams greedy{.temperature = 0};
  std::vector<float> logits(100);
  const auto both = [&] {
    const auto full = sampler.sample(cut(logits, {}), {.params = greedy, .counts = counts});
    const auto alone = sampler.sample(cut(logits, {}), {.params = greedy, .counts = counts, .logprob = false});
    EXPECT_EQ(full.has_value(), alone.has_value());
    if (full && alone) return full->token == alone->token;
    return !full && !alone && full.error().message == alone.error().message;
  };
  for (int trial = 0; trial < 300; ++trial) {
    for (float& z : logits) z = trial % 2 == 0 ? std::round(normal(random)) : normal(random);
    if (trial % 5 == 0) logits[static_cast<size_t>(trial) % 90] = -INFINITY;
    if (trial % 7 == 0) logits[95] = std::nanf("");  // a padding row
    EXPECT_TRUE(both()) << trial;
    logits[static_cast<size_t>(trial) % 90] = trial % 3 == 0 ? std::nanf("") : INFINITY;
    EXPECT_TRUE(both()) << trial;
  }
  std::fill(logits.begin(), logits.end(), -INFINITY);
  EXPECT_TRUE(both());
}

TEST(Sampler, FrequenciesFollowTheDistribution) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  std::vector<int> count(3);
  for (int i = 0; i < 20000; ++i) ++count[static_cast<size_t>(draw(logits, {.seed = 7}, i))];
  EXPECT_NEAR(count[0] / 20000.0, 0.5, 0.015);
  EXPECT_NEAR(count[1] / 20000.0, 0.3, 0.015);
  std::vector<int> nucleus(3);
  for (int i = 0; i < 2000; ++i) ++nucleus[static_cast<size_t>(draw(logits, {.top_p = 0.79, .seed = 7}, i))];
  EXPECT_EQ(nucleus[2], 0);
  EXPECT_GT(nucleus[1], 0);
  for (int i = 0; i < 500; ++i) EXPECT_NE(draw(logits, {.min_p = 0.5, .seed = 9}, i), 2);
}

TEST(Sampler, PenaltiesBiasAndBans) {
  const std::vector<float> logits = {2.0f, 1.9f, -1.0f};
  Sampler sampler(3);
  TokenCounts counts(3);
  counts.add_prompt(0);
  const auto greedy = [&](SamplingParams params, std::vector<TokenId> banned = {}) {
    params.temperature = 0;
    return sampler.sample(cut(logits, {}), {.params = params, .counts = counts, .banned = banned}).value().token;
  };
  EXPECT_EQ(greedy({}), 0);
  EXPECT_EQ(greedy({.repetition_penalty = 1.2}), 1);
  EXPECT_EQ(greedy({.presence_penalty = 0.5}), 0);  // 0 is in the prompt only
  counts.add_output(0);
  EXPECT_EQ(greedy({.presence_penalty = 0.5}), 1);
  EXPECT_EQ(greedy({.frequency_penalty = 0.2}), 1);
  EXPECT_EQ(greedy({.logit_bias = {{2, 10.0f}}}), 2);
  EXPECT_EQ(greedy({}, {0, 1}), 2);
  const std::vector<TokenId> all = {0, 1, 2};
  EXPECT_EQ(sampler.sample(cut(logits, {}), {.params = {}, .counts = counts, .banned = all}).error().code, Code::kFailedPrecondition);
  const std::vector<float> bad = {0.0f, std::nanf(""), 0.0f};
  EXPECT_NE(sampler.sample(cut(bad, {}), {.params = {}, .counts = counts}).error().message.find("non_finite_logits"), std::string::npos);
}

TEST(Sampler, Logprob) {
  Sampler sampler(3);
  const std::vector<float> logits = {0.0f, 1.0f, 2.0f, 99.0f};
  const TokenCounts counts(4);
  const SamplingParams greedy{.temperature = 0};
  const Sample sample = sampler.sample(cut(logits, {}), {.params = greedy, .counts = counts, .logprob = true}).value();
  EXPECT_EQ(sample.token, 2);
  EXPECT_NEAR(sample.logprob, 2.0 - std::log(1 + std::exp(1.0) + std::exp(2.0)), 1e-7);  // the weights are floats
  EXPECT_EQ(sampler.sample(cut(logits, {1, 2}), {.params = greedy, .counts = counts, .logprob = true}).value().logprob, sample.logprob);
  EXPECT_EQ(sampler.sample(cut(logits, {}), {.params = greedy, .counts = counts, .logprob = false}).value().logprob, 0);
}

TEST(Sampler, ValidationNamesTheField) {
  EXPECT_TRUE(SamplingParams{}.validate(10).has_value());
  EXPECT_NE(SamplingParams{.temperature = -1}.validate(10).error().message.find("temperature is -1"), std::string::npos);
  EXPECT_FALSE(SamplingParams{.top_p = 0}.validate(10).has_value());
  EXPECT_FALSE((SamplingParams{.logit_bias = {{10, 1.0f}}}.validate(10).has_value()));
  EXPECT_FALSE(SamplingParams{.temperature = std::nan("")}.validate(10).has_value());
}

}  // namespace
}  // namespace lathe::engine
