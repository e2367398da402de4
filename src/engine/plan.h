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
  int32_t drafts = 0;       ///< that its next token could be verified with
  bool running = false;     ///< has a sequence
  bool finished = false;
};

/// One line of a plan: how many tokens of which request. Decode lines have one token and its drafts, and no prefill flag.
struct PlanLine {
  int32_t request = 0;
  int64_t tokens = 0;
  int32_t drafts = 0;  ///< the last of the tokens
  bool prefill = false;
  bool admit = false;       ///< give it a sequence first
  bool last_chunk = false;  ///< the prompt ends here: logits wanted
};

struct PlanLimits {
  int64_t step_tokens = 0;  ///< rows of one step
  int32_t sequences = 0;    ///< requests running at a time
};

/// Every running request whose prompt is read gets its next token. Drafts come next, one each before anybody gets two; where prompts are unread they take no
/// more than half of what is left of step_tokens. The rest goes to prompts, oldest first.
/// Requests are admitted in order while sequences are free. An empty plan means: nothing left to do. `plan` is overwritten; its memory is used again.
void plan_step(std::span<const RequestView> requests, const PlanLimits& limits, std::vector<PlanLine>& plan);

}  // namespace lathe::engine
