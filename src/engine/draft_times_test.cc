// Goal: costs are those that were measured, between and beside them a guess that gets tried, and bytes before; windows are as long as such costs make them.
#include "engine/draft_times.h"

#include <gtest/gtest.h>

#include "engine/draft_policy.h"

namespace lathe::engine {
namespace {

TEST(RateCurve, MeasuredBetweenAndBeyond) {
  RateCurve curve;
  EXPECT_EQ(curve.at(4, 7.0), 7.0);
  curve.took(1, 2.0);
  curve.took(8, 4.0);
  EXPECT_EQ(curve.at(1, 7.0), 2.0);
  EXPECT_GT(curve.at(4, 7.0), 2.0);
  EXPECT_LT(curve.at(4, 7.0), 4.0);
  EXPECT_LT(curve.at(100, 7.0), 4.0);  // untried: somewhat cheaper
  for (int i = 0; i < 100; ++i) curve.took(8, 1.0);
  EXPECT_NEAR(curve.at(8, 7.0), 1.0, 0.01);
  curve.took(8, 1000.0);
  EXPECT_LT(curve.at(8, 7.0), 1.3);  // other work held the processors
  double before = 0;
  for (int64_t rows = 1; rows < 5000; ++rows) {  // every number of rows has its place
    RateCurve one;
    one.took(rows, 1.0 + static_cast<double>(rows));
    EXPECT_EQ(one.at(rows, 0.0), 1.0 + static_cast<double>(rows));
    EXPECT_GE(one.at(rows, 0.0), before);
    before = one.at(rows, 0.0);
  }
}

/// A row touches experts that no other has touched: at the published sizes drafts of a middling chance pay less than where all is read anyway.
TEST(DraftTimes, TheUnionOfExpertsShortensWindows) {
  const models::DecodeBytes sparse{
      .fixed = 7.2e9, .expert = 1.06e9, .experts = 288, .experts_per_token = 8, .state = 0.15e9, .draft_fixed = 0.9e9, .draft_expert = 25e6};
  models::DecodeBytes dense = sparse;
  dense.fixed += dense.expert * 8;
  dense.expert = dense.draft_expert = 0;
  const auto length_for = [&](const models::DecodeBytes& bytes, double chance) {
    const DraftTimes times(bytes);
    const auto step = [&](int64_t rows, int64_t sequences) { return times.step_ns(rows, sequences); };
    const auto draft = [&](int64_t rows) { return times.draft_ns(rows); };
    DraftCandidate request{.most = 5, .chances = {}};
    request.chances.fill(chance);
    std::vector<int32_t> length(1);
    DraftChooser().choose({&request, 1}, {.step = step, .draft = draft}, length);
    return length[0];
  };
  EXPECT_GE(length_for(dense, 0.7), 4);
  EXPECT_LT(length_for(sparse, 0.7), 3);
  EXPECT_EQ(length_for(sparse, 0.4), 0);
  EXPECT_GT(length_for(dense, 0.4), 0);
}

}  // namespace
}  // namespace lathe::engine
