#pragma once
// The fold of replay for heads of 128 x 128, by 128 threads; and where they are in a state. Included by .cu files only.

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

/// Elements k and k + 1 of a column of entries as operands: bf16 numbers, or what is left of f32 numbers after those taken before.
template <class T>
struct Pair;
template <>
struct Pair<uint16_t> {
  static constexpr int kParts = 1;
  unsigned both;
  __device__ __forceinline__ void set(uint16_t low, uint16_t high) { both = low | static_cast<unsigned>(high) << 16; }
  __device__ __forceinline__ unsigned take() const { return both; }
};
template <>
struct Pair<float> {
  static constexpr int kParts = 3;
  float low, high;
  __device__ __forceinline__ void set(float l, float h) { low = l, high = h; }
  __device__ __forceinline__ unsigned take() { return take_bf16(low, high); }
};

/// What the fold makes of kRows rows of a head's state, to which state, decay and keys belong. decay: loss and growth of each key channel, in shared memory.
/// The sum over entries is a product on the tensor cores, 16 entries at a time, f32 numbers as three of bf16 (their products from 2^-24 on are left out).
template <Kept kKept, class Key, class Value, int kRows = kKeys>
struct Folded {
  const void* state;
  const float* scales;  ///< of codes, of each column, in shared memory
  bool zero;            ///< there is no state yet
  const float2* decay;
  Entries<Key, Value> entries;

  static constexpr int kTiles = 8;  ///< products of eight columns: half of a row

  /// Calls sink(n, row, column, values) for this thread's part of the state after the fold, four neighbours at a time: those of the n-th 16 columns from
  /// `first` on; and done(first) after all of these.
  template <class Sink, class Done>
  __device__ __forceinline__ void operator()(const Sink& sink, const Done& done) const {
    const int lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll 1
    for (int job = static_cast<int>(threadIdx.x) / 32; job < kRows / 8; job += kReplayThreads / 32) {
      const int first_row = job / 2 * 16, first_column = job % 2 * 64;
      float sums[kTiles][4] = {};
#pragma unroll 1
      for (int first = 0; first < entries.count; first += 16) add_entries(first, first_row, first_column, sums);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first_row + lane / 4 + 8 * half;
        const float2 d = decay[row];
#pragma unroll
        for (int n = 0; n < kTiles / 2; ++n) {
          const int column = first_column + 16 * n + lane % 4 * 4;
          float4 s = make_float4(0, 0, 0, 0);
          if (!zero) s = four_kept<kKept>(state, row * kValues + column);
          if (kKept == Kept::kI8 && !zero) {
            const float4 scale = four_of(scales + column);
            s.x *= scale.x, s.y *= scale.y, s.z *= scale.z, s.w *= scale.w;
          }
          if (entries.count > 0) {
            const float* const low = sums[2 * n] + 2 * half;
            const float* const high = sums[2 * n + 1] + 2 * half;
            s.x = fmaf(d.y, low[0], fmaf(d.x, s.x, s.x)), s.y = fmaf(d.y, low[1], fmaf(d.x, s.y, s.y));
            s.z = fmaf(d.y, high[0], fmaf(d.x, s.z, s.z)), s.w = fmaf(d.y, high[1], fmaf(d.x, s.w, s.w));
          }
          sink(n, row, column, s);
        }
      }
      done(first_column);
    }
  }

 private:
  __device__ __forceinline__ int place(int i) const {
    return entries.first + i >= entries.rows ? entries.first + i - entries.rows : entries.first + i;
  }
  __device__ __forceinline__ Key key(int i, int row) const { return i < entries.count ? entries.keys[place(i) * entries.key_row + row] : Key{}; }
  __device__ __forceinline__ Value value(int i, int column) const {
    return i < entries.count ? entries.values[place(i) * entries.value_row + column] : Value{};
  }
  /// Entries first … first + 15, times 16 rows and 64 columns. Two products share 16 columns so that a thread's four results are neighbours.
  __device__ __forceinline__ void add_entries(int first, int first_row, int first_column, float (*sums)[4]) const {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    const int i = first + lane % 4 * 2;
    Pair<Key> keys[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const int row = first_row + lane / 4 + w % 2 * 8, entry = i + w / 2 * 8;
      keys[w].set(key(entry, row), key(entry + 1, row));
    }
    unsigned a[Pair<Key>::kParts][4];
#pragma unroll
    for (int part = 0; part < Pair<Key>::kParts; ++part) {
#pragma unroll
      for (int w = 0; w < 4; ++w) a[part][w] = keys[w].take();
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const int column = first_column + n / 2 * 16 + lane / 8 * 4 + lane / 4 % 2 + n % 2 * 2;
      Pair<Value> values[2];
#pragma unroll
      for (int w = 0; w < 2; ++w) values[w].set(value(i + 8 * w, column), value(i + 8 * w + 1, column));
#pragma unroll
      for (int part = 0; part < Pair<Value>::kParts; ++part) {
        const unsigned b[2] = {values[0].take(), values[1].take()};
#pragma unroll
        for (int other = 0; other < Pair<Key>::kParts; ++other) {
          if (part + other < 3) mma_bf16(sums[n], a[other], b);
        }
      }
    }
  }
};

/// Rounds what `rows` gives to a state at `to`. most, scales: of kI8, a number for each column in shared memory; most begins as zeros. All threads.
template <Kept kKept, class Rows>
__device__ __forceinline__ void keep_rows(void* to, unsigned* most, float* scales, const Rows& rows) {
  constexpr int kFours = Rows::kTiles / 2;
  if constexpr (kKept == Kept::kI8) {
    unsigned mine[kFours][4] = {};
    const auto largest = [&](int n, int, int, float4 v) {
      mine[n][0] = max(mine[n][0], magnitude_bits(v.x)), mine[n][1] = max(mine[n][1], magnitude_bits(v.y));
      mine[n][2] = max(mine[n][2], magnitude_bits(v.z)), mine[n][3] = max(mine[n][3], magnitude_bits(v.w));
    };
    rows(largest, [&](int first) {
      const int lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll
      for (int n = 0; n < kFours; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          for (int mask = 4; mask < 32; mask <<= 1) mine[n][i] = max(mine[n][i], __shfl_xor_sync(0xFFFFFFFFu, mine[n][i], mask));
          if (lane < 4) atomicMax(most + first + 16 * n + lane * 4 + i, mine[n][i]);
          mine[n][i] = 0;
        }
      }
    });
    __syncthreads();
    const CodeScale code = code_scale(most[threadIdx.x], 127.0f);
    most[threadIdx.x] = __float_as_uint(code.inverse);
    __syncthreads();
    const auto keep = [&](int, int row, int column, float4 v) {
      const float4 inverse = four_of(reinterpret_cast<const float*>(most) + column);
      const float by[4] = {inverse.x, inverse.y, inverse.z, inverse.w};
      keep_four<kKept>(to, row * kValues + column, v, by);
    };
    rows(keep, [](int) {});
    __syncthreads();
    scales[threadIdx.x] = code.scale;
  } else {
    rows([&](int, int row, int column, float4 v) { keep_four<kKept>(to, row * kValues + column, v, nullptr); }, [](int) {});
  }
}

}  // namespace lathe::kernels::cuda
