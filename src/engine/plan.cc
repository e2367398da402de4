#include "engine/plan.h"

#include <algorithm>

namespace lathe::engine {
namespace {

/// Rows of `room` go to drafts; returns how many.
int64_t grant_drafts(std::span<const RequestView> requests, int64_t room, std::vector<PlanLine>& plan) {
  int64_t granted = 0;
  for (int32_t depth = 1; granted < room; ++depth) {
    bool more = false;
    for (PlanLine& line : plan) {
      if (requests[static_cast<size_t>(line.request)].drafts < depth || granted == room) continue;
      ++line.tokens;
      ++line.drafts;
      ++granted;
      more = true;
    }
    if (!more) break;
  }
  return granted;
}

}  // namespace

void plan_step(std::span<const RequestView> requests, const PlanLimits& limits, std::vector<PlanLine>& plan) {
  plan.clear();
  int64_t left = limits.step_tokens;
  int32_t running = 0;
  bool reading = false, waiting = false;  // some prompt is unread, of a request with a sequence or without
  for (size_t i = 0; i < requests.size(); ++i) {
    const RequestView& request = requests[i];
    const bool unread = !request.finished && request.done_tokens < request.prompt_tokens;
    (request.running ? reading : waiting) |= unread;
    if (request.finished || !request.running) continue;
    ++running;
    if (request.done_tokens == request.prompt_tokens && left > 0) {
      plan.push_back({.request = static_cast<int32_t>(i), .tokens = 1});
      --left;
    }
  }
  const bool prompts_follow = reading || (waiting && running < limits.sequences);
  left -= grant_drafts(requests, prompts_follow ? left / 2 : left, plan);
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
