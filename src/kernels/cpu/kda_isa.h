#pragma once
// What the Kimi-delta-attention files of the instruction-set levels offer to kda.cc and conv.cc. Plain C types.

#include <cstddef>
#include <cstdint>

namespace lathe::kernels::cpu {

/// Columns of a state that one piece of work keeps in the first-level cache: K · 64 floats are 32 KiB for K = 128.
constexpr int64_t kStateTile = 64;

enum class StateFormat : uint8_t { kZeros, kF32, kF16, kI8 };

/// Columns of a head's state where they are kept.
struct StateSource {
  StateFormat format = StateFormat::kZeros;
  const void* values = nullptr;   ///< [keys][stride]
  int64_t stride = 0;             ///< in elements
  const float* scales = nullptr;  ///< [width], i8 only
};

/// Where the state goes behind the last token.
enum class StateTarget : uint8_t {
  kTile,
  kF32,      ///< to `to`
  kF32Both,  ///< to both
  kF16,      ///< to `to`, rounded
  kF16Both,  ///< to `to`, rounded; the tile gets what was kept
};

/// Tokens of one head over `width` ≤ kStateTile columns of its state. Without a tile: one token over any width, from f32 to f32 or from f16 to f16.
struct StateArgs {
  StateSource from;       ///< state before the first token; may be the tile
  float* tile = nullptr;  ///< [keys][kStateTile], where it is between two sweeps
  StateTarget target = StateTarget::kTile;
  void* to = nullptr;     ///< [keys][to_stride]; may be where it came from
  int64_t to_stride = 0;  ///< in elements
  int64_t keys = 0;
  int64_t width = 0;
  int64_t tokens = 0;
  const float* prepared = nullptr;  ///< per token: q, k, expm1(g), each [keys] at distance `part`
  int64_t part = 0;
  int64_t prepared_stride = 0;  ///< from token to token
  const float* beta = nullptr;
  int64_t beta_stride = 0;
  const float* v = nullptr;  ///< null: zeros
  int64_t v_stride = 0;
  float* o = nullptr;  ///< null: not wanted
  int64_t o_stride = 0;
};

/// out[c] = silu(Σ_j weight[j · weight_stride + c] · rows[j][c]).
struct ConvArgs {
  const float* const* rows = nullptr;  ///< [taps]
  const float* weight = nullptr;
  int64_t weight_stride = 0;
  int64_t taps = 0;
  int64_t channels = 0;
  float* out = nullptr;
};

/// Columns of a head's state as they are kept, and as a tile of floats.
struct KeptArgs {
  void* kept = nullptr;     ///< [keys][kept_stride] of f16 or i8
  int64_t kept_stride = 0;  ///< in elements
  float* scales = nullptr;  ///< [width], i8 only
  float* tile = nullptr;    ///< [keys][tile_stride]
  int64_t tile_stride = 0;
  int64_t keys = 0;
  int64_t width = 0;
};

struct KdaIsa {
  void (*tokens)(const StateArgs& args) = nullptr;
  /// out = x · scale · rsqrt(Σx² + eps).
  void (*l2_norm)(const float* x, int64_t count, float scale, float eps, float* out) = nullptr;
  void (*expm1)(const float* x, int64_t count, float* out) = nullptr;
  void (*sigmoid)(const float* x, int64_t count, float* out) = nullptr;
  /// g = factor · σ(rate · (a + bias)).
  void (*gate_bounded)(const float* a, const float* bias, float rate, float factor, int64_t count, float* g) = nullptr;
  /// g = −rate · softplus(a + bias).
  void (*gate_unbounded)(const float* a, const float* bias, float rate, int64_t count, float* g) = nullptr;
  /// out = o · rsqrt(mean o² + eps) · weight · σ(gate).
  void (*gated_norm)(const float* o, const float* gate, const float* weight, float eps, int64_t count, float* out) = nullptr;
  void (*conv)(const ConvArgs& args) = nullptr;
  /// kept = tile, rounded; then tile = kept.
  void (*keep_f16)(const KeptArgs& args) = nullptr;
  void (*keep_i8)(const KeptArgs& args) = nullptr;
};

extern const KdaIsa kKdaScalar, kKdaAvx2, kKdaAvx512;

}  // namespace lathe::kernels::cpu
