// Goal: checkpoints follow from request and positions alone; the calls of a step fold what is settled, in turn, and cut long items into windows.

#include "models/replay.h"

#include <gtest/gtest.h>

#include <set>

#include "models/replay_batch.h"

namespace lathe::models {
namespace {

TEST(Replay, PeriodsFollowTheTraffic) {
  // The published head: docs/formats.md.
  constexpr int64_t kF32 = int64_t{128} * 128 * 4;
  EXPECT_EQ(best_replay_period({.state = kF32, .entry = 1024}, -5), 11);
  EXPECT_EQ(best_replay_period({.state = kF32, .entry = 768}, -5), 13);
  EXPECT_EQ(best_replay_period({.state = kF32, .entry = 512}, -5), 16);
  EXPECT_EQ(best_replay_period({.state = kF32 / 2, .entry = 1024}, -5), 8);
  EXPECT_EQ(best_replay_period({.state = kF32, .entry = 512}, -10), 8) << "the ring cannot hold e^160";
  EXPECT_EQ(longest_replay_period(-5), 16);
  EXPECT_EQ(longest_replay_period(-1e-3f), 16);
  EXPECT_EQ(longest_replay_period(-80), 1);
}

TEST(Replay, BytesOfATokenAreTheMeanOverAPeriod) {
  constexpr int64_t kState = int64_t{128} * 128 * 4;
  // docs/formats.md says 75,008 where the flush shares the pass that reads the state; apart it reads the state and the entries again, and a row of decays.
  EXPECT_NEAR(replay_token_bytes({.state = kState, .entry = 512, .decay = 512}, 16), 75'008 + kState / 16.0 + 512, 1e-6);
  EXPECT_NEAR(replay_token_bytes({.state = kState, .entry = 1024, .decay = 512}, 1), 3 * kState + 3 * 512 - 512 + 2 * 1024, 1e-6);
}

TEST(Replay, PhasesSpreadOverRequests) {
  const ReplayPlan plan{.period = 11};
  std::set<int32_t> phases;
  for (uint64_t request = 0; request < 64; ++request) phases.insert(replay_rule(plan, {.request = request}).phase);
  EXPECT_EQ(phases.size(), 11u);
  EXPECT_EQ(replay_rule(plan, {.request = 5, .origin = 3}).phase, replay_rule(plan, {.request = 5, .origin = 90}).phase);
}

TEST(Replay, AStateThatNoStepLeftIsRefused) {
  const ReplayPlan plan{.period = 8, .window = 3};
  EXPECT_TRUE(check_mark({}, {.position = 90}, 100, plan).has_value());
  EXPECT_FALSE(check_mark({}, {.position = 89}, 100, plan).has_value());
  EXPECT_FALSE(check_mark({}, {.position = 101}, 100, plan).has_value());
}

/// What a pass of `items` does, as text: "flush 4>8 | verify 8@8 rows 0..3 folds 1".
std::string calls_of(const std::vector<ReplayItem>& items, const ReplayPlan& plan, std::vector<cache::StateMark>* marks = nullptr) {
  ReplayBatch batch;
  const auto built = batch.build(items, plan);
  EXPECT_TRUE(built.has_value());
  MetaPack meta;
  batch.reserve(meta);
  batch.fill(meta);
  batch.make_views(meta);
  // Views of an upload that never was point nowhere: only the host copies are read.
  std::string out;
  for (const ReplayBatch::Call& call : batch.calls()) {
    if (!out.empty()) out += " | ";
    if (call.kind == ReplayBatch::Kind::kFlush) {
      out += "flush x" + std::to_string(call.end - call.begin) + " of " + std::to_string(call.longest);
      continue;
    }
    const ReplayBatch::WindowViews window = batch.windows(call);
    out += "rows " + std::to_string(call.row_begin) + ".." + std::to_string(call.row_end);
    for (int64_t i = 0; i < call.end - call.begin; ++i) {
      out += " " + std::to_string(window.host_checkpoint[i]) + "@" + std::to_string(window.batch.host_start[i]) + "+" +
             std::to_string(window.batch.host_begin[i + 1] - window.batch.host_begin[i]);
    }
  }
  if (marks != nullptr) *marks = batch.marks();
  return out;
}

/// Phase 0 of period 4: checkpoints at multiples of 4.
constexpr ReplayPlan kFours{.period = 4, .window = 3};

TEST(Replay, FoldsComeBeforeTheNextWindow) {
  std::vector<cache::StateMark> marks;
  EXPECT_EQ(calls_of({{.mark = {.position = 8}, .start = 10, .rows = 1}}, kFours, &marks), "rows 0..1 8@10+1");
  EXPECT_EQ(marks[0].position, 8);
  EXPECT_EQ(calls_of({{.mark = {.position = 8}, .start = 12, .rows = 1}}, kFours, &marks), "flush x1 of 4 | rows 0..1 12@12+1");
  EXPECT_EQ(marks[0].position, 12);
  EXPECT_EQ(calls_of({{.mark = {.position = 8}, .start = 11, .rows = 3}}, kFours, &marks), "rows 0..3 8@11+3")
      << "a window may reach over a checkpoint";
  EXPECT_EQ(marks[0].position, 8) << "which moves once its tokens are settled";
}

TEST(Replay, APromptAfterDecodingTakesTheStateAlong) {
  std::vector<cache::StateMark> marks;
  const std::vector<ReplayItem> items = {{.mark = {.position = 8}, .start = 12, .rows = 2},
                                         {.mark = {.request = 7, .position = 8}, .start = 11, .rows = 100, .decode = false},
                                         {.mark = {.origin = 20, .position = 20}, .start = 20, .rows = 1}};
  // The prompt's fold ends at 11, which is no checkpoint. The third one begins at its origin.
  EXPECT_EQ(calls_of(items, kFours, &marks), "flush x2 of 4 | rows 0..3 12@12+2 20@20+1");
  ASSERT_EQ(marks.size(), 3u);
  EXPECT_EQ(marks[1].origin, 111);
  EXPECT_EQ(marks[1].position, 111);
  EXPECT_EQ(marks[1].request, 7u);
  EXPECT_EQ(marks[2].origin, 20);
}

TEST(Replay, SeveralCheckpointsAreFoldedInTurn) {
  ReplayPlan plan = kFours;
  plan.anchor = 3;
  // 3, 4, 6, 8, 9, 12 are checkpoints.
  EXPECT_EQ(calls_of({{.mark = {.position = 8}, .start = 10, .rows = 1}}, plan), "flush x1 of 1 | rows 0..1 9@10+1");
  EXPECT_EQ(calls_of({{.mark = {.position = 6}, .start = 10, .rows = 1}}, plan), "flush x1 of 2 | flush x1 of 1 | rows 0..1 9@10+1");
}

TEST(Replay, LongItemsAreCutFromTheirEnd) {
  const std::vector<ReplayItem> items = {{.mark = {.position = 4}, .start = 5, .rows = 7}, {.mark = {.position = 4}, .start = 6, .rows = 2}};
  EXPECT_EQ(calls_of(items, kFours), "rows 0..1 4@5+1 | rows 1..4 4@6+3 | flush x1 of 4 | rows 4..7 8@9+3 | rows 7..9 4@6+2");
}

}  // namespace
}  // namespace lathe::models
