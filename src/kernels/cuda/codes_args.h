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
  const int8_t* x;  ///< [tokens, x_stride], zeros behind cols
  int64_t x_stride;
  const float* x_scales;  ///< [tokens]
  int32_t tokens, cols;
};
/// Rows of x as codes: [tokens, stride] with zeros from cols to stride. amax: null, or the largest magnitude of each whole row.
struct ToCodesArgs {
  Rows x;
  const float* amax;
  int8_t* codes;
  int64_t stride;
  float* scales;
  int32_t* counters;  ///< set to zero
  int32_t tokens, cols, counter_count;
};
inline int64_t codes_stride(int64_t cols) { return (cols + 127) / 128 * 128; }
void launch_to_codes(const ToCodesArgs& args, void* stream);
/// Any sizes.
void launch_codes_plain(const CodesArgs& args, void* stream);
/// Rows of weights of 16 bytes, aligned. Counters: zero, codes_counters of them; partial: codes_partial_bytes.
void launch_codes_wgmma(const CodesArgs& args, int32_t* counters, int32_t* partial, void* stream);
int32_t codes_counters(const CodesArgs& args);
int64_t codes_partial_bytes(const CodesArgs& args);

}  // namespace lathe::kernels::cuda
