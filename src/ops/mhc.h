#pragma once
// Manifold-constrained hyper-connections: several residual streams, mixed per token around every sublayer (spec glm5_next §2.2).

#include "ops/op.h"

namespace lathe::ops {

/// Statistics, projection, Sinkhorn and collapse of the streams, per token, all in f32:
///   f = flatten(X[t]); r = f · rsqrt(mean(f²) + eps); m = fn r
///   pre[s] = σ(m[s]·scale[0] + base[s]) + hc_eps;   post[s] = 2σ(m[S+s]·scale[1] + base[S+s])
///   C = softmax over b of (m[2S + S·a + b]·scale[2] + base[…]), + hc_eps, one column normalisation, then (iterations − 1) times rows and columns,
///       each division by (sum + hc_eps)
///   x[d] = Σ_s pre[s] · X[t, s, d]
struct MhcInParams {
  static constexpr OpId kId = OpId::kMhcIn;
  View streams;   ///< f32 [T, S, D]; the stream stride may be 0 (S identical copies before the first layer)
  MatrixView fn;  ///< [2S + S², S·D], unscaled
  View base;      ///< [2S + S²]
  View scale;     ///< [3]
  float eps = 0;  ///< rms_norm_eps
  float hc_eps = 0;
  int32_t iterations = 0;  ///< hc_sinkhorn_iters >= 1
  View x;                  ///< out f32 [T, D]
  View post;               ///< out f32 [T, S]
  View comb;               ///< out f32 [T, S, S], [source, destination]
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("streams", s.streams), v.in("fn", s.fn), v.in("base", s.base), v.in("scale", s.scale);
    v.out("x", s.x), v.out("post", s.post), v.out("comb", s.comb);
  }
};

/// out[t, b, d] = post[t, b] · y[t, d] + Σ_a comb[t, a, b] · X[t, a, d]. out may be the streams themselves if their stride is not 0.
struct MhcOutParams {
  static constexpr OpId kId = OpId::kMhcOut;
  View streams;     ///< f32 [T, S, D]; stream stride may be 0
  View y;           ///< f32 [T, D]
  View post, comb;  ///< f32 [T, S], f32 [T, S, S]
  View out;         ///< f32 [T, S, D]
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("streams", s.streams), v.in("y", s.y), v.in("post", s.post), v.in("comb", s.comb), v.out("out", s.out);
  }
};

/// out[t] = mean over s of streams[t, s].
struct StreamMeanParams {
  static constexpr OpId kId = OpId::kStreamMean;
  View streams;  ///< f32 [T, S, D]
  View out;      ///< f32 [T, D]
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("streams", s.streams), v.out("out", s.out);
  }
};

}  // namespace lathe::ops
