#pragma once
// Embedding, norms, elementwise ops, matrix products. Activations are f32 [T, …] rows with any row stride, last axis contiguous.
// "weight vectors" are f32 or bf16.

#include "ops/batch.h"
#include "ops/op.h"

namespace lathe::ops {

/// out[t] = table[ids[t]], or overrides[override_row[t]] where override_row[t] >= 0 (image rows).
struct EmbedParams {
  static constexpr OpId kId = OpId::kEmbed;
  View ids;           ///< i32 [T], in [0, rows of table)
  MatrixView table;   ///< [V, D], unscaled
  View override_row;  ///< absent, or i32 [T]
  View overrides;     ///< absent, or f32 [n, D]
  View out;           ///< f32 [T, D]
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("ids", s.ids), v.in("table", s.table), v.in("override_row", s.override_row), v.in("overrides", s.overrides), v.out("out", s.out);
  }
};

/// out[i] = x[rows[i]].
struct GatherRowsParams {
  static constexpr OpId kId = OpId::kGatherRows;
  View x;     ///< f32 [T, D]
  View rows;  ///< i32 [n], in [0, T)
  View out;   ///< f32 [n, D]
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("x", s.x), v.in("rows", s.rows), v.out("out", s.out);
  }
};

/// out = a + b, elementwise. out may be a or b.
struct AddParams {
  static constexpr OpId kId = OpId::kAdd;
  View a, b, out;  ///< f32 [T, D]
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("a", s.a), v.in("b", s.b), v.out("out", s.out);
  }
};

/// out = x · rsqrt(mean(x²) + eps) · weight, per row. Statistics f32; one rounding. out may be x.
struct RmsNormParams {
  static constexpr OpId kId = OpId::kRmsNorm;
  View x;       ///< f32 [T, D]
  View weight;  ///< [D]
  float eps = 0;
  View out;  ///< f32 [T, D]
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("x", s.x), v.in("weight", s.weight), v.out("out", s.out);
  }
};

/// out = (x − mean) · rsqrt(var + eps) · weight + bias, per row (var = mean of squared deviations). out may be x.
struct LayerNormParams {
  static constexpr OpId kId = OpId::kLayerNorm;
  View x;             ///< f32 [T, D]
  View weight, bias;  ///< [D]
  float eps = 0;
  View out;  ///< f32 [T, D]
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("x", s.x), v.in("weight", s.weight), v.in("bias", s.bias), v.out("out", s.out);
  }
};

/// out = 0.5 x (1 + erf(x / √2)), exact form. out may be x.
struct GeluParams {
  static constexpr OpId kId = OpId::kGelu;
  View x, out;  ///< f32 [T, D]
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("x", s.x), v.out("out", s.out);
  }
};

/// One product of a matmul: y = x Wᵀ (+ bias).
///
/// Leaves   leaf_channels > 0: the sum over input channels follows the canonical tree (tensor/shard.h) over leaves of that many channels, the last one
///          possibly shorter. The x given holds leaves [leaf_begin, leaf_begin + ceil(K / leaf_channels)) of leaf_total.
/// Output   y f32 [T, N]: the root; then all leaves must be present. y f32 [nodes, T, N]: one partial per node of
///          tree_cover(leaf_total, leaf_begin, leaf_end), ascending; bias must be absent.
/// INT8     of an INT8 product (int8_product) leaves mean nothing: integers have the same sum in any order. Instead of f32 partials a rank gives
///          y i32 [T, N], its sum of codes times codes; ranks add these, and scale_sums ends the product. bias must be absent then.
struct MatmulPart {
  MatrixView weight;  ///< [N, K]
  View bias;          ///< absent, or [N]
  View y;
  int64_t leaf_channels = 0;
  int64_t leaf_begin = 0;
  int64_t leaf_total = 0;
};

/// Up to kPartsMax products of the same rows x: one launch, one reading of x.
///
/// Numerics  The bits of y[t, n] depend on row t of x, row n of W and `compute` alone: not on T, on other rows, parts, threads or on where a shard begins in N.
///           Order of additions inside a leaf is the kernel's own; between leaves the tree.
/// kInt8     x[t] becomes codes q with the scale s of its largest magnitude (tensor/quantised.h). The sum of q times the weight's codes is exact in int32
///           (K ≤ kInt8ChannelsMax), then y = (f32(sum) · s) · weight scale (+ bias), each step rounded in f32: bit for bit the same in every kernel.
///           A weight code of −128 is legal.
/// kFp8      x[t] becomes E4M3 codes, one scale for each run of 128 channels; runs are counted from the first channel of x, and anew from the first of
///           each leaf, so no cut splits one. Codes and scales are the same bits in every kernel. Sums are taken per run and weight block, scaled in f32
///           and added in the kernel's own order; a tensor core may keep as few as 14 bits inside a run.
struct MatmulParams {
  static constexpr OpId kId = OpId::kMatmul;
  static constexpr int kPartsMax = 8;
  View x;  ///< f32 [T, K]
  View
      x_amax{};  ///< absent, or f32 [T], kInt8 only: largest magnitude of the whole row where x holds some channels of it (row_amax, and the greatest over ranks)
  std::array<MatmulPart, kPartsMax> parts{};
  int32_t part_count = 0;
  Compute compute = Compute::kF32;
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("x", s.x), v.in("x_amax", s.x_amax);
    for (int32_t i = 0; i < s.part_count; ++i) {
      auto& part = s.parts[static_cast<size_t>(i)];
      v.in("weight", part.weight), v.in("bias", part.bias), v.out("y", part.y);
    }
  }
};

/// out[t] = max |x[t, c]|; 0 of no channel, NaN if one is NaN. The scale of an INT8 row that several ranks hold: each takes its own, the greatest counts.
struct RowAmaxParams {
  static constexpr OpId kId = OpId::kRowAmax;
  View x;    ///< f32 [T, K]
  View out;  ///< f32 [T]
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("x", s.x), v.out("out", s.out);
  }
};

/// The end of an INT8 product whose channels were cut: y = (f32(sums) · s) · weight scale (+ bias), s = x_amax / 127 as in matmul. Bits of the uncut product.
struct ScaleSumsParams {
  static constexpr OpId kId = OpId::kScaleSums;
  View sums;    ///< i32 [T, N]
  View x_amax;  ///< f32 [T]
  View scales;  ///< f32 [N, 1], of the weight
  View bias;    ///< absent, or [N]
  View y;       ///< f32 [T, N]
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("sums", s.sums), v.in("x_amax", s.x_amax), v.in("scales", s.scales), v.in("bias", s.bias), v.out("y", s.y);
  }
};

/// out = silu(min(gate, limit)) · clip(up, −limit, limit); silu(a) = a · σ(a). Upper side only for the gate. out may be gate or up.
struct SwigluParams {
  static constexpr OpId kId = OpId::kSwiglu;
  View gate, up, out;  ///< f32 [T, I]
  float limit = 0;
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("gate", s.gate), v.in("up", s.up), v.out("out", s.out);
  }
};

/// out = swiglu(x Gᵀ + gate_bias, x Uᵀ + up_bias; limit): matmul and swiglu in one. Same numerics as the two ops one after the other.
struct GateUpParams {
  static constexpr OpId kId = OpId::kGateUp;
  View x;                   ///< f32 [T, K]
  MatrixView gate, up;      ///< [I, K]
  View gate_bias, up_bias;  ///< absent, or [I]
  View out;                 ///< f32 [T, I]
  float limit = 0;
  Compute compute = Compute::kF32;
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("x", s.x), v.in("gate", s.gate), v.in("up", s.up), v.in("gate_bias", s.gate_bias), v.in("up_bias", s.up_bias), v.out("out", s.out);
  }
};

}  // namespace lathe::ops
