#pragma once
// Kimi delta attention: short convolution, gates, recurrence, gated output norm (spec glm5_next §2.3, kda_kernels §1).

#include "ops/batch.h"
#include "ops/op.h"

namespace lathe::ops {

/// Causal depthwise convolution and SiLU over the rows of each sequence:
///   z[t, c] = Σ_j w[j, c] · x[t − (W−1) + j, c];  out = z · σ(z)
/// Rows before the step come from the window ring: position p lies in ring row p mod R; positions < 0 are zero. Afterwards the last min(R, rows) raw rows
/// of each sequence are written to the ring. Needs R ≥ W − 1 (+ tentative tokens, so that a rollback finds its history).
/// Formats  a bf16 ring rounds what it keeps (nearest even). A row of the step that is history to a later one (taps 0 … W − 2) is rounded there as well;
///          a token's own row (tap W − 1) enters as it is.
/// Bits     so no cut of a sequence changes a bit, whatever the ring keeps.
struct ShortConvParams {
  static constexpr OpId kId = OpId::kShortConv;
  View x;       ///< f32 [T, C], raw projections
  View weight;  ///< f32 or bf16 [W, C], tap W−1 is the current token
  View ring;    ///< inout f32 or bf16 [slots, R, C]
  View slot;    ///< i32 [S]
  Ragged batch;
  View out;  ///< f32 [T, C]; must not be x
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("x", s.x), v.in("weight", s.weight), v.inout("ring", s.ring), v.in("slot", s.slot);
    Ragged::visit(s.batch, v);
    v.out("out", s.out);
  }
};

/// Log-decay and write strength.
///   bounded:   g = lower_bound · σ(exp(A_log[h]) · (a + dt_bias))
///   unbounded: g = −exp(A_log[h]) · softplus(a + dt_bias), softplus(x) = x above 20
///   beta = σ(b)
struct KdaGateParams {
  static constexpr OpId kId = OpId::kKdaGate;
  View a;        ///< f32 [T, H·K]
  View b;        ///< f32 [T, H]
  View a_log;    ///< f32 or bf16 [H]
  View dt_bias;  ///< f32 or bf16 [H·K]
  bool bounded = true;
  float lower_bound = 0;  ///< −5 in the release
  View g;                 ///< out f32 [T, H·K], ≤ 0
  View beta;              ///< out f32 [T, H]
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("a", s.a), v.in("b", s.b), v.in("a_log", s.a_log), v.in("dt_bias", s.dt_bias), v.out("g", s.g), v.out("beta", s.beta);
  }
};

/// The gated delta rule, token by token, per sequence and head; q and k are L2-normalised here, once per head and token:
///   q ← q · rsqrt(Σq² + 1e-6) · K^-0.5;   k ← k · rsqrt(Σk² + 1e-6)
///   S ← S + expm1(g)[:, None] · S          (never exp(g)·S: a slow decay would be rounded away at every token)
///   S ← S + k ⊗ (beta · (v − Sᵀ k));   o = Sᵀ q
/// State    enters from row state_in[s] of `entering` (−1: zeros). After row t the state is written to row state_out[t] of `states` (−1: not kept).
///          entering and states may be the same pool, and rows may coincide: a row is read before it is written.
/// Formats  `entering` and `states` are f32; f16; or i8 with one f32 scale for each column [K] of a head's state (*_scales [rows, H, V]), by the recipe of
///          tensor/quantised.h. Inside a call the state is f32. Where it is kept it is rounded (f16: nearest even, saturated to ±65504), and the rows
///          after that go on from what was kept: f16, or f32(code · scale). So a cut at a kept row changes nothing in any format.
/// Pair     optional affine form of the sequence's rows, S_end = M S_begin + H, started from M = I, H = 0 with the same token updates.
///          f32 states only.
/// Bits     o and states of a sequence depend on its own rows, on which of them are kept, and on the entering state only; splitting f32 rows at any point
///          changes nothing.
struct KdaRecurrenceParams {
  static constexpr OpId kId = OpId::kKdaRecurrence;
  View q, k, v;    ///< f32 [T, H, K] (rows strided, heads and channels contiguous within a row)
  View g;          ///< f32 [T, H·K]
  View beta;       ///< f32 [T, H]
  View entering;   ///< f32, f16 or i8 [rows, H, K, V]
  View state_in;   ///< i32 [S]
  View states;     ///< inout, as entering [rows, H, K, V]
  View state_out;  ///< i32 [T]
  Ragged batch;
  View o;                                   ///< out f32 [T, H, V]
  View pair_m;                              ///< absent, or out f32 [S, H, K, K]
  View pair_h;                              ///< absent, or out f32 [S, H, K, V]
  View entering_scales{}, states_scales{};  ///< of i8: f32 [rows, H, V]
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("q", s.q), v.in("k", s.k), v.in("v", s.v), v.in("g", s.g), v.in("beta", s.beta);
    v.in("entering", s.entering), v.in("state_in", s.state_in), v.inout("states", s.states), v.in("state_out", s.state_out);
    Ragged::visit(s.batch, v);
    v.out("o", s.o), v.out("pair_m", s.pair_m), v.out("pair_h", s.pair_h);
    v.in("entering_scales", s.entering_scales), v.inout("states_scales", s.states_scales);
  }
};

/// out = o · rsqrt(mean over V of o² + eps) · weight · σ(gate), per head.
struct GatedNormParams {
  static constexpr OpId kId = OpId::kGatedNorm;
  View o;       ///< f32 [T, H, V]
  View gate;    ///< f32 [T, H·V], before σ
  View weight;  ///< [V], shared by heads
  float eps = 0;
  View out;  ///< f32 [T, H·V]
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("o", s.o), v.in("gate", s.gate), v.in("weight", s.weight), v.out("out", s.out);
  }
};

}  // namespace lathe::ops
