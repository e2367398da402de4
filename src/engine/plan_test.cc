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
      int64_t tokens = 0;
      for (const PlanLine& line : plan) {
        RequestView& request = requests[static_cast<size_t>(line.request)];
        ASSERT_FALSE(request.finished);
        tokens += line.tokens;
        request.running = true;
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
