#pragma once
// Products y = x Wᵀ by clusters of eight blocks. Included by .cu files only.
//
// Work        A cluster goes over its tiles of 256 weight rows. A block has one segment (an eighth) of the input channels, its x as bf16 in shared memory for all
//             tiles, and four groups of four warps with 64 rows each, which multiply on the tensor cores (wgmma: weights from registers, x from shared memory).
// Weights     come through a ring in shared memory that flows on over the borders of tiles: a lane asks for 16 bytes of two rows and reads them itself.
// Sums        FP8: 128 channels on the tensor core, times their scale, added in order. A row's eight segments go to the block that owns it and are added in order.
//             So the bits of an output depend on its row of x and of W and on the number of channels alone.
// FP8 values  become bf16 times 2^-120 by moving bits (numbers below 2^-6 are subnormal there), x times 2^64, the scale times 2^56: exact, but a value of x beyond
//             2^63 counts as infinite.

#include "kernels/cuda/cluster.h"

namespace lathe::kernels::cuda {

constexpr int kClusterBlocks = 8;
constexpr int kClusterThreads = 512;
constexpr int kClusterRows = 256;
constexpr int kClusterScaleBlock = 128;

/// Chunks (16 rows x 64 bytes) that a warp has on their way.
template <int kTokens>
constexpr int kClusterRing = kTokens > 16 ? 4 : 8;
constexpr int kClusterWarps = kClusterThreads / 32;

__host__ __device__ constexpr int segment_channels(int cols) {
  return (cols + kClusterBlocks * kClusterScaleBlock - 1) / (kClusterBlocks * kClusterScaleBlock) * kClusterScaleBlock;
}
/// Tokens whose sums are exchanged at one time.
template <int kTokens>
constexpr int kExchanged = kTokens < 32 ? kTokens : 32;

/// Places in a block's shared memory, in bytes.
template <int kTokens>
struct ClusterPlaces {
  static constexpr int kPart = kClusterBlocks * 32 * kExchanged<kTokens> * 4;
  static constexpr int kScales = kClusterRing<kTokens> / 2 * kClusterWarps * 64;
  static constexpr int kRing = kClusterWarps * kClusterRing<kTokens> * 1024;
  static constexpr int kFixed = kPart + kScales + kRing;
};
template <int kTokens>
constexpr int64_t cluster_shared(int cols) {
  return ClusterPlaces<kTokens>::kFixed + int64_t{segment_channels(cols)} * kTokens * 2;
}

/// A weight row; without one `values` points anywhere.
struct LaneRow {
  const char* values;
  const float* scales;  ///< of its channel 0; null: none
  bool there;
};

/// Rows of x for a tile: token i is row first + i, or index[i] / divisor.
struct ClusterX {
  const float* x;
  int64_t stride;
  const int32_t* index;
  int divisor, first, count;
};

__device__ __forceinline__ unsigned pack_two(float low, float high) {
#ifdef LATHE_CUDA_EMULATED
  const auto bits = [](float v) {
    const unsigned u = __float_as_uint(v);
    return (u & 0x7FFFFFFFu) > 0x7F800000u ? (u >> 16) | 0x40u : (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
  };
  return bits(low) | bits(high) << 16;
#else
  unsigned out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
#endif
}

/// Four E4M3 as bf16 times 2^-120: bytes 0 and 2, bytes 1 and 3.
__device__ __forceinline__ void small_pairs(unsigned four, unsigned* even, unsigned* odd) {
  *even = ((four << 4) & 0x07F007F0u) | ((four << 8) & 0x80008000u);
  *odd = ((four >> 4) & 0x07F007F0u) | (four & 0x80008000u);
}

/// x of this block's channels [begin, end) into shared memory, in the order in which a lane's 16 bytes of a weight row meet the tensor core.
template <bool kFp8, int kTokens>
__device__ void stage_x(const ClusterX& from, int begin, int end, char* to) {
  constexpr int kEach = kFp8 ? 16 : 8;
  constexpr int kChunk = 4 * kEach;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int chunks = (end - begin + 2 * kChunk - 1) / (2 * kChunk) * 2;
  const bool aligned = from.stride % 4 == 0 && reinterpret_cast<uintptr_t>(from.x) % 16 == 0;
  for (int i = warp; i < chunks * (kTokens / 8); i += kClusterWarps) {
    const int chunk = i % chunks;
    const int eight = i / chunks;
    const int token = eight * 8 + lane / 4;
    const int at = begin + chunk * kChunk + lane % 4 * kEach;
    const bool there = token < from.count && at < end;
    const float* x = from.x;
    if (there) x += static_cast<int64_t>(from.index != nullptr ? from.index[token] / from.divisor : from.first + token) * from.stride + at;
#pragma unroll
    for (int j = 0; j < kEach / 4; ++j) {
      float4 v = make_float4(0, 0, 0, 0);
      if (there) v = aligned ? *reinterpret_cast<const float4*>(x + 4 * j) : make_float4(x[4 * j], x[4 * j + 1], x[4 * j + 2], x[4 * j + 3]);
      char* const place = to + (chunk * (kEach / 4) + j) * operand_bytes(kTokens) + eight * 256 + lane / 4 * 16 + lane % 4 * 4;
      constexpr float kUp = 0x1p64f;
      *reinterpret_cast<unsigned*>(place) = kFp8 ? pack_two(v.x * kUp, v.z * kUp) : pack_two(v.x, v.y);
      *reinterpret_cast<unsigned*>(place + 128) = kFp8 ? pack_two(v.y * kUp, v.w * kUp) : pack_two(v.z, v.w);
    }
  }
}

/// Where the two floats of column pair `pair` of local row r lie: rows shifted against each other, so that a column is read without conflicts.
template <int kWidth>
__device__ __forceinline__ int part_place(int r, int pair) {
  return r * kWidth + ((pair ^ (r * kWidth / 32)) & (kWidth / 2 - 1)) * 2;
}

/// Asks for a warp's weights, chunk after chunk and tile after tile.
template <bool kFp8, int kTokens, class Work>
struct WeightStream {
  static constexpr int kRing = kClusterRing<kTokens>;
  const Work& work;
  int unit, last, chunk, chunks;
  int begin, end, row;  ///< row: the lane's first of the tile
  int slot;
  char* ring;     ///< the lane's place in slot 0
  char* scales;   ///< the same
  LaneRow rows[2];

  __device__ __forceinline__ void rows_of_unit() {
    if (unit >= last) return;
    rows[0] = work.row(unit, row), rows[1] = work.row(unit, row + 8);
  }
  __device__ __forceinline__ void ask() {
    constexpr int kEach = kFp8 ? 16 : 8;
    if (unit < last) {
      const int lane = static_cast<int>(threadIdx.x) % 32;
      const int at = begin + chunk * (4 * kEach) + lane % 4 * kEach;
      char* const to = ring + slot * 1024;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const bool there = rows[half].there && at < end;
        copy_16(to + half * 512, there ? rows[half].values + static_cast<int64_t>(at) * (kFp8 ? 1 : 2) : rows[half].values, there);
      }
      if (kFp8 && rows[0].scales != nullptr && chunk % 2 == 0 && lane % 4 < 2) {
        copy_4(scales + slot / 2 * (kClusterWarps * 64), (lane % 4 == 0 ? rows[0].scales : rows[1].scales) + (begin / kClusterScaleBlock + chunk / 2));
      }
      slot = (slot + 1) % kRing;
      if (++chunk == chunks) chunk = 0, ++unit, rows_of_unit();
    }
    copies_commit();
  }
};

/// The units [first, last) of `work` by this block of the cluster. Work has
///   LaneRow row(int unit, int row)                    row 0 … 255 of its tile
///   int x_of(int unit); ClusterX x(int unit)          units with the same number have the same x
///   void store(int unit, int row, int token, int tokens, Sum sum)   tokens [token, token + tokens) of the rows that this block owns, by all its threads:
///     sum(r, t) is the sum of row + r (r < 16) or 128 + row + r − 16 and of token + t
template <bool kFp8, int kTokens, class Work>
__device__ __forceinline__ void cluster_units(const Work& work, int first, int last, int cols, char* shared) {
  using Places = ClusterPlaces<kTokens>;
  constexpr int kRing = kClusterRing<kTokens>;
  constexpr int kEach = kFp8 ? 16 : 8;
  constexpr int kSteps = kEach / 4;  // products of 16 channels in a chunk
  constexpr int kWidth = kExchanged<kTokens>;
  float* const part = reinterpret_cast<float*>(shared);
  char* const x = shared + Places::kFixed;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int rank = static_cast<int>(blockIdx.x) % kClusterBlocks;
  const int begin = rank * segment_channels(cols);
  const int end = min(cols, begin + segment_channels(cols));
  const int blocks = end > begin ? (end - begin + 8 * kEach - 1) / (8 * kEach) : 0;  // of two chunks
  WeightStream<kFp8, kTokens, Work> weights{work, first, blocks > 0 ? last : first, 0, 2 * blocks, begin, end, warp * 16 + lane / 4, 0,
                                            shared + Places::kPart + Places::kScales + warp * kRing * 1024 + lane * 16,
                                            shared + Places::kPart + warp * 64 + lane / 4 * 8 + lane % 2 * 4, {}};
  weights.rows_of_unit();
  for (int i = 0; i < kRing; ++i) weights.ask();
  const bool scaled = kFp8 && weights.rows[0].scales != nullptr;
  int slot = 0;
  int staged = -1;
  cluster_arrive();  // nobody writes to a block that has not begun
  for (int unit = first; unit < last; ++unit) {
    if (blocks > 0 && work.x_of(unit) != staged) {
      __syncthreads();
      stage_x<kFp8, kTokens>(work.x(unit), begin, end, x);
      fence_for_bulk();
      __syncthreads();
      staged = work.x_of(unit);
    }
    float acc[kTokens / 2];
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) acc[i] = 0;
    for (int block = 0; block < blocks; ++block) {
      float sums[kFp8 ? kTokens / 2 : 1];
      float s0 = 0x1p56f;
      float s1 = 0x1p56f;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        copies_wait<kRing - 1>();
        const char* const from = weights.ring + slot * 1024;
        const uint4 low = *reinterpret_cast<const uint4*>(from);
        const uint4 high = *reinterpret_cast<const uint4*>(from + 512);
        if (half == 0 && scaled) {
          const float mine = lane % 4 < 2 ? *reinterpret_cast<const float*>(weights.scales + slot / 2 * (kClusterWarps * 64)) : 0.0f;
          s0 *= __shfl_sync(0xFFFFFFFFu, mine, lane & ~3), s1 *= __shfl_sync(0xFFFFFFFFu, mine, (lane & ~3) + 1);
        }
        slot = (slot + 1) % kRing;
        weights.ask();
        const unsigned words[2][4] = {{low.x, low.y, low.z, low.w}, {high.x, high.y, high.z, high.w}};
        unsigned a[kSteps][4];
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          if constexpr (kFp8) {
            small_pairs(words[0][step], &a[step][0], &a[step][2]), small_pairs(words[1][step], &a[step][1], &a[step][3]);
          } else {
            a[step][0] = words[0][2 * step], a[step][1] = words[1][2 * step], a[step][2] = words[0][2 * step + 1], a[step][3] = words[1][2 * step + 1];
          }
        }
        const char* const operand = x + (block * 2 + half) * kSteps * operand_bytes(kTokens);
        float* const d = kFp8 ? sums : acc;
        wgmma_begin();
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          wgmma<kTokens>(d, a[step], operand + step * operand_bytes(kTokens), kFp8 ? half + step > 0 : true);
        }
        wgmma_end();
        wgmma_results<kTokens / 2>(d);
      }
      if constexpr (kFp8) {
#pragma unroll
        for (int i = 0; i < kTokens / 2; ++i) acc[i] = fmaf(i % 4 < 2 ? s0 : s1, sums[i], acc[i]);
      }
    }
    // Warps w and w + 8 have rows of the same owner, block w % 8: sums of both lie there as local rows 0–15 and 16–31.
#pragma unroll
    for (int pass = 0; pass < kTokens / kWidth; ++pass) {
      cluster_wait();  // the sums before have been read
#pragma unroll
      for (int j = 0; j < kWidth / 8; ++j) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int r = warp / 8 * 16 + half * 8 + lane / 4;
          const float* const two = acc + (pass * (kWidth / 8) + j) * 4 + half * 2;
          store_remote(part + rank * 32 * kWidth + part_place<kWidth>(r, 4 * j + lane % 4), warp % 8, two[0], two[1]);
        }
      }
      cluster_arrive();
      cluster_wait();
      work.store(unit, rank * 16, pass * kWidth, kWidth, [&](int r, int token) {
        float sum = 0;
        const float* const at = part + part_place<kWidth>(r, token / 2) + token % 2;
#pragma unroll
        for (int i = 0; i < kClusterBlocks; ++i) sum = i == 0 ? at[0] : sum + at[i * 32 * kWidth];
        return sum;
      });
      cluster_arrive();
    }
  }
  copies_wait<0>();
  cluster_wait();
}

#ifdef LATHE_CUDA_EMULATED
template <class Kernel>
int resident_clusters(Kernel, int64_t) {
  return 2;
}
#else
/// Clusters of this kernel that run at a time.
template <class Kernel>
int resident_clusters(Kernel kernel, int64_t shared) {
  cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = kClusterBlocks, attribute.val.clusterDim.y = 1, attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(multiprocessors() / kClusterBlocks * kClusterBlocks));
  config.blockDim = dim3(kClusterThreads);
  config.dynamicSmemBytes = static_cast<size_t>(shared);
  config.attrs = &attribute, config.numAttrs = 1;
  int count = 0;
  const cudaError_t error = cudaOccupancyMaxActiveClusters(&count, reinterpret_cast<const void*>(kernel), &config);
  if (error != cudaSuccess || count < 1) count = multiprocessors() / kClusterBlocks > 1 ? multiprocessors() / kClusterBlocks : 1;
  return count;
}
#endif

}  // namespace lathe::kernels::cuda
