#pragma once
// Mixture of experts: routing and the grouped expert MLPs (spec glm5_next §2.6, §2.9).

#include "ops/op.h"

namespace lathe::ops {

/// s = σ(logits); choose top_k experts by s + bias (ties: lower id), weights from the unbiased s:
///   w = s / (Σ chosen s + 1e-20) · scale   (without the division if !normalise)
/// groups > 1: a group's score is the sum of its two largest biased scores; only the best groups_kept groups stay (ties: lower group).
/// Output sorted by expert id.
struct RouteParams {
  static constexpr OpId kId = OpId::kRoute;
  View logits;  ///< f32 [T, E], computed in f32
  View bias;    ///< f32 or bf16 [E]
  int32_t groups = 1;
  int32_t groups_kept = 1;
  bool normalise = true;
  float scale = 1;
  View ids;      ///< out i32 [T, k], ascending
  View weights;  ///< out f32 [T, k]
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("logits", s.logits), v.in("bias", s.bias), v.out("ids", s.ids), v.out("weights", s.weights);
  }
};

/// Σ over chosen experts e of w_e · down_e(swiglu(gate_e x, up_e x)), as the canonical tree whose leaves are the expert ids 0 … experts_total − 1.
/// Each matrix is stored in its own way: FP8 with scales in some experts, BF16 in others.
/// A rank holds experts [expert_begin, expert_begin + gate.count). The order inside an expert is the kernel's own.
/// Output   y f32 [T, D]: the root (all experts present); or y f32 [nodes, T, D]: one partial per node of the cover, and present i32 [nodes, T] says
///          which nodes had a chosen expert (others are 0).
/// Bits     of a row depend on that row alone.
/// kInt8    and kFp8 turn rows of x into codes as matmul does, and the inner activation of each expert in the same way: one scale a row, or runs of 128.
///          An expert is whole on its rank: nothing here takes the largest magnitude of an inner row from other ranks.
struct MoeParams {
  static constexpr OpId kId = OpId::kMoe;
  View x;                      ///< f32 [T, D]
  View ids;                    ///< i32 [T, k], ascending global ids
  View weights;                ///< f32 [T, k]
  MatrixStack gate, up, down;  ///< [I, D], [I, D], [D, I] per local expert
  int32_t expert_begin = 0;
  int32_t experts_total = 0;
  float limit = 0;
  Compute compute = Compute::kF32;
  View y;
  View present;  ///< absent, or out i32 [nodes, T]
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("x", s.x), v.in("ids", s.ids), v.in("weights", s.weights), v.in("gate", s.gate), v.in("up", s.up), v.in("down", s.down);
    v.out("y", s.y), v.out("present", s.present);
  }
};

/// Leaf size of the dense and shared down projections: spec parallel §2.2.
inline constexpr int64_t kDownLeafChannels = 128;

}  // namespace lathe::ops
