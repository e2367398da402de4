#pragma once
// What the row files of the instruction-set levels offer to norms.cc, moves.cc and mhc.cc. Plain C types.

#include <cstddef>
#include <cstdint>

namespace lathe::kernels::cpu {

constexpr int64_t kStreamsMax = 8;

/// Coefficients of hyper-connections for kLanes tokens side by side: every array is [count][lanes].
struct MhcArgs {
  const float* m = nullptr;       ///< fn · f, [2S + S²][lanes]
  const float* factor = nullptr;  ///< rsqrt of the mean square, [lanes]
  const float* base = nullptr;    ///< [2S + S²]
  float scale[3] = {};
  float hc_eps = 0;
  int64_t streams = 0;
  int64_t iterations = 0;
  float* pre = nullptr;   ///< out [S][lanes]
  float* post = nullptr;  ///< out [S][lanes]
  float* comb = nullptr;  ///< out [S²][lanes]
};

struct RowIsa {
  int lanes = 0;
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t count, float* out) = nullptr;
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, int64_t count, float* out) = nullptr;
  void (*gelu)(const float* x, int64_t count, float* out) = nullptr;
  void (*add)(const float* a, const float* b, int64_t count, float* out) = nullptr;
  float (*sum_of_squares)(const float* x, int64_t count) = nullptr;
  void (*from_bf16)(const uint16_t* x, int64_t count, float* out) = nullptr;
  /// 8-bit codes (INT8, or E4M3 if `f8`) with a scale for each 128 of them, by tensor/quantised.h.
  void (*from_codes)(const void* codes, bool f8, const float* scales, int64_t count, float* out) = nullptr;
  void (*to_codes)(const float* x, int64_t count, bool f8, void* codes, float* scales) = nullptr;
  /// out = Σ_s weights[s] · rows[s].
  void (*combine)(const float* const* rows, const float* weights, int64_t streams, int64_t count, float* out) = nullptr;
  /// out[b] = post[b] · y + Σ_a comb[a · S + b] · rows[a]; out[b] may be rows[b].
  void (*spread)(const float* const* rows, const float* y, const float* post, const float* comb, int64_t streams, int64_t count,
                 float* const* out) = nullptr;
  void (*mhc)(const MhcArgs& args) = nullptr;
};

extern const RowIsa kRowScalar, kRowAvx2, kRowAvx512;

}  // namespace lathe::kernels::cpu
