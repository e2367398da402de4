#pragma once
// Products y = x Wᵀ by clusters of blocks. Included by .cu files only.
//
// Work        The input channels are cut into eight segments. A cluster goes over tiles of weight rows; a block has some of the segments, their x as
//             bf16 in shared memory for all tiles, and four groups of four warps: a group has 64 rows and one segment, and multiplies on the tensor
//             cores (wgmma: weights from registers, x from shared memory).
// Weights     A lane asks for 16 bytes of its rows at a time and reads them itself; the ring in shared memory flows on over the borders of tiles.
// Sums        FP8: 128 channels on the tensor core, times their scale, added in order. A row's eight segments are sent to the block that owns it (no
//             barrier: that block waits for the bytes while the next tile is being multiplied) and are added in order.
//             kTree: 128 channels are a leaf of the canonical tree; a segment has 1, 2, 4 or 8 of them.
//             So the bits of an output depend on its row of x and of W and on the number of channels alone, not on the shape of the cluster.
// FP8 values  become f16 by an instruction of the hardware, exactly; x is rounded to bf16 and becomes f16 times a power of two for 128 channels of a
//             token, exactly but for values 2^29 times smaller than the largest of them.
// Measured    One H200, 2026-11-30, % of read bandwidth, 24576 x 4096, M = 1: FP8 78, BF16 87; experts 87
//             (docs/kernels/products.md).

#include "kernels/cuda/cluster.h"
#include "kernels/cuda/tensor_core.h"

namespace lathe::kernels::cuda {

constexpr int kClusterThreads = 512;
constexpr int kClusterWarps = kClusterThreads / 32;
constexpr int kSegments = 8;
constexpr int kClusterScaleBlock = 128;

/// What a cluster of a kernel for kTokens tokens is like. kLong: more than 4096 channels.
template <int kTokens, bool kLong>
struct ClusterShape {
  static constexpr int kBlocks = kTokens <= 32 ? 2 : 8;  // two leave no multiprocessor idle, eight share much x
  static constexpr int kRows = 32 * kBlocks;             // of a tile
  static constexpr int kGroups = kBlocks / 2;            // of 64 rows, beside each other in a block
  static constexpr int kHeld = kSegments / kBlocks;      // segments of a block
  static constexpr int kStages =
      kTokens == 8 ? 4 : (kLong || kTokens == 32 ? 2 : (kTokens == 16 ? 4 : 3));  // of the ring: 16 rows x 128 bytes a warp
  static constexpr int kExchanged = kTokens > 16 && kLong ? 16 : kTokens;         // tokens whose sums are exchanged at one time
  static constexpr int kPasses = kTokens / kExchanged;
  static constexpr int kPartFloats = kSegments * 32 * kExchanged;
  // Bytes of shared memory: barriers, sums, ring, x.
  static constexpr int kBarriers = 128;
  static constexpr int kRing = kClusterWarps * kStages * 2048;
  static constexpr int kFixed = kBarriers + kPartFloats * 4 + kRing;
};
constexpr int kClusterLong = 4096;

__host__ __device__ constexpr int segment_channels(int cols) {
  return (cols + kSegments * kClusterScaleBlock - 1) / (kSegments * kClusterScaleBlock) * kClusterScaleBlock;
}
/// Bytes of the scales of x for FP8: one for 128 channels of a token.
template <int kTokens>
__host__ __device__ constexpr int scales_bytes(int cols) {
  return cols / kClusterScaleBlock * kTokens * 4;
}
template <int kTokens, bool kLong>
constexpr int64_t cluster_shared(int cols) {
  using Shape = ClusterShape<kTokens, kLong>;
  return Shape::kFixed + int64_t{segment_channels(cols)} * Shape::kHeld * kTokens * 2 + scales_bytes<kTokens>(Shape::kHeld * segment_channels(cols));
}

/// Weight rows from one on: where it begins, bytes from row to row, how many the matrix still has (≤ 0: it ended before).
struct RowsFrom {
  const char* at;
  int64_t stride;
  int left;
};

/// A tile of a list of work: row tile `tile` of matrix (or expert) `item` for token tile `tokens`.
struct TileCursor {
  int item, tile, tokens;
};

/// Rows of x for a tile: token i is row first + i, or index[i] / divisor.
struct ClusterX {
  const float* x;
  int64_t stride;
  const int32_t* index;
  int divisor, first, count;
};

/// Four E4M3 as f16: bytes 0 and 1, bytes 2 and 3.
__device__ __forceinline__ void half_pairs(unsigned four, unsigned* low, unsigned* high) {
#ifdef LATHE_CUDA_EMULATED
  const auto value = [four](int byte) { return f8_value(static_cast<uint8_t>(four >> 8 * byte)); };
  *low = pack_f16(value(0), value(1)), *high = pack_f16(value(2), value(3));
#else
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.rn.f16x2.e4m3x2 %0, l;\ncvt.rn.f16x2.e4m3x2 %1, h;\n}" : "=r"(*low), "=r"(*high) : "r"(four));
#endif
}

/// Row `token` of x, from channel `channel` on.
__device__ __forceinline__ const float* x_row(const ClusterX& from, int token, int channel) {
  return from.x + static_cast<int64_t>(from.index != nullptr ? from.index[token] / from.divisor : from.first + token) * from.stride + channel;
}
__host__ __device__ inline bool x_aligned(const float* x, int64_t stride) { return stride % 4 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0; }
__device__ __forceinline__ float4 x_four(const float* x, bool aligned) { return aligned ? four_of(x) : make_float4(x[0], x[1], x[2], x[3]); }

/// x of channels [begin, end) into shared memory (or memory) as bf16, in the order in which a lane's 16 bytes of a weight row meet the tensor core.
/// By `warps` warps, of which this is number `warp`. kAligned: all rows of x begin at multiples of 16 bytes.
template <int kTokens, bool kAligned = false>
__device__ void stage_x(const ClusterX& from, int begin, int end, char* to, int warp, int warps) {
  constexpr int kEach = 8;
  constexpr int kChunk = 4 * kEach;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int chunks = (end - begin + kChunk - 1) / kChunk;
  const bool aligned = kAligned || x_aligned(from.x, from.stride);
  const int count = chunks * (kTokens / 8);
  constexpr int kTogether = 4;  // loads of several chunks on their way
  for (int first = warp; first < count; first += kTogether * warps) {
    float4 v[kTogether][kEach / 4];
#pragma unroll
    for (int n = 0; n < kTogether; ++n) {
      const int i = first + n * warps;
      const int token = i / chunks * 8 + lane / 4;
      const bool there = i < count && token < from.count;
      const float* const x = there ? x_row(from, token, begin + i % chunks * kChunk + lane % 4 * 4) : nullptr;
#pragma unroll
      for (int j = 0; j < kEach / 4; ++j) v[n][j] = there ? x_four(x + 16 * j, aligned) : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int n = 0; n < kTogether; ++n) {
      const int i = first + n * warps;
      if (i >= count) break;
#pragma unroll
      for (int j = 0; j < kEach / 4; ++j) {
        const int four = j * 4 + lane % 4;  // channels of the chunk: word four % (kEach / 4) of lane four / (kEach / 4)
        char* const place =
            to + (i % chunks * (kEach / 4) + four % (kEach / 4)) * operand_bytes(kTokens) + i / chunks * 256 + lane / 4 * 16 + four / (kEach / 4) * 4;
        *reinterpret_cast<unsigned*>(place) = pack_bf16(v[n][j].x, v[n][j].y);
        *reinterpret_cast<unsigned*>(place + 128) = pack_bf16(v[n][j].z, v[n][j].w);
      }
    }
  }
}

/// The same for FP8 weights: x is rounded to bf16 and kept as f16 times a power of two for 128 channels of a token, whose inverse goes to
/// scales [128 channels][kTokens]. The largest of them is just below 2^15 then; what is 2^29 times smaller loses bits.
template <int kTokens, bool kAligned = false>
__device__ void stage_x_half(const ClusterX& from, int begin, int end, char* to, float* scales, int warp, int warps) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int blocks = (end - begin) / kClusterScaleBlock;
  const bool aligned = kAligned || x_aligned(from.x, from.stride);
  for (int i = warp; i < blocks * (kTokens / 8); i += warps) {
    const int block = i % blocks;
    const int token = i / blocks * 8 + lane / 4;
    const bool there = token < from.count;
    const float* const x = there ? x_row(from, token, begin + block * kClusterScaleBlock + lane % 4 * 4) : nullptr;
    float4 v[8];
    float most = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = there ? x_four(x + 16 * j, aligned) : make_float4(0, 0, 0, 0);
#pragma unroll
    for (int j = 0; j < 8; ++j) most = fmaxf(fmaxf(fmaxf(fabsf(v[j].x), fabsf(v[j].y)), fmaxf(fabsf(v[j].z), fabsf(v[j].w))), most);
    most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, 1));
    most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, 2));
    const unsigned up = min(126 + 127, 14 + 2 * 127 - static_cast<int>(__float_as_uint(most) >> 23));  // exponent of the factor
    const float factor = __uint_as_float(up << 23);
    if (lane % 4 == 0) scales[block * kTokens + token] = __uint_as_float((2 * 127 - up) << 23);
    const auto pack = [factor](float low, float high) {
      const unsigned both = pack_bf16(low, high);
      return pack_f16(__uint_as_float(both << 16) * factor, __uint_as_float(both & 0xFFFF0000u) * factor);
    };
    // 16-byte rows of cores: a lane has every fourth four of 64 channels, one of each of their words.
#pragma unroll
    for (int chunk = 0; chunk < 2; ++chunk) {
      const float4* const u = v + chunk * 4;
      char* const place = to + ((block * 2 + chunk) * 4 + lane % 4) * operand_bytes(kTokens) + i / blocks * 256 + lane / 4 * 16;
      *reinterpret_cast<uint4*>(place) = {pack(u[0].x, u[0].y), pack(u[1].x, u[1].y), pack(u[2].x, u[2].y), pack(u[3].x, u[3].y)};
      *reinterpret_cast<uint4*>(place + 128) = {pack(u[0].z, u[0].w), pack(u[1].z, u[1].w), pack(u[2].z, u[2].w), pack(u[3].z, u[3].w)};
    }
  }
}

/// x of a segment in shared memory, and its scales for FP8.
struct SegmentX {
  char* x;
  float* scales;
};
template <class Shape, int kTokens>
__device__ __forceinline__ SegmentX segment_x(char* shared, int held, int cols) {
  const int bytes = segment_channels(cols) * kTokens * 2;
  char* const scales = shared + Shape::kFixed + Shape::kHeld * bytes + held * scales_bytes<kTokens>(segment_channels(cols));
  return {shared + Shape::kFixed + held * bytes, reinterpret_cast<float*>(scales)};
}
template <bool kFp8, int kTokens>
__device__ __forceinline__ void stage_segment(const ClusterX& from, int begin, int end, const SegmentX& to, int warp, int warps) {
  if constexpr (kFp8) {
    stage_x_half<kTokens>(from, begin, end, to.x, to.scales, warp, warps);
  } else {
    stage_x<kTokens>(from, begin, end, to.x, warp, warps);
  }
}

/// Where the sum of local row r and a token lies. Neighbours: what a lane sends at a time (two tokens, from 16 on also the two that are 8 further).
/// Rows are shifted against each other, since threads read down the rows.
template <int kWidth>
__device__ __forceinline__ int part_place(int r, int token) {
  if constexpr (kWidth == 8) {
    return r * 8 + ((token / 2) ^ (r / 4 & 3)) * 2 + token % 2;
  } else {
    constexpr int kMask = kWidth / 4 < 8 ? kWidth / 4 - 1 : 7;
    const int four = token / 16 * 4 + token % 8 / 2;
    return r * kWidth + (four ^ ((kWidth == 16 ? r / 2 : r) & kMask)) * 4 + token % 16 / 8 * 2 + token % 2;
  }
}

/// A warp's weights on their way, 128 bytes of 16 rows at a time, tile after tile. A request has whole lines of four rows. In the ring the 16 bytes that a
/// lane needs of a half of rows 0–7 or 8–15 lie side by side with those of the other lanes; those of second halves in pairs of rows swapped, so that
/// neither the requests nor the readers meet in a bank.
template <int kStages, class Work>
struct WeightStream {
  const Work& work;
  TileCursor cursor;
  int tiles;  ///< to come, this one included
  int blocks;
  int offset;  ///< bytes of a row before the warp's own
  int row;     ///< the warp's first of the tile
  char* ring;  ///< the warp's
  int block = 0;
  int stage = 0;
  RowsFrom rows{};
  const char* from = nullptr;
  int after[3] = {};  ///< bytes from a lane's first row to its next ones

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ __forceinline__ void begin_tile() {
    const int first = min(0, rows.left - 1);
    from = rows.at + first * rows.stride;
#pragma unroll
    for (int i = 0; i < 3; ++i) after[i] = (min(4 * i + 4, rows.left - 1) - first) * static_cast<int>(rows.stride);
  }
  __device__ __forceinline__ void open() {
    if (tiles <= 0) return;
    rows = work.rows(cursor, row + lane() / 8);
    rows.at += offset + lane() % 8 * 16;
    begin_tile();
  }
  /// Asks for as much as the ring holds.
  __device__ __forceinline__ void fill() {
    open();
#pragma unroll 1
    for (int i = 0; i < kStages; ++i) ask();
  }
  __device__ __forceinline__ void ask() {
    if (tiles > 0) {
      const int half = lane() % 8 / 4;
      char* const to = ring + stage * 2048 + half * 512 + (((lane() / 8 * 4 + lane() % 4) ^ (half * 4)) * 16);
      __syncwarp();  // all lanes have read what lies there
#pragma unroll
      for (int i = 0; i < 4; ++i) copy_16(to + i / 2 * 1024 + i % 2 * 256, i == 0 ? from : from + after[i - 1]);
      from += 128;
      stage = stage + 1 == kStages ? 0 : stage + 1;
      if (++block == blocks) {
        block = 0, --tiles;
        if (work.next(cursor)) {
          rows.at += Work::kStep * rows.stride, rows.left -= Work::kStep;
          begin_tile();
        } else {
          open();
        }
      }
    }
    copies_commit();
  }
  /// Waits for the oldest block; `at` is its stage.
  __device__ __forceinline__ const char* wait(int at) const {
    copies_wait<kStages - 1>();
    __syncwarp();
    return ring + at * 2048;
  }
};
/// A lane's 16 bytes of a half of rows 0–7 (part 0) or 8–15 (part 1) of a block in the ring.
__device__ __forceinline__ uint4 lane_weights(const char* block, int part, int half) {
  return reinterpret_cast<const uint4*>(block + part * 1024 + half * 512)[(threadIdx.x % 32) ^ (half * 4u)];
}

/// Products of 16 channels in 64 bytes.
template <bool kFp8>
inline constexpr int kHalfSteps = kFp8 ? 4 : 2;

/// 64 bytes of rows g and g + 8 (16 of each) as A operands, one for each of kHalfSteps products.
template <bool kFp8>
__device__ __forceinline__ void half_operands(const uint4& low, const uint4& high, unsigned (*a)[4]) {
  const unsigned each[2][4] = {{low.x, low.y, low.z, low.w}, {high.x, high.y, high.z, high.w}};
#pragma unroll
  for (int i = 0; i < kHalfSteps<kFp8>; ++i) {
    if constexpr (kFp8) {
      half_pairs(each[0][i], a[i], a[i] + 2), half_pairs(each[1][i], a[i] + 1, a[i] + 3);
    } else {
      a[i][0] = each[0][2 * i], a[i][1] = each[1][2 * i], a[i][2] = each[0][2 * i + 1], a[i][3] = each[1][2 * i + 1];
    }
  }
}

/// kHalves times 64 bytes of rows g and g + 8 (16 at each of low and high), times x at `operand`: added to d, or written to it.
template <bool kFp8, int kTokens, int kHalves>
__device__ __forceinline__ void multiply(const uint4* low, const uint4* high, Operand operand, float* d, bool add) {
  constexpr int kSteps = kHalfSteps<kFp8>;
  unsigned a[kHalves * kSteps][4];
#pragma unroll
  for (int half = 0; half < kHalves; ++half) half_operands<kFp8>(low[half], high[half], a + half * kSteps);
  wgmma_begin();
#pragma unroll
  for (int i = 0; i < kHalves * kSteps; ++i) wgmma<kTokens, kFp8>(d, a[i], operand_after(operand, i * operand_bytes(kTokens)), add || i > 0);
  wgmma_end();
  wgmma_results<kTokens / 2>(d);
}

/// The next 128 bytes of a lane's rows, times x: added to d, or written to it if FP8. Asks for the bytes that take their place in the ring.
template <bool kFp8, int kTokens, class Stream>
__device__ __forceinline__ void multiply_block(Stream& weights, const char* from, Operand operand, float* d) {
  if constexpr (kTokens <= 32) {
    const uint4 low[2] = {lane_weights(from, 0, 0), lane_weights(from, 0, 1)};
    const uint4 high[2] = {lane_weights(from, 1, 0), lane_weights(from, 1, 1)};
    weights.ask();
    multiply<kFp8, kTokens, 2>(low, high, operand, d, !kFp8);
  } else {  // registers are scarce
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 low = lane_weights(from, 0, half);
      const uint4 high = lane_weights(from, 1, half);
      multiply<kFp8, kTokens, 1>(&low, &high, operand_after(operand, half * (kFp8 ? 4 : 2) * operand_bytes(kTokens)), d, !kFp8 || half > 0);
    }
    weights.ask();
  }
}

/// The exchange of sums inside a cluster. Each block owns 32 rows of a tile.
template <class Shape, bool kTree>
struct Exchange {
  static constexpr int kWidth = Shape::kExchanged;
  Barrier* come;  ///< the sums of a tile are here
  Barrier* free;  ///< all blocks of the cluster have read theirs
  float* part;
  int number;  ///< exchanges begun so far

  /// By one warp, before the cluster's first barrier.
  __device__ void init() const {
    if (threadIdx.x % 32 == 0) barrier_init(come, 1), barrier_init(free, kClusterWarps * Shape::kBlocks);
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive_expect(come, Shape::kPartFloats * 4);
  }
  /// Sums of a warp's 16 rows to their owner: warp rows q (of 2 · kBlocks) belong to block q % kBlocks, as its rows 0–15 or 16–31.
  __device__ __forceinline__ void send(const float* acc, int segment, int q) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (number > 0) barrier_wait(free, static_cast<unsigned>(number - 1) & 1u);
    float* const to = part + segment * 32 * kWidth;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = q / Shape::kBlocks * 16 + half * 8 + lane / 4;
      if constexpr (kWidth == 8) {
        send_floats(to + part_place<kWidth>(r, lane % 4 * 2), q % Shape::kBlocks, acc[half * 2], acc[half * 2 + 1], come);
      } else {
#pragma unroll
        for (int j = 0; j < kWidth / 16; ++j) {
          const float* const a = acc + j * 8 + half * 2;
          send_floats(to + part_place<kWidth>(r, j * 16 + lane % 4 * 2), q % Shape::kBlocks, make_float4(a[0], a[1], a[4], a[5]), come);
        }
      }
    }
    ++number;
  }
  /// By all threads, once after each send. last: nothing will be sent again; so no block is told anything after it may have ended.
  template <class Work>
  __device__ __forceinline__ void finish(const Work& work, const TileCursor& tile, int rank, int token, bool last) const {
    barrier_wait(come, static_cast<unsigned>(number - 1) & 1u);
    if (threadIdx.x == 0) barrier_arrive_expect(come, Shape::kPartFloats * 4);
    work.store(tile, rank * 16, token, kWidth, [this](int r, int t) {
      const float* const at = part + part_place<kWidth>(r, t);
      const auto segment = [at](int i) { return at[i * 32 * kWidth]; };
      if (kTree) return ((segment(0) + segment(1)) + (segment(2) + segment(3))) + ((segment(4) + segment(5)) + (segment(6) + segment(7)));
      float sum = at[0];
#pragma unroll
      for (int i = 1; i < kSegments; ++i) sum += segment(i);
      return sum;
    });
    __syncwarp();
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (!last && lane < Shape::kBlocks) arrive_remote(free, lane);
  }
};

/// The tree over the leaves of a segment, one after the other: nodes that wait for their right neighbour, by height.
template <int kCount>
struct Nodes {
  float waiting[3][kCount];
  /// Leaf number `i`, 0 to 7; afterwards sums is the largest node that ends with it.
  __device__ __forceinline__ void add(int i, float* sums) {
#pragma unroll
    for (int height = 0; height < 3; ++height) {
      const int below = (1 << height) - 1;
      if ((i & below) != below) continue;
      const bool right = (i >> height & 1) != 0;
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        if (right) {
          sums[j] = waiting[height][j] + sums[j];
        } else {
          waiting[height][j] = sums[j];
        }
      }
    }
  }
};

/// The scale of a block's weights times those of x, for a lane's sums. scales: [kTokens].
template <int kTokens>
struct Factors {
  float each[kTokens / 4];
  __device__ __forceinline__ Factors(float weight, const float* scales) {
#pragma unroll
    for (int i = 0; i < kTokens / 4; ++i) each[i] = weight * scales[i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2];
  }
  __device__ __forceinline__ float of(int sum) const { return each[sum / 4 * 2 + sum % 2]; }
};

/// Block `block` of a segment, added to the sums of a tile (kTree: the largest node that ends with it).
/// x_scales: of the segment.
template <bool kFp8, int kTokens, bool kTree, class Stream, class TreeNodes>
__device__ __forceinline__ void add_block(Stream& weights, const char* from, Operand here, float scale, const float* x_scales, int block, float* acc,
                                          TreeNodes& nodes) {
  if constexpr (kFp8) {
    float sums[kTokens / 2];
    multiply_block<kFp8, kTokens>(weights, from, here, sums);
    const Factors<kTokens> factors(__shfl_sync(0xFFFFFFFFu, scale, block), x_scales + block * kTokens);
#pragma unroll
    for (int j = 0; j < kTokens / 2; ++j) acc[j] = kTree ? factors.of(j) * sums[j] : fmaf(factors.of(j), sums[j], acc[j]);
    if constexpr (kTree) nodes.add(block, acc);
  } else {
    if (kTree && block % 2 == 0) {
#pragma unroll
      for (int j = 0; j < kTokens / 2; ++j) acc[j] = 0;
    }
    multiply_block<kFp8, kTokens>(weights, from, here, acc);
    if constexpr (kTree) {
      if (block % 2 != 0) nodes.add(block / 2, acc);
    }
  }
}

/// Which part of a tile a warp has: block of the cluster, segment in the block and of all, 16 rows q, channels.
struct WarpPlace {
  int rank, held, segment, q, begin, end;
};
template <class Shape>
__device__ __forceinline__ WarpPlace place_of(int cols) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int rank = static_cast<int>(blockIdx.x) % Shape::kBlocks;
  const int held = warp / 4 / Shape::kGroups;
  const int segment = rank * Shape::kHeld + held;
  const int begin = min(cols, segment * segment_channels(cols));
  return {rank, held, segment, warp / 4 % Shape::kGroups * 4 + warp % 4, begin, min(cols, begin + segment_channels(cols))};
}

/// `tiles` tiles of `work` from `start` on by this block of the cluster. Work has
///   kStep                                             rows from tile to tile of a matrix
///   bool next(TileCursor& c)                          true: only `tile` was advanced
///   RowsFrom rows(c, int row)                         from row 0 … kRows − 1 of the tile
///   const float* scales(c, int row)                   of 128 channels each, the same for 16 rows; null: none
///   int x_number(c); ClusterX x(c)                    tiles with the same number have the same x
///   void store(c, int row, int token, int tokens, Sum sum)   tokens [token, token + tokens) of the rows that this block owns, by all its
///     threads: sum(r, t) is the sum of row + r (r < 16) or kRows / 2 + row + r − 16 and of token + t
/// Until wait_for_inputs only weights are read, by rows() and after it.
template <bool kFp8, int kTokens, class Shape, bool kTree, class Work>
__device__ __forceinline__ void cluster_tiles(const Work& work, TileCursor start, int tiles, int cols, char* shared) {
  constexpr int kBlockChannels = kFp8 ? 128 : 64;  // 128 bytes
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto [rank, held, segment, q, begin, end] = place_of<Shape>(cols);
  const int blocks = (end - begin) / kBlockChannels;
  const SegmentX x = segment_x<Shape, kTokens>(shared, held, cols);
  Exchange<Shape, kTree> exchange{reinterpret_cast<Barrier*>(shared), reinterpret_cast<Barrier*>(shared) + 1,
                                  reinterpret_cast<float*>(shared + Shape::kBarriers), 0};
  if (warp == 0) exchange.init();
  cluster_arrive();
  char* const ring = shared + Shape::kBarriers + Shape::kPartFloats * 4 + warp * Shape::kStages * 2048;
  WeightStream<Shape::kStages, Work> weights{work, start, blocks > 0 ? tiles : 0, blocks, begin * (kFp8 ? 1 : 2), q * 16, ring};
  weights.fill();
  // Lane b has the scale of the segment's block b; those of the next tile are on their way.
  const auto scale_of = [&](const TileCursor& c) {
    const float* const scales = kFp8 && lane < blocks ? work.scales(c, q * 16) : nullptr;
    return scales != nullptr ? scales[begin / kClusterScaleBlock + lane] : 1.0f;
  };
  float scale = tiles > 0 ? scale_of(start) : 1.0f;
  const Operand operand = operand_at(x.x);
  int stage = 0, staged = -1;
  bool unfinished = false;  // sums of the tile before have been sent
  TileCursor before = start, now = start;
  launch_next(), wait_for_inputs();
  for (int tile = 0; tile < tiles; ++tile) {
    if (work.x_number(now) != staged) {
      __syncthreads();
      stage_segment<kFp8, kTokens>(work.x(now), begin, end, x, q, 4 * Shape::kGroups);
      fence_for_bulk();
      __syncthreads();
      if (staged < 0) cluster_wait();  // all blocks have begun
      staged = work.x_number(now);
    }
    TileCursor after = now;
    float next_scale = 1.0f;
    if (tile + 1 < tiles) work.next(after), next_scale = scale_of(after);
    float acc[kTokens / 2] = {};
    [[maybe_unused]] Nodes<kTree ? kTokens / 2 : 1> nodes;
    for (int block = 0; block < blocks; ++block) {
      const char* const from = weights.wait(stage);
      stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
      add_block<kFp8, kTokens, kTree>(weights, from, operand_after(operand, block * kBlockChannels * kTokens * 2), scale, x.scales, block, acc,
                                      nodes);
      if (unfinished) exchange.finish(work, before, rank, 0, false), unfinished = false;
    }
    if (unfinished) exchange.finish(work, before, rank, 0, false);
#pragma unroll
    for (int pass = 0; pass < Shape::kPasses; ++pass) {
      exchange.send(acc + pass * Shape::kExchanged / 2, segment, q);
      if (Shape::kPasses > 1) exchange.finish(work, now, rank, pass * Shape::kExchanged, pass + 1 == Shape::kPasses && tile + 1 == tiles);
    }
    unfinished = Shape::kPasses == 1;
    scale = next_scale, before = now, now = after;
  }
  copies_wait<0>();
  if (tiles <= 0) cluster_wait();
  if (unfinished) exchange.finish(work, before, rank, 0, true);
}

#ifdef LATHE_CUDA_EMULATED
template <class Kernel>
int resident_clusters(Kernel, int, int64_t) {
  return 2;
}
#else
/// Clusters of this kernel that run at a time.
template <class Kernel>
int resident_clusters(Kernel kernel, int blocks, int64_t shared) {
  cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(blocks), attribute.val.clusterDim.y = 1, attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(multiprocessors() / blocks * blocks));
  config.blockDim = dim3(kClusterThreads);
  config.dynamicSmemBytes = static_cast<size_t>(shared);
  config.attrs = &attribute, config.numAttrs = 1;
  int count = 0;
  const cudaError_t error = cudaOccupancyMaxActiveClusters(&count, reinterpret_cast<const void*>(kernel), &config);
  if (error != cudaSuccess || count < 1) count = multiprocessors() / blocks > 1 ? multiprocessors() / blocks : 1;
  return count;
}
#endif

}  // namespace lathe::kernels::cuda
