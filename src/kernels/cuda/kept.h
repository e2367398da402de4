#pragma once
// KDA states as they are kept: f32, f16, or codes of 8 bits with a scale for each column (docs/formats.md). Included by .cu files only.

#include "kernels/cuda/replay_args.h"
#include "kernels/cuda/tensor_core.h"

namespace lathe::kernels::cuda {

__host__ __device__ constexpr int kept_bytes(Kept kept) { return kept == Kept::kF32 ? 4 : kept == Kept::kF16 ? 2 : 1; }

/// Four neighbours, aligned to their size; of kI8 the codes.
template <Kept kKept>
__device__ __forceinline__ float4 four_kept(const void* data, int64_t at) {
  if constexpr (kKept == Kept::kF32) {
    return four_of(static_cast<const float*>(data) + at);
  } else if constexpr (kKept == Kept::kF16) {
    const uint2 v = *reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(data) + at);
    float4 out;
    f16_pair(v.x, out.x, out.y), f16_pair(v.y, out.z, out.w);
    return out;
  } else {
    const unsigned four = *reinterpret_cast<const unsigned*>(static_cast<const int8_t*>(data) + at);
#ifdef LATHE_CUDA_EMULATED
    const auto code = [four](int i) { return static_cast<float>(static_cast<int8_t>(four >> 8 * i & 0xFFu)); };
    return make_float4(code(0), code(1), code(2), code(3));
#else
    // The byte as the lowest of 2^23 + 128 + code: faster than the hardware's conversion of integers.
    const unsigned moved = four ^ 0x80808080u;
    const auto code = [moved](unsigned i) { return __uint_as_float(__byte_perm(moved, 0x4B000000u, 0x7440u + i)) - 8388736.0f; };
    return make_float4(code(0), code(1), code(2), code(3));
#endif
  }
}
__device__ __forceinline__ float kept_value(const void* data, Kept kept, int64_t at) {
  if (kept == Kept::kF32) return static_cast<const float*>(data)[at];
  if (kept == Kept::kF16) return f16_value(static_cast<const uint16_t*>(data)[at]);
  return static_cast<float>(static_cast<const int8_t*>(data)[at]);
}

__device__ __forceinline__ float saturated_f16(float value) {
  const float magnitude = fabsf(value);
  return magnitude > 65504.0f && magnitude < INFINITY ? copysignf(65504.0f, value) : value;
}
/// Magnitudes as unsigned numbers, so that the largest of several is NaN if one is.
__device__ __forceinline__ unsigned magnitude_bits(float value) { return __float_as_uint(value) & 0x7FFFFFFFu; }
/// Scale of the codes of values up to `most`, and what turns a value into its code (tensor/quantised.h).
struct CodeScale {
  float scale, inverse;
};
__device__ __forceinline__ CodeScale code_scale(unsigned most, float largest_code) {
  if (most >= 0x7F800000u) return {__uint_as_float(0x7FC00000u), 0.0f};
  const float amax = __uint_as_float(most);
  if (amax < 0x1p-100f) return {0.0f, 0.0f};
  return {amax / largest_code, largest_code / amax};
}
__device__ __forceinline__ int code_of(float value, float inverse) {
  if (inverse == 0.0f) return 0;
  const float code = rintf(value * inverse);
  return static_cast<int>(code > 127.0f ? 127.0f : (code < -127.0f ? -127.0f : code));
}

/// E4M3, nearest even, saturated.
__device__ __forceinline__ unsigned f8_bits(float value) {
  const unsigned sign = __float_as_uint(value) >> 24 & 0x80u;
  if (value != value) return sign | 0x7Fu;
  const float magnitude = fabsf(value) < 448.0f ? fabsf(value) : 448.0f;
  if (magnitude < 0x1p-6f) return sign | static_cast<unsigned>(rintf(magnitude * 0x1p9f));
  const unsigned bits = __float_as_uint(magnitude);
  const unsigned code = (bits + 0x7FFFFu + (bits >> 20 & 1u) - (120u << 23)) >> 20;
  return sign | (code < 0x7Eu ? code : 0x7Eu);
}

/// Stores four neighbours (codes: by `inverse` of each) and returns what was stored (codes: without their scale).
template <Kept kKept>
__device__ __forceinline__ float4 keep_four(void* data, int64_t at, float4 v, const float* inverse) {
  if constexpr (kKept == Kept::kF32) {
    *reinterpret_cast<float4*>(static_cast<float*>(data) + at) = v;
    return v;
  } else if constexpr (kKept == Kept::kF16) {
    const uint2 both = {pack_f16(saturated_f16(v.x), saturated_f16(v.y)), pack_f16(saturated_f16(v.z), saturated_f16(v.w))};
    *reinterpret_cast<uint2*>(static_cast<uint16_t*>(data) + at) = both;
    float4 out;
    f16_pair(both.x, out.x, out.y), f16_pair(both.y, out.z, out.w);
    return out;
  } else {
    const int code[4] = {code_of(v.x, inverse[0]), code_of(v.y, inverse[1]), code_of(v.z, inverse[2]), code_of(v.w, inverse[3])};
    unsigned four = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) four |= (static_cast<unsigned>(code[i]) & 0xFFu) << 8 * i;
    *reinterpret_cast<unsigned*>(static_cast<int8_t*>(data) + at) = four;
    return make_float4(static_cast<float>(code[0]), static_cast<float>(code[1]), static_cast<float>(code[2]), static_cast<float>(code[3]));
  }
}

/// One thread: a column of `keys` values, `step` apart in `column`, to where its first is kept, `width` elements apart; `column` gets what was kept.
__device__ __forceinline__ void keep_column(float* column, int step, int keys, int width, const StatePool& pool, int64_t at, float* scale_at) {
  CodeScale code{1.0f, 1.0f};
  if (pool.kept == Kept::kI8) {
    unsigned most = 0;
    for (int c = 0; c < keys; ++c) most = max(most, magnitude_bits(column[c * step]));
    code = code_scale(most, 127.0f);
    if (scale_at != nullptr) *scale_at = code.scale;
  }
  for (int c = 0; c < keys; ++c) {
    float& value = column[c * step];
    const int64_t to = at + static_cast<int64_t>(c) * width;
    if (pool.kept == Kept::kI8) {
      const int found = code_of(value, code.inverse);
      if (pool.data != nullptr) static_cast<int8_t*>(pool.data)[to] = static_cast<int8_t>(found);
      value = static_cast<float>(found) * code.scale;
    } else if (pool.kept == Kept::kF16) {
      const auto bits = static_cast<uint16_t>(pack_f16(saturated_f16(value), 0.0f));
      if (pool.data != nullptr) static_cast<uint16_t*>(pool.data)[to] = bits;
      value = f16_value(bits);
    } else if (pool.data != nullptr) {
      static_cast<float*>(pool.data)[to] = value;
    }
  }
}

}  // namespace lathe::kernels::cuda
