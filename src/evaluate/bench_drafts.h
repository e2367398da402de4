#pragma once
// Answers with drafts against answers without, in turns, by one engine: on real text, since nobody foresees random tokens.

#include <string>
#include <vector>

#include "engine/generate.h"
#include "evaluate/bench_model.h"

namespace lathe::evaluate {

struct BenchDraftsOptions {
  std::vector<std::vector<TokenId>> prompts;  ///< as many as the largest batch; used again where there are fewer
  std::vector<int64_t> batches = {1, 16};
  int64_t tokens = 128;  ///< of each answer, at most
  int samples = 5;
  std::vector<TokenId> stop_tokens;
};

struct DraftsBench {
  int64_t batch = 0;
  std::vector<Sample> plain, drafted;  ///< units: tokens; while all requests decode
  engine::DraftCounts counts;          ///< of all drafted samples
  int64_t steps = 0;                   ///< of the drafted samples
  double drafting_share = 0;           ///< of their time: the draft layer and its proposals
  /// Tokens a second with drafts over those without, pair by pair; one pair has no interval.
  RatioInterval gain() const;
};

/// The engine must hold the largest batch and have drafts switched on. Greedy. Every text with drafts is compared with the one without.
/// Errors: invalid_argument (no prompts, no drafts, a batch beyond the engine), internal (texts differ), those of the engine.
Result<std::vector<DraftsBench>> bench_drafts(engine::Engine& engine, const BenchDraftsOptions& options, BenchModelProgress progress);

std::string drafts_page(const std::vector<DraftsBench>& benches);
config::Json drafts_json(const std::vector<DraftsBench>& benches);
/// Counts under the names of vLLM's metrics, without their prefix.
config::Json draft_counts_json(const engine::DraftCounts& counts);
/// "2.31 tokens a step, 410 of 600 drafts accepted, by position 80, 71 and 60 %".
std::string draft_counts_text(const engine::DraftCounts& counts);

}  // namespace lathe::evaluate
