// Experts with INT8 weights: a warp a row of an expert's matrices, for all its tokens; integers by four at a time on the plain units (docs/kernels/codes.md).

#include "kernels/cuda/wgmma_codes.h"

namespace lathe::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kTokens = 8;  // for which a row is read once

/// One row of a matrix of an expert.
struct CodesRow {
  const int8_t* values;
  float scale;
};
__device__ __forceinline__ CodesRow row_of(const MoeArgs& p, const Matrix& m, int which, int e, int row) {
  const auto* const scales = static_cast<const float*>(p.table[(3 + which) * p.experts + e]);
  return {static_cast<const int8_t*>(p.table[which * p.experts + e]) + row * m.stride, scales[(row + m.row_offset) * m.scale_stride]};
}
/// 16 neighbours of two rows of codes.
__device__ __forceinline__ int dot(const uint4& a, const uint4& b, int sum) {
  sum = __dp4a(static_cast<int>(a.x), static_cast<int>(b.x), sum), sum = __dp4a(static_cast<int>(a.y), static_cast<int>(b.y), sum);
  return __dp4a(static_cast<int>(a.w), static_cast<int>(b.w), __dp4a(static_cast<int>(a.z), static_cast<int>(b.z), sum));
}

/// Sums of kRows rows with the rows index[i] / divisor of x, i < count.
template <int kRows>
__device__ __forceinline__ void sums_of(const CodesRow* rows, int cols, const CodesRows& x, const int32_t* index, int divisor, int count,
                                        int (*sums)[kTokens]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  bool wide = cols % 16 == 0;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    wide = wide && reinterpret_cast<uintptr_t>(rows[r].values) % 16 == 0;
#pragma unroll
    for (int i = 0; i < kTokens; ++i) sums[r][i] = 0;
  }
  int64_t t[kTokens];
#pragma unroll
  for (int i = 0; i < kTokens; ++i) t[i] = index[i < count ? i : 0] / divisor;
  if (wide) {
#pragma unroll 2
    for (int c = lane * 16; c < cols; c += 32 * 16) {
      uint4 w[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) w[r] = *reinterpret_cast<const uint4*>(rows[r].values + c);
#pragma unroll
      for (int i = 0; i < kTokens; ++i) {
        if (i >= count) break;
        const uint4 v = *reinterpret_cast<const uint4*>(x.codes + code_place(x.rows, t[i], c));
#pragma unroll
        for (int r = 0; r < kRows; ++r) sums[r][i] = dot(w[r], v, sums[r][i]);
      }
    }
  } else {
    for (int c = lane; c < cols; c += 32) {
#pragma unroll
      for (int i = 0; i < kTokens; ++i) {
        const int v = x.codes[code_place(x.rows, t[i], c)];
#pragma unroll
        for (int r = 0; r < kRows; ++r) sums[r][i] += v * static_cast<int>(rows[r].values[c]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int i = 0; i < kTokens; ++i) sums[r][i] = warp_sum(sums[r][i]);
  }
}
__device__ __forceinline__ float value_of(int sum, float x_scale, float scale) {
  return __fmul_rn(__fmul_rn(static_cast<float>(sum), x_scale), scale);
}

/// kDown: rows of down; else of gate and up.
template <bool kDown>
__global__ void __launch_bounds__(32 * kWarps) experts_codes(const MoeArgs p, const CodesRows x) {
  constexpr int kRows = kDown ? 1 : 2;
  const int e = static_cast<int>(blockIdx.y);
  const int all = p.counts[e];
  const int row = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (all == 0 || row >= (kDown ? p.width : p.inner)) return;
  CodesRow rows[kRows];
  if constexpr (kDown) {
    rows[0] = row_of(p, p.down, 2, e, row);
  } else {
    rows[0] = row_of(p, p.gate, 0, e, row), rows[1] = row_of(p, p.up, 1, e, row);
  }
  for (int first = 0; first < all; first += kTokens) {
    const int32_t* const pairs = p.lists + static_cast<int64_t>(e) * p.tokens + first;
    const int count = min(all - first, kTokens);
    int sums[kRows][kTokens];
    sums_of<kRows>(rows, kDown ? p.down.cols : p.gate.cols, x, pairs, kDown ? 1 : p.chosen, count, sums);
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      if (i >= count || lane != i) continue;
      const int64_t pair = pairs[i];
      const float x_scale = x.scales[kDown ? pair : pair / p.chosen];
      const float value = value_of(sums[0][i], x_scale, rows[0].scale);
      if constexpr (kDown) {
        p.leaves[pair * p.width + row] = p.weights.data[pair / p.chosen * p.weights.stride + pair % p.chosen] * value;
      } else {
        p.hidden[pair * p.inner + row] = swiglu_value(value, value_of(sums[1][i], x_scale, rows[1].scale), p.limit);
      }
    }
  }
}

void codes_from(const Rows& x, int32_t count, int32_t cols, const CodesRows& to, void* stream) {
  launch_to_codes({.x = x,
                   .amax = nullptr,
                   .codes = to.codes,
                   .rows = to.rows,
                   .scales = to.scales,
                   .counters = nullptr,
                   .tokens = count,
                   .cols = cols,
                   .counter_count = 0},
                  stream);
}

}  // namespace

void launch_moe_codes(const MoeArgs& args, const ExpertTable& table, const CodesRows& x, const CodesRows& hidden, void* stream) {
  if (args.tokens == 0 || args.width == 0) return;
  if (has_experts(args)) {
    launch_moe_lists(args, table, stream);
    codes_from(args.x, args.tokens, args.gate.cols, x, stream);
    const auto experts = static_cast<unsigned>(args.experts);
    LATHE_LAUNCH(experts_codes<false>, dim3(blocks_for(args.inner, kWarps), experts), dim3(32 * kWarps), 0, stream, args, x);
    codes_from({args.hidden, args.inner}, args.tokens * args.chosen, args.inner, hidden, stream);
    LATHE_LAUNCH(experts_codes<true>, dim3(blocks_for(args.width, kWarps), experts), dim3(32 * kWarps), 0, stream, args, hidden);
  }
  launch_moe_combine(args, stream);
}

}  // namespace lathe::kernels::cuda
