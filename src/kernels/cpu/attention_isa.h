#pragma once
// What the attention files of the instruction-set levels offer to mla.cc, mla_expanded.cc and vision.cc. Plain C types.

#include <cstddef>
#include <cstdint>

namespace lathe::kernels::cpu {

/// Keys or values: one pointer a row, float or BF16.
struct KeyRows {
  const char* const* rows = nullptr;
  int64_t count = 0;
  int64_t offset = 0;  ///< bytes from the pointer to the first element
  bool bf16 = false;
};

/// out[h][j] = scale · q[h] · key[j].
struct ScoreArgs {
  const float* q = nullptr;
  int64_t q_stride = 0;
  int64_t heads = 0;
  int64_t width = 0;
  KeyRows keys;
  float scale = 1;
  float* out = nullptr;
  int64_t out_stride = 0;
};

/// out[h] (+)= Σ_j p[h][j] · value[j], in the order of the list.
struct BlendArgs {
  const float* p = nullptr;
  int64_t p_stride = 0;
  int64_t heads = 0;
  int64_t width = 0;
  KeyRows values;
  float* out = nullptr;
  int64_t out_stride = 0;
  bool accumulate = false;
};

/// out[r][n] = Σ_k x[r][k] · w[k][n] over `terms` rows of w; k after k in one accumulator.
struct MixArgs {
  const float* x = nullptr;
  int64_t x_stride = 0;
  int64_t rows = 0;
  int64_t terms = 0;
  const float* w = nullptr;  ///< [terms][width]
  int64_t width = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
  bool accumulate = false;  ///< the sums in `out` go on
};

struct AttentionIsa {
  void (*scores)(const ScoreArgs& args) = nullptr;
  void (*blend)(const BlendArgs& args) = nullptr;
  void (*mix)(const MixArgs& args) = nullptr;
  float (*largest)(const float* x, int64_t count) = nullptr;
  /// x[i] = e^(x[i] − most); returns the sum.
  float (*soften)(float* x, int64_t count, float most) = nullptr;
  void (*scale)(float* x, int64_t count, float factor) = nullptr;
  /// e^x of one number, as soften takes it.
  float (*exp)(float x) = nullptr;
  /// out[n] = 0 + Σ_h weights[h] · max(0, scale · dots[h][n]), NaN kept.
  void (*relu_sum)(const float* dots, int64_t stride, const float* weights, int64_t heads, float scale, int64_t count, float* out) = nullptr;
  /// Bit i: x[i] is at least `bound` or NaN. count ≤ 32.
  uint32_t (*at_least)(const float* x, int64_t count, float bound) = nullptr;
  /// out = Σ_j softmax_j(gates[j] + ape[j]) · keys[j], channel by channel.
  void (*pool)(const float* const* keys, const float* const* gates, const float* ape, int64_t tokens, int64_t count, float* out) = nullptr;
  /// Rotates x[d], x[d + half] by the angles: x·cos − y·sin, y·cos + x·sin.
  void (*rotate)(float* x, const float* cosine, const float* sine, int64_t half) = nullptr;
};

extern const AttentionIsa kAttentionScalar, kAttentionAvx2, kAttentionAvx512;

}  // namespace lathe::kernels::cpu
