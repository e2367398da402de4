#pragma once
// Runs of values as codes of 8 bits with one FP32 scale: value = code · scale. Activations, cache rows, INT8 states and the quantiser all follow this recipe.
//
// Bits     of codes and scales are the same in every kernel: each step below is one IEEE operation in f32.
//            amax    = max |x| of the run
//            scale   = amax / c, c = 127 (INT8) or 448 (E4M3)
//            code    = x · (c / amax), rounded to nearest even and saturated: to ±127, or to E4M3 (±448)
// Zeros    a run whose amax is below kAmaxMin has scale 0 and codes 0: no step meets a subnormal.
// NaN      a run with a NaN or an infinity has scale NaN and codes 0: all of it reads as NaN.

#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/view.h"

namespace lathe::tensor {

/// Values that share a scale in rows of activations (FP8) and of caches; the last run of a row may be shorter.
inline constexpr int64_t kRunValues = 128;
inline constexpr int64_t runs_of(int64_t width) { return (width + kRunValues - 1) / kRunValues; }

inline constexpr float kAmaxMin = 0x1p-100f;

constexpr bool is_code(DType type) { return type == DType::kI8 || type == DType::kF8E4M3; }
/// The largest code that quantising makes: 127 or 448.
constexpr float code_max(DType type) { return type == DType::kI8 ? 127.0f : 448.0f; }

/// Largest |x| of n values at distance `step`: 0 of none, NaN if one is NaN.
float largest_magnitude(const float* x, int64_t n, int64_t step = 1);

/// What turns values into codes and back.
struct RunScale {
  float scale = 0;    ///< value = code · scale
  float inverse = 0;  ///< code = value · inverse; 0: all codes are 0
};
RunScale run_scale(float amax, DType type);

/// Stores the code of `value` at `index`.
void store_code(DType type, void* codes, int64_t index, float value, const RunScale& scale);

/// One row: `width` codes, and a scale for each run of kRunValues of them.
void quantise_row(const float* x, int64_t width, DType type, void* codes, float* scales);

/// FP16 as states keep it: nearest even, finite values beyond ±65504 saturate; infinities and NaN stay.
uint16_t float_to_f16_saturated(float value);

}  // namespace lathe::tensor
