#include "engine/plan.h"

#include <algorithm>

namespace lathe::engine {

void plan_step(std::span<const RequestView> requests, const PlanLimits& limits, std::vector<PlanLine>& plan) {
  plan.clear();
  int64_t left = limits.step_tokens;
  int32_t running = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const RequestView& request = requests[i];
    if (request.finished || !request.running) continue;
    ++running;
    if (request.done_tokens == request.prompt_tokens && left > 0) {
      plan.push_back({.request = static_cast<int32_t>(i), .tokens = 1});
      --left;
    }
  }
  for (size_t i = 0; i < requests.size() && left > 0; ++i) {
    const RequestView& request = requests[i];
    const int64_t unread = request.prompt_tokens - request.done_tokens;
    if (request.finished || unread == 0) continue;
    if (!request.running && running == limits.sequences) break;  // in order: nobody overtakes the oldest
    running += request.running ? 0 : 1;
    const int64_t tokens = std::min(unread, left);
    plan.push_back(
        {.request = static_cast<int32_t>(i), .tokens = tokens, .prefill = true, .admit = !request.running, .last_chunk = tokens == unread});
    left -= tokens;
  }
}

}  // namespace lathe::engine
