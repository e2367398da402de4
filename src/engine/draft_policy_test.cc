// Goal: lengths of windows follow the expected gain, chances follow what was accepted and forget it, and a stretch of an answer is judged by its own drafts.
#include "engine/draft_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace lathe::engine {
namespace {

constexpr DraftChances kSure = {0.9, 0.9, 0.9, 0.9, 0.9};
constexpr DraftChances kPoor = {0.05, 0.05, 0.05, 0.05, 0.05};

struct Linear {
  double fixed = 100, row = 1, draft = 5;
};

std::vector<int32_t> chosen(const std::vector<DraftCandidate>& requests, const Linear& costs) {
  const auto step = [&](int64_t rows, int64_t) { return costs.fixed + costs.row * static_cast<double>(rows); };
  const auto draft = [&](int64_t) { return costs.draft; };
  std::vector<int32_t> lengths(requests.size(), -1);
  DraftChooser().choose(requests, {.step = step, .draft = draft}, lengths);
  return lengths;
}

TEST(DraftChooser, LengthGrowsWithTheChanceAndFallsWithTheCost) {
  EXPECT_EQ(chosen({{5, kSure}}, {})[0], 5);
  EXPECT_EQ(chosen({{3, kSure}}, {})[0], 3);  // no more than can be used
  EXPECT_EQ(chosen({{0, kSure}}, {})[0], 0);
  EXPECT_EQ(chosen({{5, kPoor}}, {})[0], 0);                                      // 0.05 of a token for 6 % of the cost
  EXPECT_EQ(chosen({{5, kSure}}, {.fixed = 0, .row = 100, .draft = 1})[0], 0);    // a row costs a step
  EXPECT_EQ(chosen({{5, kSure}}, {.fixed = 100, .row = 1, .draft = 200})[0], 0);  // the draft layer costs two
  const int32_t middle = chosen({{5, {0.6, 0.6, 0.6, 0.6, 0.6}}}, {.fixed = 100, .row = 10, .draft = 10})[0];
  EXPECT_GT(middle, 0);
  EXPECT_LT(middle, 5);
}

/// Against all lengths: no single request has a better one.
TEST(DraftChooser, OneRequestGetsTheBestOfAllLengths) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (int trial = 0; trial < 300; ++trial) {
    const Linear costs{.fixed = 100, .row = 60 * uniform(random), .draft = 60 * uniform(random)};
    DraftCandidate request{.most = 5, .chances = {}};
    for (double& chance : request.chances) chance = uniform(random);
    const auto rate = [&](int32_t length) {
      double tokens = 1, held = 1, cost = costs.fixed + costs.row * (1 + length) + costs.draft * length;
      for (int32_t i = 0; i < length; ++i) tokens += held *= request.chances[static_cast<size_t>(i)];
      return tokens / cost;
    };
    double best = 0;
    for (int32_t length = 0; length <= 5; ++length) best = std::max(best, rate(length));
    EXPECT_GE(rate(chosen({request}, costs)[0]), best / 1.051) << trial;  // drafts must promise 5 % more than none
  }
}

TEST(DraftChooser, LikelyRequestsGoFirstAndAJumpOfTheCostIsSeenThrough) {
  const auto mixed = chosen({{5, kPoor}, {5, kSure}, {5, kPoor}}, {.fixed = 100, .row = 20, .draft = 5});
  EXPECT_EQ(mixed[0], 0);
  EXPECT_GT(mixed[1], 0);
  EXPECT_EQ(mixed[2], 0);
  // The second row costs as much as four: alone it does not pay.
  const auto step = [](int64_t rows, int64_t) { return rows == 1 ? 100.0 : 230.0; };
  const auto draft = [](int64_t) { return 1.0; };
  std::vector<int32_t> length(1);
  const std::vector<DraftCandidate> request = {{5, kSure}};
  DraftChooser().choose(request, {.step = step, .draft = draft}, length);
  EXPECT_EQ(length[0], 5);
}

TEST(Acceptance, MeasuresByPositionAndForgets) {
  Acceptance acceptance(64);
  EXPECT_DOUBLE_EQ(acceptance.chances(kFirstChances)[0], kFirstChances[0]);
  for (int i = 0; i < 400; ++i) acceptance.add(3, i % 2 == 0 ? 1 : 0);  // the first holds half the time, the second never
  DraftChances chances = acceptance.chances(kFirstChances);
  EXPECT_NEAR(chances[0], 0.5, 0.04);
  EXPECT_LT(chances[1], 0.12);
  EXPECT_DOUBLE_EQ(chances[2], kFirstChances[2]);  // was never reached
  for (int i = 0; i < 400; ++i) acceptance.forget();
  chances = acceptance.chances(kFirstChances);
  EXPECT_NEAR(chances[1], kFirstChances[1], 0.02);
}

TEST(DraftCounts, CountByPosition) {
  DraftCounts counts;
  counts.add(3, 2);
  counts.add(2, 0);
  counts.add(0, 0);
  EXPECT_EQ(counts.windows, 2);
  EXPECT_EQ(counts.drafted, 5);
  EXPECT_EQ(counts.accepted, 2);
  EXPECT_EQ(counts.drafted_at, (std::array<int64_t, 5>{2, 2, 1, 0, 0}));
  EXPECT_EQ(counts.accepted_at, (std::array<int64_t, 5>{1, 1, 0, 0, 0}));
  EXPECT_DOUBLE_EQ(counts.length(), 2.0);
  EXPECT_DOUBLE_EQ(counts.rate(), 0.4);
}

TEST(DraftWatch, JudgesEachStretchByItself) {
  using Verdict = DraftWatch::Verdict;
  const DraftHealth limits{.on = true};
  const auto run = [&](DraftWatch& watch, int64_t tokens, int drafted, int accepted) {
    Verdict verdict = Verdict::kFine;
    for (int64_t i = 0; i < tokens && verdict == Verdict::kFine; i += 1 + accepted) verdict = watch.add(limits, 1 + accepted, drafted, accepted);
    return verdict;
  };
  DraftWatch watch;
  EXPECT_EQ(run(watch, 387, 3, 2), Verdict::kFine);  // three stretches of 129
  EXPECT_EQ(run(watch, 127, 3, 0), Verdict::kFine);  // not yet, and what was before does not count
  EXPECT_EQ(run(watch, 1, 3, 0), Verdict::kTooShort);
  EXPECT_DOUBLE_EQ(watch.judged().length(), 1.0);
  EXPECT_EQ(run(watch, 256, 3, 3), Verdict::kTooSure);
  EXPECT_EQ(run(watch, 2000, 0, 0), Verdict::kFine);  // nothing was drafted
}

}  // namespace
}  // namespace lathe::engine
