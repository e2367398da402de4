#pragma once
// What the matrix-product files of the instruction-set levels offer to the code that drives them (panel.h). Plain C types: those files include no library.
//
// A panel is 2·kLanes rows of a weight matrix, as two groups of four vectors. A vector holds 16 bytes (a step: 4 floats or 8 BF16) of several rows, one in
// each 128-bit part: part q of vector i belongs to row 4q + i of the group. So
//   - packing moves 16-byte pieces and converts, nothing is transposed;
//   - the rows of x are used as they lie: 16 bytes of a row, repeated in every part;
//   - an output is the sum of the four lanes of one part. The order of its additions does not depend on tile, row count or vector width.

#include <cstddef>
#include <cstdint>

namespace lathe::kernels::cpu {

/// Decodes channels [0, channels) of a panel's rows into [group][step][vector], the last step completed by zeros.
struct PackArgs {
  const char* const* rows = nullptr;  ///< [width], first byte of the segment; rows past the matrix repeat an existing one
  int64_t channels = 0;
  const float* scale = nullptr;  ///< null, or [width][4]-expanded factors (load_scales in panel.h): every element times its row's factor (exact mode)
  int64_t prefetch = 0;          ///< bytes from an element to the one that will be wanted next
  void* out = nullptr;
};
using PackFn = void (*)(const PackArgs& args);

/// One segment of `rows` outputs rows of x: lanes (+)= Σ over steps of x · panel.
struct TileArgs {
  const char* x = nullptr;  ///< first channel of the segment in the first row: float or BF16
  int64_t x_stride = 0;     ///< bytes from row to row
  const void* panel = nullptr;
  int64_t channels = 0;
  const float* scale = nullptr;  ///< null, or expanded factors: lanes = Σ · scale + lanes (fast mode); null: the sum goes on in the lanes
  float* lanes = nullptr;        ///< [group][rows][4][kLanes]: kept between the segments of a leaf
  float* total = nullptr;        ///< [rows][width]: the leaf's sums, after its last segment
  bool first = false;            ///< first segment of the leaf
  bool last = false;             ///< last segment of the leaf
  const char* ask = nullptr;     ///< lines that `tile_asking` asks for on the way, kAskedBytes a step and group
};
constexpr int64_t kAskedBytes = 128;
using TileFn = void (*)(const TileArgs& args);

/// Leaves of a panel, in one walk over its rows, times a few rows of x, straight from the weights: same bits as pack and tile. Every segment is a multiple
/// of 16 bytes.
struct DirectArgs {
  const char* weights = nullptr;  ///< first channel in the panel's first row
  int64_t row_bytes = 0;          ///< from row to row
  int64_t present = 0;            ///< rows of the panel that the matrix has, at least 1
  int64_t bytes = 0;              ///< of the channels in a row
  int64_t leaf = 0;               ///< bytes of a leaf in a row; the last one ends with `bytes`
  int64_t turn = 0;               ///< bytes before this one: the line to ask for lies `ahead` of it; the others: `wrap`
  int64_t ahead = 0;
  int64_t wrap = 0;
  const float* scales = nullptr;  ///< null, or one factor per block along the row, the same for all rows of the panel
  int64_t first_block = 0;        ///< bytes in the first block
  int64_t block = 0;              ///< bytes of a block
  const char* x = nullptr;        ///< first channel in the first row of x
  int64_t x_stride = 0;
  float* total = nullptr;    ///< [leaves][…][rows][width]: the sums of each leaf
  int64_t total_stride = 0;  ///< from leaf to leaf
};
using DirectFn = void (*)(const DirectArgs& args);

constexpr int kPanelWidthMax = 32;
constexpr int kDirectRowsMax = 6;

/// One level.
struct MatmulIsa {
  int width = 0;              ///< rows of a panel
  int tile_rows = 0;          ///< largest tile
  int direct_rows = 0;        ///< most rows that a product in floats takes without packing
  PackFn pack_f32 = nullptr;  ///< to float
  PackFn pack_bf16 = nullptr;
  PackFn pack_f16 = nullptr;
  PackFn pack_f8 = nullptr;
  PackFn pack_i8 = nullptr;
  PackFn pack_f32_rounded = nullptr;  ///< rounded to BF16 on the way
  PackFn pack_f16_rounded = nullptr;
  const TileFn* tile = nullptr;         ///< [tile_rows + 1], by rows
  const TileFn* tile_asking = nullptr;  ///< the same with TileArgs::ask
  // [kDirectRowsMax + 1], by rows; null where the level has none.
  const DirectFn* direct_f32 = nullptr;
  const DirectFn* direct_bf16 = nullptr;
  const DirectFn* direct_f16 = nullptr;
  const DirectFn* direct_f8 = nullptr;
  const DirectFn* direct_f8_scaled = nullptr;  ///< every element times its factor (exact mode)
  const DirectFn* direct_f32_rounded = nullptr;
  const DirectFn* direct_f16_rounded = nullptr;
  /// out[i] = x[i] rounded to BF16, as float.
  void (*round_bf16)(const float* x, int64_t count, float* out) = nullptr;
  /// out[i] = x[i] as BF16.
  void (*to_bf16)(const float* x, int64_t count, uint16_t* out) = nullptr;
  /// out[i] = a[i] · factor.
  void (*scaled)(const float* a, float factor, int64_t count, float* out) = nullptr;
  /// a[i] += b[i].
  void (*add)(float* a, const float* b, int64_t count) = nullptr;
  /// out[i] = silu(min(gate[i], limit)) · clip(up[i], −limit, limit).
  void (*swiglu)(const float* gate, const float* up, float limit, int64_t count, float* out) = nullptr;
};

/// Products of BF16 pairs, for panels and tiles of the same size.
struct PairIsa {
  PackFn pack_bf16 = nullptr;
  PackFn pack_f8 = nullptr;
  const TileFn* tile = nullptr;         ///< [tile_rows + 1], by rows
  const TileFn* tile_asking = nullptr;  ///< the same with TileArgs::ask
  const DirectFn* direct_bf16 = nullptr;
  const DirectFn* direct_f8 = nullptr;
};

/// What an INT8 product's sums become: y = (f32(sum) · x_scale) · weight scale.
struct CodeScaleArgs {
  float* totals = nullptr;  ///< [width] in: int32 sums; out: y
  int32_t excess = 0;       ///< what every sum has too much
  float x_scale = 0;
  const float* scales = nullptr;  ///< [width]
};

/// Products of INT8 codes, for panels and tiles of the same size. Sums are exact int32 in the bits of the same vectors, so their order is free.
struct CodesIsa {
  int x_bytes = 0;            ///< of a code in a row of x: 1, or 2 where the instruction multiplies 16 bits
  int32_t weight_excess = 0;  ///< what a kernel adds to each weight code: 128 where the instruction takes them unsigned
  PackFn pack = nullptr;
  const TileFn* tile = nullptr;         ///< [tile_rows + 1], by rows
  const TileFn* tile_asking = nullptr;  ///< the same with TileArgs::ask
  const DirectFn* direct = nullptr;
  /// Largest |x|; NaN if one is NaN.
  float (*magnitude)(const float* x, int64_t count) = nullptr;
  /// Codes x · inverse, nearest even, at most ±127; returns their sum.
  int32_t (*to_codes)(const float* x, int64_t count, float inverse, void* out) = nullptr;
  void (*scale)(const CodeScaleArgs& args) = nullptr;
};

extern const CodesIsa kCodesScalar, kCodesAvx2, kCodesAvx512, kCodesAvx512Vnni;
extern const MatmulIsa kMatmulScalar, kMatmulAvx2, kMatmulAvx512;
extern const PairIsa kPairsAvx512Bf16;

}  // namespace lathe::kernels::cpu
