#pragma once
// Replay decoding of KDA (spec kda_kernels §6): a checkpoint state, and a ring of what each later token adds to it. A step reads the state and the ring and
// writes the state only where the checkpoint moves; dropping tentative tokens is a shorter sequence, nothing else.
//
// With G_t the log-decay summed since the checkpoint (f32, one addition a token), a token leaves in its ring rows
//   key    k̃_t = k_t ⊙ e^(−G_t)          value  u_t = beta (v − a_t)          decay  G_t
// and reads   a_t = S₀ᵀ (k ⊙ e^G_t) + Σ_i (k ⊙ e^G_t · k̃_i) u_i,   o_t = S₀ᵀ (q ⊙ e^G_t) + Σ_i (q ⊙ e^G_t · k̃_i) u_i + (q · k) u_t
// over the tokens i since the checkpoint; q and k are normalised as in kda_recurrence. The fold, which moves the checkpoint behind token t, is
//   S₀ + expm1(G_t) ⊙ S₀ + e^(G_t) ⊙ Σ_i k̃_i u_iᵀ, rounded to f32, then to the format of the states as in kda_recurrence.
//
// Ring     position p lies in row p mod R of keys and values, in row p mod R_G of decay. Entries are read as they are stored, also by later rows of the
//          same call. R must exceed the tokens since the checkpoint, those of the window included; R_G the rows of a window.
// Range    keys grow by e^|G|: the caller keeps |G| ≤ 80 between checkpoints (period · |lower bound of g| ≤ 80). FP16 rings cannot hold that.

#include <algorithm>

#include "ops/batch.h"
#include "ops/op.h"

namespace lathe::ops {

/// When the checkpoint of a sequence moves: a function of its positions and of its request, never of slot, batch or windows.
struct ReplayRule {
  int64_t origin = 0;   ///< first position that replay computes; the state of the tokens before it came from kda_recurrence
  int32_t period = 16;  ///< tokens between checkpoints, at most
  int32_t phase = 0;    ///< by request, so that not all sequences of a step write their states at once: in [0, period)
  int32_t anchor = 0;   ///< > 0: every multiple is a checkpoint too, in every request
};

/// Whether the state of the tokens before `position` is a checkpoint.
constexpr bool is_checkpoint(const ReplayRule& rule, int64_t position) {
  if (position <= rule.origin) return position == rule.origin;
  return position % rule.period == rule.phase % rule.period || (rule.anchor > 0 && position % rule.anchor == 0);
}
/// The last checkpoint at or before `length` ≥ origin.
constexpr int64_t checkpoint_of(const ReplayRule& rule, int64_t length) {
  while (!is_checkpoint(rule, length)) --length;
  return length;
}

/// The first checkpoint after `position` ≥ origin.
constexpr int64_t next_checkpoint(const ReplayRule& rule, int64_t position) {
  do ++position;
  while (!is_checkpoint(rule, position));
  return position;
}

/// The rings of all slots.
struct ReplayRing {
  View keys;    ///< f32 or bf16 [slots, R, H, K]
  View values;  ///< f32 or bf16 [slots, R, H, V]
  View decay;   ///< f32 [slots, R_G, H, K]
};

/// A window of rows for each sequence, one after the other: drafts to verify, or one row, which is plain decoding.
/// Folds    a row with fold = 1 stands at a checkpoint: before it the rows since the last one are folded, inside the call; memory keeps the old state until
///          kda_flush moves it. No checkpoint lies between `checkpoint` and the first row of the window.
/// Bits     of a row depend on the sequence's own rows and on where its checkpoints lie: not on how rows are cut into windows, on rows behind it, slot or batch.
struct KdaVerifyParams {
  static constexpr OpId kId = OpId::kKdaVerify;
  View q, k, v;          ///< f32 [T, H, K], [T, H, K], [T, H, V]
  View g;                ///< f32 [T, H·K]
  View beta;             ///< f32 [T, H]
  View states;           ///< f32, f16 or i8 [rows, H, K, V]
  View states_scales{};  ///< of i8: f32 [rows, H, V]
  View state;            ///< i32 [S]: row of the checkpoint; −1: zeros
  View checkpoint;       ///< i32 [S]: position that this state stands at, at most the first row's
  View slot;             ///< i32 [S], of the rings
  ReplayRing ring;       ///< inout
  View fold;             ///< i32 [T]: 0 or 1
  Ragged batch;
  View o;                                    ///< out f32 [T, H, V]
  const int32_t* host_checkpoint = nullptr;  ///< optional host copy, for cost() alone, with those of batch; else rings are taken as empty
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("q", s.q), v.in("k", s.k), v.in("v", s.v), v.in("g", s.g), v.in("beta", s.beta);
    v.in("states", s.states), v.in("states_scales", s.states_scales), v.in("state", s.state), v.in("checkpoint", s.checkpoint);
    v.in("slot", s.slot), v.inout("ring keys", s.ring.keys), v.inout("ring values", s.ring.values), v.inout("ring decay", s.ring.decay);
    v.in("fold", s.fold);
    Ragged::visit(s.batch, v);
    v.out("o", s.o);
  }
};

/// The state of the tokens before position to[s]: folds ring rows checkpoint[s] … to[s] − 1 of each sequence into its state and writes row into[s] of `states`.
/// Where that is the row it came from, this is the flush, else a reconstruction that leaves the live slot as it is: the same bits. to = checkpoint copies.
/// Order    no checkpoint lies between checkpoint[s] and to[s], where the sum of decays begins anew: after a window over several, each gets its flush in turn.
/// States   entering and states may be the same pool; a row is read before it is written. Their formats may differ: the fold is rounded to that of states.
struct KdaFlushParams {
  static constexpr OpId kId = OpId::kKdaFlush;
  View entering;           ///< f32, f16 or i8 [rows, H, K, V]
  View entering_scales{};  ///< of i8: f32 [rows, H, V]
  View state_in;           ///< i32 [S]; −1: zeros
  View states;             ///< inout f32, f16 or i8 [rows, H, K, V]
  View states_scales{};    ///< inout, of i8: f32 [rows, H, V]
  View into;               ///< i32 [S]; −1: this sequence is left alone
  View checkpoint, to;     ///< i32 [S]
  View slot;               ///< i32 [S], of the rings
  ReplayRing ring;         ///< in
  int64_t folded_max = 0;  ///< most rows that one sequence folds (host copy, for cost and scratch)
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("entering", s.entering), v.in("entering_scales", s.entering_scales), v.in("state_in", s.state_in);
    v.inout("states", s.states), v.inout("states_scales", s.states_scales), v.in("into", s.into);
    v.in("checkpoint", s.checkpoint), v.in("to", s.to), v.in("slot", s.slot);
    v.in("ring keys", s.ring.keys), v.in("ring values", s.ring.values), v.in("ring decay", s.ring.decay);
  }
};

}  // namespace lathe::ops
