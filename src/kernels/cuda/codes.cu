// Rows of activations as INT8 codes, and their products for sizes that product_codes.cu does not take.

#include "kernels/cuda/codes_args.h"
#include "kernels/cuda/kept.h"
#include "kernels/cuda/wgmma_codes.h"

namespace lathe::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ unsigned block_most(unsigned most) {
  __shared__ unsigned parts[kThreads / 32];
  for (int mask = 16; mask > 0; mask >>= 1) most = max(most, __shfl_xor_sync(0xFFFFFFFFu, most, mask));
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = most;
  __syncthreads();
  for (const unsigned other : parts) most = max(most, other);
  return most;
}

/// A block a row.
__global__ void __launch_bounds__(kThreads) to_codes(const ToCodesArgs p) {
  launch_next();
  const int64_t t = blockIdx.x;
  for (int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x); i < p.counter_count; i += static_cast<int>(gridDim.x) * kThreads)
    p.counters[i] = 0;
  if (t >= p.tokens) return;
  const float* const x = p.x.data + t * p.x.stride;
  const bool four = p.cols % 4 == 0 && p.x.stride % 4 == 0 && reinterpret_cast<uintptr_t>(p.x.data) % 16 == 0;
  const int first = static_cast<int>(threadIdx.x) * 4;
  const auto at = [&](int c) {
    if (four) return c < p.cols ? four_of(x + c) : make_float4(0, 0, 0, 0);
    const auto one = [&](int i) { return c + i < p.cols ? x[c + i] : 0.0f; };
    return make_float4(one(0), one(1), one(2), one(3));
  };
  unsigned most = 0;
  if (p.amax != nullptr) {
    most = magnitude_bits(p.amax[t]);
  } else {
#pragma unroll 4
    for (int c = first; c < p.cols; c += 4 * kThreads) {
      const float4 v = at(c);
      most = max(max(max(most, magnitude_bits(v.x)), max(magnitude_bits(v.y), magnitude_bits(v.z))), magnitude_bits(v.w));
    }
    most = block_most(most);
  }
  const CodeScale scale = code_scale(most, 127.0f);
  if (threadIdx.x == 0) p.scales[t] = scale.scale;
  const float inverse[4] = {scale.inverse, scale.inverse, scale.inverse, scale.inverse};
#pragma unroll 4
  for (int c = first; c < (p.cols + kCodesChunk - 1) / kCodesChunk * kCodesChunk; c += 4 * kThreads) {
    keep_four<Kept::kI8>(p.codes, code_place(p.rows, t, c), at(c), inverse);
  }
}

/// A warp an output.
__global__ void __launch_bounds__(kThreads) codes_plain(const CodesArgs p, int number) {
  const CodesPart& part = p.parts[number];
  const int64_t row = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  const int64_t t = blockIdx.y;
  if (row >= part.rows) return;
  int sum = 0;
  for (int c = static_cast<int>(threadIdx.x) % 32; c < p.cols; c += 32) {
    sum += static_cast<int>(part.weight[row * part.stride + c]) * static_cast<int>(p.x[code_place(p.x_rows, t, c)]);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 != 0) return;
  if (part.integers) {
    static_cast<int32_t*>(part.y)[t * part.y_stride + row] = sum;
    return;
  }
  const float value = __fmul_rn(__fmul_rn(static_cast<float>(sum), p.x_scales[t]), part.scales[row * part.scale_stride]);
  static_cast<float*>(part.y)[t * part.y_stride + row] = part.bias.data != nullptr ? __fadd_rn(value, element(part.bias, row)) : value;
}

}  // namespace

void launch_to_codes(const ToCodesArgs& args, void* stream) {
  if (args.tokens == 0) return;
  LATHE_LAUNCH(to_codes, dim3(static_cast<unsigned>(args.tokens)), dim3(kThreads), 0, stream, args);
}

void launch_codes_plain(const CodesArgs& args, void* stream) {
  if (args.tokens == 0) return;
  for (int i = 0; i < args.count; ++i) {
    if (args.parts[i].rows == 0) continue;
    const dim3 grid(blocks_for(args.parts[i].rows, kThreads / 32), static_cast<unsigned>(args.tokens));
    LATHE_LAUNCH(codes_plain, grid, dim3(kThreads), 0, stream, args, i);
  }
}

}  // namespace lathe::kernels::cuda
