#pragma once
// One block's tile of a product y = x Wᵀ: 16·kRowTiles weight rows times 8·kTokenTiles rows of x, by 8 warps. Included by .cu files only.
//
// Segments    The input channels are cut into segments: the leaves of a canonical sum, else a fixed number of ranges that depends on K alone. A warp sums a
//             segment in one order, whatever the tile, and the segments are added afterwards in one order: the bits of an output depend on its row of x and of W.
// Measured    One H200, 2026-11-30, % of read bandwidth at M = 1: BF16 64–83, FP8 32–37 (docs/kernels/products.md).
// Partials    part[segment][row in tile · tokens of tile + token in tile], in shared memory.

#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/tensor_core.h"

namespace lathe::kernels::cuda {

constexpr int kTileThreads = 256;
constexpr int kTileWarps = 8;

/// Where a tile finds its operands.
struct TileIn {
  const Matrix* m;
  const void* values;
  const float* scales;
  int row, rows;  ///< first weight row, how many count
  const float* x;
  int64_t x_stride;
  const int32_t* index;  ///< null: token i of the tile is x row first + i; else index[i] / divisor
  int divisor;
  int first, tokens;
  int segment_channels, segments;
  bool fast;
};

__device__ __forceinline__ const float* tile_token(const TileIn& in, int i) {
  const int64_t row = in.index != nullptr ? in.index[i] / in.divisor : in.first + i;
  return in.x + row * in.x_stride;
}

/// Any dtype, any size: a warp has two weight rows and 8 tokens, lanes go over the channels.
inline __device__ void plain_tile(const TileIn& in, float* part) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float* x[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) x[j] = tile_token(in, j < in.tokens ? j : 0);
  for (int segment = 0; segment < in.segments; ++segment) {
    const int begin = segment * in.segment_channels;
    const int end = min(in.m->cols, begin + in.segment_channels);
    float sum[2][8] = {};
    if (2 * warp < in.rows) {
      const int64_t r0 = in.row + 2 * warp;
      const int64_t r1 = in.row + min(2 * warp + 1, in.rows - 1);
      for (int c = begin + lane; c < end; c += 32) {
        const float w0 = weight_at(*in.m, in.values, in.scales, r0, c, in.fast);
        const float w1 = weight_at(*in.m, in.values, in.scales, r1, c, in.fast);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          if (j >= in.tokens) break;
          const float value = in.fast ? round_bf16(x[j][c]) : x[j][c];
          sum[0][j] = fmaf(w0, value, sum[0][j]), sum[1][j] = fmaf(w1, value, sum[1][j]);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float total = warp_sum(sum[r][j]);
        if (lane == 0) part[segment * 128 + (2 * warp + r) * 8 + j] = total;
      }
    }
  }
}

/// Four E4M3 as two pairs of bf16, exact but for NaN, which becomes ±480: exponent and mantissa move to where bf16 has them, times 2^120 (subnormals come out
/// right). The conversions of the hardware run at an eighth of this rate.
__device__ __forceinline__ void f8_pairs(unsigned four, unsigned* pairs) {
#ifdef LATHE_CUDA_EMULATED
  pairs[0] = pack_bf16(f8_value(static_cast<uint8_t>(four)), f8_value(static_cast<uint8_t>(four >> 8)));
  pairs[1] = pack_bf16(f8_value(static_cast<uint8_t>(four >> 16)), f8_value(static_cast<uint8_t>(four >> 24)));
#else
  const unsigned spread[2] = {__byte_perm(four, 0, 0x1404), __byte_perm(four, 0, 0x3424)};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned small = ((spread[i] >> 4) & 0x07F007F0u) | (spread[i] & 0x80008000u);
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(pairs[i]) : "r"(small), "r"(0x7B807B80u));
  }
#endif
}

/// Weights on their way to a warp of one row tile: chunks of 1 KiB (16 rows x 64 bytes) in shared memory. A lane reads what it asked for itself.
constexpr int kRingChunks = 8;
constexpr int64_t kRingBytes = kTileWarps * kRingChunks * 1024;

/// A operand of step `step` of a chunk from 16 bytes of rows g and g + 8.
template <bool kFp8>
__device__ __forceinline__ void mma_rows(const unsigned (*words)[4], int step, unsigned* a) {
  if (kFp8) {
    unsigned low[2], high[2];
    f8_pairs(words[0][step % 4], low), f8_pairs(words[1][step % 4], high);
    a[0] = low[0], a[1] = high[0], a[2] = low[1], a[3] = high[1];
  } else {
    a[0] = words[0][2 * step % 4], a[1] = words[1][2 * step % 4];
    a[2] = words[0][(2 * step + 1) % 4], a[3] = words[1][(2 * step + 1) % 4];
  }
}

/// mma_segment below for one row tile and few tokens, where bytes are all that counts: the ring keeps eight chunks a warp on their way, x and scales are fetched
/// a group of chunks early. The same additions in the same order.
template <bool kFp8, int kTokenTiles, int kAheadX>
__device__ __forceinline__ void mma_segment_ring(const TileIn& in, int begin, int end, float (*acc)[4], char* ring) {
  constexpr int kEach = kFp8 ? 16 : 8;
  constexpr int kChunk = 4 * kEach;
  constexpr int kGroup = kAheadX / (kEach * kTokenTiles);
  constexpr int kSize = kFp8 ? 1 : 2;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4;
  const int mine = lane % 4 * kEach;
  char* const place = ring + static_cast<int>(threadIdx.x) / 32 * kRingChunks * 1024 + lane * 16;
  const char* w[2];
  const float* scale[2];
  bool has_row[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    has_row[half] = half * 8 + g < in.rows;
    const int64_t from = in.row + (has_row[half] ? half * 8 + g : 0);
    w[half] = static_cast<const char*>(in.values) + (from * in.m->stride + mine) * kSize;
    scale[half] = kFp8 && in.scales != nullptr ? in.scales + (from + in.m->row_offset) / in.m->block_rows * in.m->scale_stride : nullptr;
  }
  const int chunks = (end - begin + kChunk - 1) / kChunk;
  const auto ask = [&](int c) {
    const int at = begin + c * kChunk;
    char* const to = place + c % kRingChunks * 1024;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool there = c < chunks && has_row[half] && at + mine < end;
      if (c < chunks) copy_16(to + half * 512, there ? w[half] + static_cast<int64_t>(at) * kSize : w[half], there);
    }
    copies_commit();
  };
  for (int c = 0; c < kRingChunks - 1; ++c) ask(c);
  const bool aligned = (in.x_stride % 4 == 0) && (reinterpret_cast<uintptr_t>(in.x) % 16 == 0);
  const float* x[kTokenTiles];
  bool has_token[kTokenTiles];
#pragma unroll
  for (int n = 0; n < kTokenTiles; ++n) {
    has_token[n] = n * 8 + g < in.tokens;
    x[n] = tile_token(in, has_token[n] ? n * 8 + g : 0) + mine;
  }
  float4 early[kGroup][kTokenTiles][kEach / 4];
  float early_scale[kGroup][2];
  const auto fetch = [&](int first) {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const int at = begin + (first + i) * kChunk;
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
        for (int j = 0; j < kEach / 4; ++j) {
          float4 v = make_float4(0, 0, 0, 0);
          if (has_token[n] && at + mine < end) {
            const float* const from = x[n] + at + 4 * j;
            v = aligned ? *reinterpret_cast<const float4*>(from) : make_float4(from[0], from[1], from[2], from[3]);
          }
          early[i][n][j] = v;
        }
      }
      early_scale[i][0] = early_scale[i][1] = 1.0f;
      if (kFp8 && in.scales != nullptr && at < end) {
        const int column = (at + in.m->col_offset) / in.m->block_cols;
        early_scale[i][0] = scale[0][column], early_scale[i][1] = scale[1][column];
      }
    }
  };
  fetch(0);
  for (int first = 0; first < chunks; first += kGroup) {
    unsigned b[kGroup][kTokenTiles][kEach / 2];
    [[maybe_unused]] float scales[kGroup][2];
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
        for (int j = 0; j < kEach / 4; ++j) {
          const float4 v = early[i][n][j];
          b[i][n][2 * j] = pack_bf16(v.x, v.y), b[i][n][2 * j + 1] = pack_bf16(v.z, v.w);
        }
      }
      scales[i][0] = early_scale[i][0], scales[i][1] = early_scale[i][1];
    }
    fetch(first + kGroup);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const int c = first + i;
      if (c >= chunks) break;
      ask(c + kRingChunks - 1);
      copies_wait<kRingChunks - 1>();
      const char* const from = place + c % kRingChunks * 1024;
      const uint4 low = *reinterpret_cast<const uint4*>(from);
      const uint4 high = *reinterpret_cast<const uint4*>(from + 512);
      const unsigned words[2][4] = {{low.x, low.y, low.z, low.w}, {high.x, high.y, high.z, high.w}};
      float block[kTokenTiles][4] = {};
#pragma unroll
      for (int step = 0; step < kEach / 4; ++step) {
        unsigned a[4];
        mma_rows<kFp8>(words, step, a);
#pragma unroll
        for (int n = 0; n < kTokenTiles; ++n) {
          const unsigned bn[2] = {b[i][n][2 * step], b[i][n][2 * step + 1]};
          mma_bf16(kFp8 ? block[n] : acc[n], a, bn);
        }
      }
      if constexpr (kFp8) {
#pragma unroll
        for (int n = 0; n < kTokenTiles; ++n) {
          acc[n][0] = fmaf(scales[i][0], block[n][0], acc[n][0]), acc[n][1] = fmaf(scales[i][0], block[n][1], acc[n][1]);
          acc[n][2] = fmaf(scales[i][1], block[n][2], acc[n][2]), acc[n][3] = fmaf(scales[i][1], block[n][3], acc[n][3]);
        }
      }
    }
  }
  copies_wait<0>();
}

/// kFp8: E4M3 with or without scales, else BF16. A lane holds 16 bytes of two weight rows: the same channels that it takes from x, so the order of channels inside
/// a chunk of four lanes is the lanes' own.
template <bool kFp8, int kRowTiles, int kTokenTiles>
__device__ __forceinline__ void mma_segment(const TileIn& in, int begin, int end, float (*acc)[kTokenTiles][4]) {
  constexpr int kEach = kFp8 ? 16 : 8;  // channels of a lane
  constexpr int kChunk = 4 * kEach;
  constexpr int kAhead = 4 / kRowTiles;  // chunks of weights on their way
  constexpr int kSize = kFp8 ? 1 : 2;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4;
  const int mine = lane % 4 * kEach;
  const char* w[kRowTiles][2];
  bool has_row[kRowTiles][2];
  const float* scale[kRowTiles][2];
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = r * 16 + half * 8 + g;
      has_row[r][half] = row < in.rows;
      const int64_t from = in.row + (has_row[r][half] ? row : 0);
      w[r][half] = static_cast<const char*>(in.values) + (from * in.m->stride + mine) * kSize;
      scale[r][half] = in.scales == nullptr ? nullptr : in.scales + (from + in.m->row_offset) / in.m->block_rows * in.m->scale_stride;
    }
  }
  const float* x[kTokenTiles];
  bool has_token[kTokenTiles];
  bool aligned = (in.x_stride % 4 == 0) && (reinterpret_cast<uintptr_t>(in.x) % 16 == 0);
#pragma unroll
  for (int n = 0; n < kTokenTiles; ++n) {
    has_token[n] = n * 8 + g < in.tokens;
    x[n] = tile_token(in, has_token[n] ? n * 8 + g : 0) + mine;
  }
  for (int c = begin; c < end; c += kChunk * kAhead) {
    uint4 weights[kAhead][kRowTiles][2];
#pragma unroll
    for (int ahead = 0; ahead < kAhead; ++ahead) {
      const int at = c + ahead * kChunk;
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const bool there = has_row[r][half] && at + mine < end;
          weights[ahead][r][half] = there ? __ldcs(reinterpret_cast<const uint4*>(w[r][half] + static_cast<int64_t>(at) * kSize)) : uint4{0, 0, 0, 0};
        }
      }
    }
#pragma unroll
    for (int ahead = 0; ahead < kAhead; ++ahead) {
      const int at = c + ahead * kChunk;
      if (at >= end) break;
      unsigned b[kTokenTiles][kEach / 2];
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
        const bool there = has_token[n] && at + mine < end;
#pragma unroll
        for (int i = 0; i < kEach; i += 4) {
          float4 v = make_float4(0, 0, 0, 0);
          if (there) {
            const float* const from = x[n] + at + i;
            v = aligned ? *reinterpret_cast<const float4*>(from) : make_float4(from[0], from[1], from[2], from[3]);
          }
          b[n][i / 2] = pack_bf16(v.x, v.y), b[n][i / 2 + 1] = pack_bf16(v.z, v.w);
        }
      }
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        float block[kTokenTiles][4] = {};
        const uint4 low = weights[ahead][r][0];
        const uint4 high = weights[ahead][r][1];
        const unsigned words[2][4] = {{low.x, low.y, low.z, low.w}, {high.x, high.y, high.z, high.w}};
#pragma unroll
        for (int step = 0; step < kEach / 4; ++step) {
          unsigned a[4];
          mma_rows<kFp8>(words, step, a);
#pragma unroll
          for (int n = 0; n < kTokenTiles; ++n) {
            const unsigned bn[2] = {b[n][2 * step], b[n][2 * step + 1]};
            mma_bf16(kFp8 ? block[n] : acc[r][n], a, bn);
          }
        }
        if (!kFp8) continue;
        const int column = in.scales == nullptr ? 0 : (at + in.m->col_offset) / in.m->block_cols;
        const float s0 = in.scales == nullptr ? 1.0f : scale[r][0][column];
        const float s1 = in.scales == nullptr ? 1.0f : scale[r][1][column];
#pragma unroll
        for (int n = 0; n < kTokenTiles; ++n) {
          acc[r][n][0] = fmaf(s0, block[n][0], acc[r][n][0]), acc[r][n][1] = fmaf(s0, block[n][1], acc[r][n][1]);
          acc[r][n][2] = fmaf(s1, block[n][2], acc[r][n][2]), acc[r][n][3] = fmaf(s1, block[n][3], acc[r][n][3]);
        }
      }
    }
  }
}

template <bool kFp8, int kRowTiles, int kTokenTiles, int kAheadX>
__device__ void mma_tile_of(const TileIn& in, float* part, char* ring) {
  constexpr int kTokens = 8 * kTokenTiles;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int segment = warp; segment < in.segments; segment += kTileWarps) {
    const int begin = segment * in.segment_channels;
    const int end = min(in.m->cols, begin + in.segment_channels);
    float acc[kRowTiles][kTokenTiles][4] = {};
    if constexpr (kRowTiles == 1) {
      mma_segment_ring<kFp8, kTokenTiles, kAheadX>(in, begin, end, acc[0], ring);
    } else {
      mma_segment<kFp8, kRowTiles, kTokenTiles>(in, begin, end, acc);
    }
    float* const to = part + segment * (16 * kRowTiles * kTokens);
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) to[(r * 16 + lane / 4 + (i >= 2 ? 8 : 0)) * kTokens + n * 8 + lane % 4 * 2 + i % 2] = acc[r][n][i];
      }
    }
  }
}

/// `ring`: kRingBytes, for one row tile on the tensor cores. kAheadX: registers of x on their way.
template <bool kMma, int kRowTiles, int kTokenTiles, int kAheadX = 32>
__device__ __forceinline__ void run_tile(const TileIn& in, float* part, char* ring) {
  if constexpr (kMma) {
    if (in.m->type == Type::kF8) {
      mma_tile_of<true, kRowTiles, kTokenTiles, kAheadX>(in, part, ring);
    } else {
      mma_tile_of<false, kRowTiles, kTokenTiles, kAheadX>(in, part, ring);
    }
  } else {
    plain_tile(in, part);
  }
}

/// Segments of a sum without leaves: one, or for the tensor cores one a warp, in whole chunks.
constexpr int kMmaSegments = kTileWarps;
inline __device__ int mma_segment_channels(int cols) { return max(1, (cols + 64 * kMmaSegments - 1) / (64 * kMmaSegments)) * 64; }

/// Segments in order.
__device__ __forceinline__ float sum_segments(const float* part, int64_t stride, int segments) {
  float sum = part[0];
  for (int i = 1; i < segments; ++i) sum += part[i * stride];
  return sum;
}

/// The canonical tree over leaves [a, b), a node of the whole tree. `part` is where leaf a lies.
__device__ __forceinline__ float sum_tree(const float* part, int64_t stride, int a, int b) {
  float stack[24];
  int depth = 0;
  for (int leaf = a; leaf < b; ++leaf) {
    stack[depth++] = part[(leaf - a) * stride];
    int low = a;
    int high = b;
    while (high - low > 1) {  // nodes that end here are complete
      if (high == leaf + 1) stack[depth - 2] += stack[depth - 1], --depth;
      const int middle = low + (high - low + 1) / 2;
      if (leaf < middle) {
        high = middle;
      } else {
        low = middle;
      }
    }
  }
  return stack[0];
}

/// End of the largest node of the tree over `total` leaves that begins at `begin` and ends at or before `end`.
__device__ __forceinline__ int cover_end(int total, int begin, int end) {
  int low = 0;
  int high = total;
  while (low < begin || high > end) {
    const int middle = low + (high - low + 1) / 2;
    if (begin < middle) {
      high = middle;
    } else {
      low = middle;
    }
  }
  return high;
}

}  // namespace lathe::kernels::cuda
