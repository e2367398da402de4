#include "tensor/quantised.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lathe::tensor {

float largest_magnitude(const float* x, int64_t n, int64_t step) {
  float most = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float magnitude = std::fabs(x[i * step]);
    if (std::isnan(magnitude)) return magnitude;
    most = std::max(most, magnitude);
  }
  return most;
}

RunScale run_scale(float amax, DType type) {
  LATHE_DCHECK(is_code(type), "codes of {}", dtype_name(type));
  if (!std::isfinite(amax)) return {.scale = std::numeric_limits<float>::quiet_NaN(), .inverse = 0};
  if (amax < kAmaxMin) return {};
  return {.scale = amax / code_max(type), .inverse = code_max(type) / amax};
}

void store_code(DType type, void* codes, int64_t index, float value, const RunScale& scale) {
  const float code = scale.inverse == 0 ? 0.0f : value * scale.inverse;
  if (type == DType::kI8) {
    static_cast<int8_t*>(codes)[index] = static_cast<int8_t>(std::clamp(std::nearbyint(code), -127.0f, 127.0f));
  } else {
    static_cast<uint8_t*>(codes)[index] = float_to_f8e4m3(code);
  }
}

void quantise_row(const float* x, int64_t width, DType type, void* codes, float* scales) {
  for (int64_t begin = 0; begin < width; begin += kRunValues) {
    const int64_t end = std::min(width, begin + kRunValues);
    const RunScale scale = run_scale(largest_magnitude(x + begin, end - begin), type);
    for (int64_t c = begin; c < end; ++c) store_code(type, codes, c, x[c], scale);
    scales[begin / kRunValues] = scale.scale;
  }
}

uint16_t float_to_f16_saturated(float value) { return float_to_f16(std::isfinite(value) ? std::clamp(value, -65504.0f, 65504.0f) : value); }

}  // namespace lathe::tensor
