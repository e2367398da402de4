#pragma once
// Acceptance of the draft layer by position, on greedy texts.

#include "evaluate/eval.h"

namespace lathe::evaluate {

/// Fills report.drafts (own greedy texts of up to 150 ids) and report.drafts_given. Texts shorter than 6 ids are left out.
/// At every position t from the last of the prompt to the third last of the text, three ids are drafted: step 1 from the true hidden state at t and the
/// true next id, steps 2 and 3 from the step before.
Result<void> run_draft_eval(engine::Engine& engine, const EvalSets& sets, EvalReport& report, EvalProgress progress);

}  // namespace lathe::evaluate
