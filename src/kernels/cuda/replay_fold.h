#pragma once
// The fold of replay for heads of 128 x 128, by 128 threads: a thread has four columns and every fourth group of eight rows. Included by .cu files only.

#include "kernels/cuda/kda_tile.h"
#include "kernels/cuda/kept.h"

namespace lathe::kernels::cuda {

inline constexpr int kReplayThreads = 128;
inline constexpr int kRowLanes = 4;  ///< lanes of a warp that share their columns
__device__ __forceinline__ int row_lane() { return (static_cast<int>(threadIdx.x) & 31) / 8; }
__device__ __forceinline__ int first_column() { return static_cast<int>(threadIdx.x) / 32 * 32 + static_cast<int>(threadIdx.x) % 8 * 4; }

__device__ __forceinline__ float rounded_to(const float*, float value) { return value; }
__device__ __forceinline__ float rounded_to(const uint16_t*, float value) { return round_bf16(value); }
__device__ __forceinline__ void store_entry(float* at, float value) { *at = value; }
__device__ __forceinline__ void store_entry(uint16_t* at, float value) { *at = bf16_bits(value); }

/// Four neighbours of a ring row as they were loaded: what turns them into numbers would wait for them.
template <class T>
struct Raw;
template <>
struct Raw<float> {
  float4 bits;
  __device__ __forceinline__ void load(const float* at) { bits = four_of(at); }
  __device__ __forceinline__ float4 value() const { return bits; }
};
template <>
struct Raw<uint16_t> {
  uint2 bits;
  __device__ __forceinline__ void load(const uint16_t* at) { bits = *reinterpret_cast<const uint2*>(at); }
  __device__ __forceinline__ float4 value() const {
    return make_float4(__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xFFFF0000u), __uint_as_float(bits.y << 16),
                       __uint_as_float(bits.y & 0xFFFF0000u));
  }
};

/// Ring rows of one head: `count` from row `first` on, around at `rows`. f32 or bf16.
template <class Key, class Value>
struct Entries {
  const Key* keys;
  const Value* values;
  int key_row, value_row;
  int first, count, rows;
};

/// What the fold makes of kRows rows of a head's state, to which state, decay and keys belong. decay: loss and growth of each key channel, in shared memory.
template <Kept kKept, class Key, class Value, int kRows = kKeys>
struct Folded {
  const void* state;
  float scale[4];  ///< of codes
  bool zero;       ///< there is no state yet
  const float2* decay;
  Entries<Key, Value> entries;

  static constexpr int kTogether = 8;  // rows

  /// Calls sink(row, four columns) for this thread's part of the state after the fold.
  template <class Sink>
  __device__ __forceinline__ void operator()(const Sink& sink) const {
#pragma unroll 1
    for (int group = 0; group < kRows / kRowLanes / kTogether; ++group) rows_of(kTogether * (row_lane() + kRowLanes * group), sink);
  }

 private:
  template <class Sink>
  __device__ __forceinline__ void rows_of(int row, const Sink& sink) const {
    const int column = first_column();
    float sum[kTogether][4] = {};
    int at = entries.first;
#pragma unroll 2
    for (int i = 0; i < entries.count; ++i) {
      const float4 low = four_of(entries.keys + at * entries.key_row + row), high = four_of(entries.keys + at * entries.key_row + row + 4);
      const float4 u = four_of(entries.values + at * entries.value_row + column);
      const float k[kTogether] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (int q = 0; q < kTogether; ++q) {
        sum[q][0] = fmaf(k[q], u.x, sum[q][0]), sum[q][1] = fmaf(k[q], u.y, sum[q][1]);
        sum[q][2] = fmaf(k[q], u.z, sum[q][2]), sum[q][3] = fmaf(k[q], u.w, sum[q][3]);
      }
      if (++at == entries.rows) at = 0;
    }
#pragma unroll
    for (int q = 0; q < kTogether; ++q) {
      float4 s = make_float4(0, 0, 0, 0);
      if (!zero) s = four_kept<kKept>(state, (row + q) * kValues + column);
      if (kKept == Kept::kI8) s.x *= scale[0], s.y *= scale[1], s.z *= scale[2], s.w *= scale[3];
      if (entries.count > 0) {
        const float2 d = decay[row + q];
        s.x = fmaf(d.y, sum[q][0], fmaf(d.x, s.x, s.x)), s.y = fmaf(d.y, sum[q][1], fmaf(d.x, s.y, s.y));
        s.z = fmaf(d.y, sum[q][2], fmaf(d.x, s.z, s.z)), s.w = fmaf(d.y, sum[q][3], fmaf(d.x, s.w, s.w));
      }
      sink(row + q, s);
    }
  }
};

/// Rounds what `rows` gives to a state at `to`; scale: those of this thread's columns, if there are codes.
template <Kept kKept, class Rows>
__device__ __forceinline__ void keep_rows(void* to, float* scale, const Rows& rows) {
  const int column = first_column();
  float inverse[4] = {};
  if constexpr (kKept == Kept::kI8) {
    unsigned most[4] = {};
    rows([&](int, float4 v) {
      most[0] = max(most[0], magnitude_bits(v.x)), most[1] = max(most[1], magnitude_bits(v.y));
      most[2] = max(most[2], magnitude_bits(v.z)), most[3] = max(most[3], magnitude_bits(v.w));
    });
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      for (int mask = 8; mask < 32; mask <<= 1) most[j] = max(most[j], __shfl_xor_sync(0xFFFFFFFFu, most[j], mask));
      const CodeScale code = code_scale(most[j], 127.0f);
      scale[j] = code.scale, inverse[j] = code.inverse;
    }
  }
  rows([&](int row, float4 v) { keep_four<kKept>(to, row * kValues + column, v, inverse); });
}

}  // namespace lathe::kernels::cuda
