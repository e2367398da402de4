#pragma once
// Multi-head latent attention with pooled sparse selection (spec glm5_next §2.4, §2.5). P = kpool, R = latent width, N = index heads, dx = index head size.

#include "ops/batch.h"
#include "ops/op.h"

namespace lathe::ops {

/// Writes row t of sequence s at position start[s] + (t − begin[s]) of the paged pool, rounded to the pool's dtype, or as codes: the same bits everywhere.
struct WriteLatentsParams {
  static constexpr OpId kId = OpId::kWriteLatents;
  View x;      ///< f32 [T, R]
  Paged pool;  ///< inout; row = token
  Ragged batch;
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("x", s.x), v.inout("pool", s.pool.pool), v.inout("pool scales", s.pool.scales), v.in("table", s.pool.table);
    Ragged::visit(s.batch, v);
  }
};

/// Index keys: k ← LayerNorm(k; norm weight, bias, eps), kept raw with its gate row in the tail ring (position p in ring row p mod R); every pool
/// [P·p, P·p + P) whose last token is in this step is pooled and written to row p of the paged keys:
///   α_j = softmax over j of (gate_{P·p+j} + ape[j]), per channel;  key_p = Σ_j α_j · k_{P·p+j}
/// An incomplete pool writes nothing. Needs ring rows ≥ max(1, P − 1 + tentative tokens).
struct IndexKeysParams {
  static constexpr OpId kId = OpId::kIndexKeys;
  View k;                       ///< f32 [T, dx], raw projection
  View gate;                    ///< f32 [T, dx]
  View norm_weight, norm_bias;  ///< [dx]
  float eps = 0;                ///< 1e-6
  View ape;                     ///< [P, dx]
  View ring;                    ///< inout f32 [slots, R, 2, dx]: normalised k, gate
  View slot;                    ///< i32 [S]
  Paged keys;                   ///< inout; row = pool
  Ragged batch;
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("k", s.k), v.in("gate", s.gate), v.in("norm_weight", s.norm_weight), v.in("norm_bias", s.norm_bias), v.in("ape", s.ape);
    v.inout("ring", s.ring), v.in("slot", s.slot), v.inout("keys", s.keys.pool), v.inout("keys scales", s.keys.scales);
    v.in("table", s.keys.table);
    Ragged::visit(s.batch, v);
  }
};

/// Scores and choice. For a row at position t there are n = ⌊(t+1)/P⌋ complete pools;
///   score(p) = Σ_h w[h]·N^-0.5 · max(0, dx^-0.5 · q[h]·key_p)
/// and the min(pools_max, n) best are chosen: larger score first, then lower pool. Output ascending, −1 behind the last.
/// NaN scores rank below every number. If n ≤ pools_max all are chosen and no score is computed (unless `scores` is asked for).
/// Bits     of a score depend on the row and the pool's key alone.
struct IndexSelectParams {
  static constexpr OpId kId = OpId::kIndexSelect;
  View q;        ///< f32 [T, N, dx]
  View weights;  ///< f32 [T, N], may be negative
  Paged keys;    ///< row = pool
  Ragged batch;
  int32_t kpool = 0;
  View selection;  ///< out i32 [T, pools_max]
  View scores;     ///< absent, or out f32 [T, n_max]: every score, −inf beyond n (merging over ranks, tests)
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("q", s.q), v.in("weights", s.weights), v.in("keys", s.keys.pool), v.in("keys scales", s.keys.scales);
    v.in("table", s.keys.table);
    Ragged::visit(s.batch, v);
    v.out("selection", s.selection), v.out("scores", s.scores);
  }
};

/// Rows of kv_b per head h: first `nope` rows W^K_h [nope, R], then `value` rows W^V_h [value, R].
struct KvB {
  MatrixView matrix;  ///< [H·(nope + value), R]
  int32_t nope = 0;
  int32_t value = 0;
};

/// q'[t, h] = (W^K_h)ᵀ q[t, h].
/// compute  here and below is kF32 or kBF16: the sum over W^K's rows meets another scale with every row, and the released formats keep kv_b in BF16.
struct MlaAbsorbParams {
  static constexpr OpId kId = OpId::kMlaAbsorb;
  View q;  ///< f32 [T, H, nope]
  KvB kv_b;
  Compute compute = Compute::kF32;
  View out;  ///< f32 [T, H, R]
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("q", s.q), v.in("kv_b", s.kv_b.matrix), v.out("out", s.out);
  }
};

/// Which keys a row attends to: the P tokens of each chosen pool, then the tail: tokens tail_begin … t (by default P·⌊(t+1)/P⌋ … t).
struct Selection {
  View pools;       ///< i32 [T, pools_max], −1 = none
  View tail_begin;  ///< absent, or i32 [T]: first token of the tail (draft steps that reuse an earlier row's choice)
  int32_t kpool = 0;
};

/// Absorbed attention over latents c: s = scale · q'·c, softmax over the selected keys in f32, z = Σ p c. Keys in ascending order of position.
/// A row without keys gives zeros. Optional max and sum per head (base e) let partial results over key ranges be merged.
struct MlaAttendParams {
  static constexpr OpId kId = OpId::kMlaAttend;
  View q;         ///< f32 [T, H, R], absorbed
  Paged latents;  ///< row = token
  Selection selection;
  Ragged batch;
  float scale = 0;  ///< nope^-0.5
  View out;         ///< f32 [T, H, R]
  View row_max;     ///< absent, or out f32 [T, H]
  View row_sum;     ///< absent, or out f32 [T, H]
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("q", s.q), v.in("latents", s.latents.pool), v.in("latents scales", s.latents.scales), v.in("table", s.latents.table),
        v.in("pools", s.selection.pools), v.in("tail_begin", s.selection.tail_begin);
    Ragged::visit(s.batch, v);
    v.out("out", s.out), v.out("row_max", s.row_max), v.out("row_sum", s.row_sum);
  }
};

/// o[t, h] = W^V_h z[t, h].
struct MlaUnabsorbParams {
  static constexpr OpId kId = OpId::kMlaUnabsorb;
  View z;  ///< f32 [T, H, R]
  KvB kv_b;
  Compute compute = Compute::kF32;
  View out;  ///< f32 [T, H, value]
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("z", s.z), v.in("kv_b", s.kv_b.matrix), v.out("out", s.out);
  }
};

/// The same attention in expanded form: k_h = W^K_h c, v_h = W^V_h c; s = scale · q·k; o = Σ p v. Equal to absorb, attend, unabsorb up to rounding.
/// kBF16 rounds a latent of f32 as it enters the products; codes enter as they are (exact in BF16), their scales on f32 sums.
struct MlaExpandedParams {
  static constexpr OpId kId = OpId::kMlaExpanded;
  View q;  ///< f32 [T, H, nope]
  KvB kv_b;
  Paged latents;
  Selection selection;
  Ragged batch;
  float scale = 0;
  Compute compute = Compute::kF32;
  View out;  ///< f32 [T, H, value]
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("q", s.q), v.in("kv_b", s.kv_b.matrix), v.in("latents", s.latents.pool), v.in("latents scales", s.latents.scales),
        v.in("table", s.latents.table), v.in("pools", s.selection.pools), v.in("tail_begin", s.selection.tail_begin);
    Ragged::visit(s.batch, v);
    v.out("out", s.out);
  }
};

}  // namespace lathe::ops
