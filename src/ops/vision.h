#pragma once
// Vision tower (spec glm5_next §3.3).

#include "ops/op.h"

namespace lathe::ops {

/// Per-head RMSNorm of q and k over hd (weights shared by heads), then 2-D rotary embedding, in place:
///   inv_freq_j = 10000^(−2j/(hd/2)), j < hd/4; angles = [row·inv_freq, col·inv_freq] twice; pair d with d + hd/2 (rotate half). f32.
struct VisionRopeParams {
  static constexpr OpId kId = OpId::kVisionRope;
  View qkv;             ///< inout f32 [T, 3, H, hd]; v is untouched
  View q_norm, k_norm;  ///< [hd]
  float eps = 0;
  View positions;  ///< i32 [T, 2]: row, column of the patch
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.inout("qkv", s.qkv), v.in("q_norm", s.q_norm), v.in("k_norm", s.k_norm), v.in("positions", s.positions);
  }
};

/// Full bidirectional attention inside each segment (one temporal step of one image): softmax(hd^-0.5 · q kᵀ) v, f32.
struct VisionAttendParams {
  static constexpr OpId kId = OpId::kVisionAttend;
  View qkv;            ///< f32 [T, 3, H, hd]
  View segment_begin;  ///< i32 [n + 1]
  View out;            ///< f32 [T, H·hd]
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("qkv", s.qkv), v.in("segment_begin", s.segment_begin), v.out("out", s.out);
  }
};

}  // namespace lathe::ops
