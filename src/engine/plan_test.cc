// Goal: plans never exceed their limits, nobody is starved or overtaken, and every prompt token is read exactly once.
#include "engine/plan.h"

#include <gtest/gtest.h>

#include <random>

namespace lathe::engine {
namespace {

std::vector<PlanLine> planned(std::span<const RequestView> requests, const PlanLimits& limits) {
  std::vector<PlanLine> plan;
  plan_step(requests, limits, plan);
  return plan;
}

TEST(Plan, DecodesFirstThenPromptsInOrder) {
  const std::vector<RequestView> requests = {{.prompt_tokens = 5, .done_tokens = 5, .running = true},
                                             {.prompt_tokens = 9, .done_tokens = 2, .running = true},
                                             {.prompt_tokens = 4},
                                             {.prompt_tokens = 4}};
  const auto plan = planned(requests, {.step_tokens = 10, .sequences = 3});
  ASSERT_EQ(plan.size(), 3u);
  EXPECT_EQ(plan[0].tokens, 1);
  EXPECT_FALSE(plan[0].prefill);
  EXPECT_EQ(plan[1].tokens, 7);
  EXPECT_TRUE(plan[1].last_chunk);
  EXPECT_EQ(plan[2].tokens, 2);
  EXPECT_TRUE(plan[2].admit);
  EXPECT_FALSE(plan[2].last_chunk);
}

TEST(Plan, DraftsFillWhatIsLeftButLeavePromptsTheirHalf) {
  std::vector<RequestView> requests = {{.prompt_tokens = 5, .done_tokens = 5, .drafts = 5, .running = true},
                                       {.prompt_tokens = 5, .done_tokens = 5, .drafts = 1, .running = true},
                                       {.prompt_tokens = 5, .done_tokens = 5, .drafts = 5, .running = true}};
  auto plan = planned(requests, {.step_tokens = 100, .sequences = 3});
  ASSERT_EQ(plan.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(plan[i].drafts, requests[i].drafts);
    EXPECT_EQ(plan[i].tokens, 1 + requests[i].drafts);
  }
  plan = planned(requests, {.step_tokens = 8, .sequences = 3});  // five rows for drafts: 2, 1, 2
  EXPECT_EQ(plan[0].drafts, 2);
  EXPECT_EQ(plan[1].drafts, 1);
  EXPECT_EQ(plan[2].drafts, 2);
  plan = planned(requests, {.step_tokens = 2, .sequences = 3});  // not even a row each
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[0].tokens + plan[1].tokens, 2);
  requests.push_back({.prompt_tokens = 40});
  plan = planned(requests, {.step_tokens = 13, .sequences = 4});  // ten rows behind the first ones: five for drafts, five for the prompt
  ASSERT_EQ(plan.size(), 4u);
  EXPECT_EQ(plan[0].drafts + plan[1].drafts + plan[2].drafts, 5);
  EXPECT_EQ(plan[3].tokens, 5);
  plan = planned(requests, {.step_tokens = 13, .sequences = 3});  // nobody can be admitted: nothing to leave rows for
  ASSERT_EQ(plan.size(), 3u);
  EXPECT_EQ(plan[0].drafts + plan[1].drafts + plan[2].drafts, 10);
}

TEST(Plan, RandomRunsFinishWithinTheirLimits) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const PlanLimits limits{.step_tokens = 1 + static_cast<int64_t>(random() % 40), .sequences = 1 + static_cast<int32_t>(random() % 5)};
    std::vector<RequestView> requests(1 + random() % 12);
    std::vector<int> left(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].prompt_tokens = 1 + static_cast<int64_t>(random() % 90);
      left[i] = 1 + static_cast<int>(random() % 30);
    }
    int steps = 0;
    for (auto plan = planned(requests, limits); !plan.empty(); plan = planned(requests, limits)) {
      ASSERT_LT(++steps, 10000);
      for (RequestView& request : requests) request.drafts = static_cast<int32_t>(random() % 6);
      int64_t tokens = 0;
      for (const PlanLine& line : plan) {
        RequestView& request = requests[static_cast<size_t>(line.request)];
        ASSERT_FALSE(request.finished);
        tokens += line.tokens;
        request.running = true;
        ASSERT_EQ(line.tokens - line.drafts, line.prefill ? line.tokens : 1);
        if (line.prefill) request.done_tokens += line.tokens;
        ASSERT_LE(request.done_tokens, request.prompt_tokens);
        ASSERT_EQ(line.prefill && request.done_tokens == request.prompt_tokens, line.last_chunk);
        if ((line.last_chunk || !line.prefill) && --left[static_cast<size_t>(line.request)] == 0) request.finished = true;
      }
      int32_t running = 0;
      for (const RequestView& request : requests) running += request.running && !request.finished ? 1 : 0;
      ASSERT_LE(running, limits.sequences);
      ASSERT_LE(tokens, limits.step_tokens);
    }
    for (const RequestView& request : requests) ASSERT_TRUE(request.finished);
  }
}

}  // namespace
}  // namespace lathe::engine
