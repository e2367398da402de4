#pragma once
// What the next step does, as a pure function: no device, thread or clock. The server's scheduler grows from here.

#include <cstdint>
#include <span>
#include <vector>

namespace lathe::engine {

/// What the planner knows of a request.
struct RequestView {
  int64_t prompt_tokens = 0;
  int64_t done_tokens = 0;  ///< prompt tokens already read
  bool running = false;     ///< has a sequence
  bool finished = false;
};

/// One line of a plan: how many tokens of which request. Decode lines have one token and no prefill flag.
struct PlanLine {
  int32_t request = 0;
  int64_t tokens = 0;
  bool prefill = false;
  bool admit = false;       ///< give it a sequence first
  bool last_chunk = false;  ///< the prompt ends here: logits wanted
};

struct PlanLimits {
  int64_t step_tokens = 0;  ///< rows of one step
  int32_t sequences = 0;    ///< requests running at a time
};

/// Every running request whose prompt is read gets its next token; what is left of step_tokens goes to prompts, oldest first.
/// Requests are admitted in order while sequences are free. An empty plan means: nothing left to do. `plan` is overwritten; its memory is used again.
void plan_step(std::span<const RequestView> requests, const PlanLimits& limits, std::vector<PlanLine>& plan);

}  // namespace lathe::engine
