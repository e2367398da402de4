#pragma once
// Small driven runs of an engine, for comparisons.

#include <span>
#include <vector>

#include "engine/engine.h"

namespace lathe::feedback {

/// How a prompt is fed.
struct Feed {
  std::vector<int64_t> chunks;  ///< prefill sizes, the last repeats; empty: as large as a step takes
  int64_t decode_from = -1;     ///< ≥ 0: one token at a time from here on
};

/// Logits after every `stride`-th position and the last one, as one row after the other.
struct Trace {
  std::vector<float> logits;
  friend bool operator==(const Trace&, const Trace&) = default;
};

/// Ids of a test prompt: fixed pseudo-random text tokens of the model, no placeholders.
std::vector<TokenId> probe_ids(const models::ModelInfo& info, int64_t length, uint64_t seed);

/// Feeds ids[from, …) to an open sequence that already holds `from` tokens.
Result<Trace> feed(engine::Engine& engine, SequenceId sequence, std::span<const TokenId> ids, const Feed& how, int64_t stride = 16);
/// The same on a new sequence that is closed afterwards.
Result<Trace> feed_new(engine::Engine& engine, std::span<const TokenId> ids, const Feed& how, int64_t stride = 16);

/// Largest difference over the largest value; infinity if sizes differ or NaN meets a number. 0 only for equal bits (±0 aside).
double compare(const Trace& a, const Trace& b);

}  // namespace lathe::feedback
