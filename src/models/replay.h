#pragma once
// How a model decodes by replay (ops/kda_replay.h): when checkpoints move, how long the rings are. Pure.

#include <cstdint>

#include "base/result.h"
#include "cache/store.h"
#include "ops/kda_replay.h"

namespace lathe::models {

/// What replay may be told; 0: as the formats suggest.
struct ReplayOptions {
  int32_t period = 0;  ///< tokens between checkpoints, at most
  int32_t anchor = 0;  ///< > 0: every multiple is a checkpoint too, in every request
};

/// Replay of one model. period 0: states are kept as they are.
struct ReplayPlan {
  int32_t period = 0;
  int32_t anchor = 0;
  int64_t window = 1;  ///< rows of a sequence that one kda_verify takes: a token and the most drafts

  bool on() const { return period > 0; }
  /// Rows of keys and values, and of decays, of a slot.
  int64_t ring_rows() const { return period + window - 1; }
  int64_t decay_rows() const { return window + 1; }
};

/// Bytes of a head's state, of one of its ring entries (key and value), and of a row of its decay ring.
struct ReplayBytes {
  int64_t state = 0;
  int64_t entry = 0;
  int64_t decay = 0;
};
/// Bytes that a decoded token moves for a head: the mean over a period, flushes included.
double replay_token_bytes(const ReplayBytes& bytes, int32_t period);
/// The longest period that the range of the rings allows (|G| ≤ 80, at most 16): a function of the gate's lower bound, < 0.
int32_t longest_replay_period(float lower_bound);
/// The period with the least traffic, √(2 state / entry), as far as the range allows it.
int32_t best_replay_period(const ReplayBytes& bytes, float lower_bound);

/// Checkpoints of a sequence: a function of its request and of where its last prompt ended.
ops::ReplayRule replay_rule(const ReplayPlan& plan, const cache::StateMark& mark);

/// Whether a sequence can go on at `start` from a state that stands at mark.position: a snapshot may say anything.
/// Errors  failed_precondition (no step of such a model has left it there).
Result<void> check_mark(SequenceId sequence, const cache::StateMark& mark, int64_t start, const ReplayPlan& plan);

/// Tokens [begin, end) of a sequence that become part of its state.
struct StateFold {
  int64_t begin = 0, end = 0;
};
/// The next fold on the way from `position` to the state that stands at `to`; empty: it is there. `to` is a checkpoint, or where decoding ends.
StateFold next_fold(const ops::ReplayRule& rule, int64_t position, int64_t to);

}  // namespace lathe::models
