#pragma once
// What the matrix-product files of the instruction-set levels offer to the code that drives them (panel.h). Plain C types: those files include no library.
//
// A panel is `width` rows of a weight matrix (two vectors), channel by channel. Lanes are output channels, so
//   - no sum runs across lanes: y[t, n] adds the channels in ascending order in one accumulator, whatever tile, row count or vector width computes it;
//   - weights are decoded once per panel and used by every row of x.

#include <cstddef>
#include <cstdint>

namespace lathe::kernels::cpu {

/// Decodes channels [0, channels) of `width` weight rows into a panel segment.
struct PackArgs {
  const char* const* rows = nullptr;  ///< [width], first byte of the segment; rows past the matrix repeat an existing one
  int64_t channels = 0;
  const float* row_scale = nullptr;   ///< null, or [width]: every element is multiplied by its row's factor (exact mode)
  void* out = nullptr;                ///< float [channels][width], or BF16 pairs [ceil(channels/2)][width][2], the odd one completed by 0
};
using PackFn = void (*)(const PackArgs& args);

/// total[r][n] (+)= scale[n] · Σ_c x[r][c] · panel[c][n] for `rows` rows of x.
struct TileArgs {
  const void* x = nullptr;            ///< float, or BF16 pairs
  int64_t x_stride = 0;               ///< 4-byte units from row to row
  const void* panel = nullptr;
  int64_t steps = 0;                  ///< channels, or pairs
  const float* scale = nullptr;       ///< null, or [width] (fast mode)
  float* total = nullptr;             ///< [rows][width]
  bool accumulate = false;            ///< add to total
};
using TileFn = void (*)(const TileArgs& args);

constexpr int kTileRowsMax = 12;
constexpr int kPanelWidthMax = 32;

/// One level.
struct MatmulIsa {
  int width = 0;                        ///< rows of a panel
  int tile_rows = 0;                    ///< largest tile
  PackFn pack_f32 = nullptr;            ///< to float
  PackFn pack_bf16 = nullptr;
  PackFn pack_f16 = nullptr;
  PackFn pack_f8 = nullptr;
  const TileFn* tile = nullptr;         ///< [tile_rows + 1], by rows
  /// out[i] = x[i] rounded to BF16, as float.
  void (*round_bf16)(const float* x, int64_t count, float* out) = nullptr;
  /// out[i] = x[i] as BF16.
  void (*to_bf16)(const float* x, int64_t count, uint16_t* out) = nullptr;
  /// a[i] += b[i].
  void (*add)(float* a, const float* b, int64_t count) = nullptr;
  /// out[i] = silu(min(gate[i], limit)) · clip(up[i], −limit, limit).
  void (*swiglu)(const float* gate, const float* up, float limit, int64_t count, float* out) = nullptr;
};

/// Products of BF16 pairs, for panels of the same width.
struct PairIsa {
  PackFn pack_bf16 = nullptr;
  PackFn pack_f8 = nullptr;
  const TileFn* tile = nullptr;  ///< [tile_rows + 1], by rows
};

extern const MatmulIsa kMatmulScalar, kMatmulAvx2, kMatmulAvx512;
extern const PairIsa kPairsAvx512Bf16;

}  // namespace lathe::kernels::cpu
