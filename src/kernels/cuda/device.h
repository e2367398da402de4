#pragma once
// Small device functions that several kernel files need.

#include "kernels/cuda/args.h"
#include "kernels/cuda/platform.h"

namespace lathe::kernels::cuda {

__device__ __forceinline__ float bf16_value(uint16_t bits) { return __uint_as_float(static_cast<unsigned>(bits) << 16); }
/// Nearest even; NaN stays NaN.
__device__ __forceinline__ uint16_t bf16_bits(float value) {
  const unsigned bits = __float_as_uint(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}
__device__ __forceinline__ float round_bf16(float value) { return bf16_value(bf16_bits(value)); }
/// E4M3: the bits moved to where f32 has exponent and mantissa, times 2^120 (subnormals come out right).
__device__ __forceinline__ float f8_value(uint8_t bits) {
  const unsigned magnitude = bits & 0x7Fu;
  const float value = magnitude == 0x7Fu ? __uint_as_float(0x7FC00000u) : __uint_as_float(magnitude << 20) * 0x1p120f;
  return (bits & 0x80u) != 0 ? -value : value;
}
__device__ __forceinline__ float f16_value(uint16_t bits) {
  const unsigned magnitude = bits & 0x7FFFu;
  float value = __uint_as_float(magnitude << 13) * 0x1p112f;
  if (magnitude >= 0x7C00u) value = __uint_as_float(0x7F800000u | (magnitude & 0x3FFu) << 13);
  return (bits & 0x8000u) != 0 ? -value : value;
}
__device__ __forceinline__ float element(const void* data, Type type, int64_t i) {
  switch (type) {
    case Type::kF32: return static_cast<const float*>(data)[i];
    case Type::kBF16: return bf16_value(static_cast<const uint16_t*>(data)[i]);
    case Type::kF16: return f16_value(static_cast<const uint16_t*>(data)[i]);
    case Type::kF8: return f8_value(static_cast<const uint8_t*>(data)[i]);
    case Type::kI8: return static_cast<float>(static_cast<const int8_t*>(data)[i]);
  }
  return 0;
}
__device__ __forceinline__ float element(const Vector& v, int64_t i) { return element(v.data, v.type, i); }
__device__ __forceinline__ void store(void* data, Type type, int64_t i, float value) {
  if (type == Type::kF32) {
    static_cast<float*>(data)[i] = value;
  } else {
    static_cast<uint16_t*>(data)[i] = bf16_bits(value);
  }
}
/// Scale of element (r, c) of a matrix.
__device__ __forceinline__ float scale_of(const Matrix& m, const float* scales, int64_t r, int64_t c) {
  return scales[(r + m.row_offset) / m.block_rows * m.scale_stride + (c + m.col_offset) / m.block_cols];
}
/// Element (r, c) as it enters a product, scale included. narrow: values wider than BF16 are rounded to it.
__device__ __forceinline__ float weight_at(const Matrix& m, const void* values, const float* scales, int64_t r, int64_t c, bool narrow) {
  float value = element(values, m.type, r * m.stride + c);
  if (narrow && (m.type == Type::kF32 || m.type == Type::kF16)) value = round_bf16(value);
  return scales != nullptr ? value * scale_of(m, scales, r, c) : value;
}

template <class T>
__device__ __forceinline__ T warp_sum(T value) {
  for (int mask = 16; mask > 0; mask >>= 1) value += __shfl_xor_sync(0xFFFFFFFFu, value, mask);
  return value;
}
/// Sum over the block, in all threads; the block has whole warps, at most 32. The order of additions depends on the block size alone.
template <class T>
__device__ T block_sum(T value) {
  __shared__ T parts[32];
  const int warps = static_cast<int>(blockDim.x) / 32;
  value = warp_sum(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  T sum = parts[0];
  for (int w = 1; w < warps; ++w) sum += parts[w];
  return sum;
}

__device__ __forceinline__ double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
__device__ __forceinline__ float swiglu_value(float gate, float up, float limit) {
  const double g = gate > limit ? limit : gate;
  const double u = up < -limit ? -limit : (up > limit ? limit : up);
  return static_cast<float>(g / (1.0 + exp(-g)) * u);
}

/// The larger number; a NaN is left out.
__device__ __forceinline__ float larger(float a, float b) { return b > a ? b : a; }

/// The sequence that row t belongs to: the last one that begins at or before t and is not empty.
__device__ __forceinline__ int sequence_of(const Batch& batch, int t) {
  int low = 0;
  int high = batch.sequences;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (batch.begin[middle] <= t) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}
__device__ __forceinline__ int position_of(const Batch& batch, int s, int t) { return batch.start[s] + t - batch.begin[s]; }
/// Where row `row` of sequence s lies in the pool.
__device__ __forceinline__ int64_t page_row(const Pages& pages, int s, int64_t row) {
  return pages.table[s * pages.table_stride + row / pages.block_rows] * pages.block_rows + row % pages.block_rows;
}
__device__ __forceinline__ int64_t page_offset(const Pages& pages, int s, int64_t row) { return page_row(pages, s, row) * pages.row_stride; }
/// A value of a row of the pool.
__device__ __forceinline__ float page_value(const Pages& pages, int64_t row, int c) {
  const float value = element(pages.pool, pages.type, row * pages.row_stride + c);
  return pages.scales != nullptr ? value * pages.scales[row * pages.scale_stride + c / 128] : value;
}
/// f32 as an unsigned number in the same order; NaN is below everything, −0 equals 0.
__device__ __forceinline__ unsigned order_key(float value) {
  if (value != value) return 0;
  const unsigned bits = __float_as_uint(value == 0.0f ? 0.0f : value);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// Four neighbours, aligned to their size.
__device__ __forceinline__ float4 four_of(const float* at) { return *reinterpret_cast<const float4*>(at); }
__device__ __forceinline__ float4 four_of(const uint16_t* at) {
  const uint2 v = *reinterpret_cast<const uint2*>(at);
  return make_float4(__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xFFFF0000u), __uint_as_float(v.y << 16), __uint_as_float(v.y & 0xFFFF0000u));
}

inline unsigned blocks_for(int64_t count, int64_t per_block) { return static_cast<unsigned>((count + per_block - 1) / per_block); }

}  // namespace lathe::kernels::cuda
