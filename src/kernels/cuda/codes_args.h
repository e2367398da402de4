#pragma once
// Products of INT8 codes on both sides (docs/formats.md); see args.h.

#include "kernels/cuda/args.h"

namespace lathe::kernels::cuda {

/// One matrix of a launch.
struct CodesPart {
  const int8_t* weight;  ///< [rows, cols]
  int64_t stride;
  const float* scales;  ///< of each row
  int64_t scale_stride;
  Vector bias;
  void* y;  ///< f32 [tokens, rows]; i32, sums alone, if `integers`
  int64_t y_stride;
  int32_t rows;
  bool integers;
};
struct CodesArgs {
  CodesPart parts[kProductPartsMax];
  int32_t count;
  const int8_t* x;  ///< by ToCodesArgs
  int32_t x_rows;
  const float* x_scales;  ///< [tokens]
  int32_t tokens, cols;
};
/// Rows of x as codes in the order in which they flow: for each 128 channels all rows, the 16-byte pieces of row t in the order i ^ (t mod 8); zeros from cols
/// on. amax: null, or the largest magnitude of each whole row.
struct ToCodesArgs {
  Rows x;
  const float* amax;
  int8_t* codes;  ///< [chunks, rows, 128]
  int32_t rows;   ///< codes_rows(tokens); those behind tokens are not written
  float* scales;
  int32_t* counters;  ///< set to zero
  int32_t tokens, cols, counter_count;
};
inline constexpr int kCodesChunk = 128;
/// Tokens of a tile: 8, 16, … 256.
inline int32_t codes_tile(int32_t tokens) {
  int32_t most = 8;
  while (most < tokens && most < 256) most *= 2;
  return most;
}
inline int32_t codes_rows(int32_t tokens) {
  const int32_t tile = codes_tile(tokens);
  return (tokens + tile - 1) / tile * tile;
}
inline int32_t codes_chunks(int32_t cols) { return (cols + kCodesChunk - 1) / kCodesChunk; }
inline int64_t codes_bytes(int32_t tokens, int32_t cols) { return int64_t{codes_rows(tokens)} * codes_chunks(cols) * kCodesChunk; }
void launch_to_codes(const ToCodesArgs& args, void* stream);
/// Any sizes.
void launch_codes_plain(const CodesArgs& args, void* stream);
/// Rows of weights of 16 bytes, aligned. Counters: zero, codes_counters of them; partial: codes_partial_bytes.
void launch_codes_wgmma(const CodesArgs& args, int32_t* counters, int32_t* partial, void* stream);
int32_t codes_counters(const CodesArgs& args);
int64_t codes_partial_bytes(const CodesArgs& args);

/// Rows as ToCodesArgs makes them.
struct CodesRows {
  int8_t* codes;
  float* scales;
  int32_t rows;  ///< that there is room for
};
/// INT8 experts: launch_moe with x, and the inner activations of all pairs, as codes made in memory of the caller.
void launch_moe_codes(const MoeArgs& args, const ExpertTable& table, const CodesRows& x, const CodesRows& hidden, void* stream);

}  // namespace lathe::kernels::cuda
