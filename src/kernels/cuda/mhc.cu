// Entering hyper-connections: mixes of all streams, Sinkhorn, the mixed input.
//
// Parts  Four streams: a block has 512 channels of a stream and makes their share of all 24 mixes and of the squares, for one to 16 rows; a second kernel adds
//        the shares in one order, in double. So many blocks share the reading of fn even for one row, and the bits of a row depend on it alone.

#include "kernels/cuda/device.h"

namespace lathe::kernels::cuda {
namespace {

constexpr int kThreads = 256;

/// Softmax over destinations, then alternating divisions by column and row sums, by the first warp. cells: two arrays of S·S, the result is in the one returned.
__device__ float* sinkhorn(float* cells, float* other, int s, int iterations, float eps) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  for (int i = lane; i < s * s; i += 32) {
    const int a = i / s * s;
    float most = cells[a];
    for (int b = 1; b < s; ++b) most = cells[a + b] > most || cells[a + b] != cells[a + b] ? cells[a + b] : most;
    float sum = 0;
    for (int b = 0; b < s; ++b) sum += expf(cells[a + b] - most);
    other[i] = expf(cells[i] - most) / sum + eps;
  }
  __syncwarp();
  for (int pass = 0; pass < 2 * iterations - 1; ++pass) {
    float* const swap = cells;
    cells = other, other = swap;
    for (int i = lane; i < s * s; i += 32) {
      const int first = pass % 2 == 0 ? i % s : i / s * s;
      const int step = pass % 2 == 0 ? s : 1;
      float sum = 0;
      for (int j = 0; j < s; ++j) sum += cells[first + j * step];
      other[i] = cells[i] / (sum + eps);
    }
    __syncwarp();
  }
  return other;
}

/// From the mixes m to post, comb and the mixed input x, by the whole block; m is in shared memory and complete.
__device__ void mhc_mix(const MhcInArgs& p, float* m) {
  __shared__ float spare[kStreamsMax * kStreamsMax];
  __shared__ float pre[kStreamsMax];
  const int64_t t = blockIdx.x;
  const int s = p.count;
  const float* const x = p.streams.data + t * p.streams.outer;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x < 32) {
    if (lane < s) {
      pre[lane] = static_cast<float>(sigmoid(m[lane])) + p.hc_eps;
      p.post.data[t * p.post.stride + lane] = static_cast<float>(2.0 * sigmoid(m[s + lane]));
    }
    const float* const comb = sinkhorn(m + 2 * s, spare, s, p.iterations, p.hc_eps);
    for (int i = lane; i < s * s; i += 32) p.comb.data[t * p.comb.stride + i] = comb[i];
  }
  __syncthreads();
  for (int c = threadIdx.x; c < p.width; c += static_cast<int>(blockDim.x)) {
    float sum = 0;
    for (int i = 0; i < s; ++i) sum = fmaf(pre[i], x[i * p.streams.inner + c], sum);
    p.x.data[t * p.x.stride + c] = sum;
  }
}

__global__ void mhc_in(const MhcInArgs p) {
  __shared__ float m[kStreamsMax * (kStreamsMax + 2)];
  const int64_t t = blockIdx.x;
  const int s = p.count;
  const int flat = s * p.width;
  const float* const x = p.streams.data + t * p.streams.outer;
  const auto at = [&](int i) { return x[i / p.width * p.streams.inner + i % p.width]; };
  double squares = 0;
  for (int i = threadIdx.x; i < flat; i += kThreads) squares += static_cast<double>(at(i)) * static_cast<double>(at(i));
  const double factor = 1.0 / sqrt(block_sum(squares) / flat + static_cast<double>(p.eps));
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int row = static_cast<int>(threadIdx.x) / 32; row < p.fn.rows; row += kThreads / 32) {
    double sum = 0;
    for (int i = lane; i < flat; i += 32)
      sum += static_cast<double>(at(i)) * static_cast<double>(element(p.fn.values, p.fn.type, row * p.fn.stride + i));
    sum = warp_sum(sum);
    const int third = row < s ? 0 : (row < 2 * s ? 1 : 2);
    if (lane == 0)
      m[row] = static_cast<float>(sum * factor * static_cast<double>(element(p.scale, third)) + static_cast<double>(element(p.base, row)));
  }
  __syncthreads();
  mhc_mix(p, m);
}

constexpr int kMixes = 24;
constexpr int kShares = 32;  // values of a slice: mixes, the squares, zeros
constexpr int kSliceThreads = 128;
constexpr int kSliceChannels = 4 * kSliceThreads;

/// Lane i gets the sum of v[i] over the warp.
template <int kStep = 16>
__device__ __forceinline__ float spread_sum(float (&v)[32]) {
  const bool upper = (static_cast<int>(threadIdx.x) & kStep) != 0;
#pragma unroll
  for (int i = 0; i < kStep; ++i) {
    const float sent = upper ? v[i] : v[i + kStep];
    const float kept = upper ? v[i + kStep] : v[i];
    v[i] = kept + __shfl_xor_sync(0xFFFFFFFFu, sent, kStep);
  }
  if constexpr (kStep > 1) return spread_sum<kStep / 2>(v);
  return v[0];
}

/// parts [tokens, slices, 32]. A block keeps its piece of fn for kRows rows.
template <class T, int kRows>
__global__ void __launch_bounds__(kSliceThreads) mhc_slices(const MhcInArgs p, float* parts) {
  __shared__ float shares[kSliceThreads / 32][kRows][kShares];
  const int per_stream = (p.width + kSliceChannels - 1) / kSliceChannels;
  const int slice = static_cast<int>(blockIdx.x);
  const int stream = slice / per_stream;
  const int c = slice % per_stream * kSliceChannels + static_cast<int>(threadIdx.x) * 4;
  const int first = static_cast<int>(blockIdx.y) * kRows;
  const int rows = min(kRows, p.tokens - first);
  const auto* const fn = static_cast<const T*>(p.fn.values) + stream * p.width + c;
  const float* const streams = p.streams.data + first * p.streams.outer + stream * p.streams.inner + c;
  const bool there = c < p.width;
  float4 next = there ? four_of(streams) : make_float4(0, 0, 0, 0);
  float4 w[kMixes];
#pragma unroll
  for (int i = 0; i < kMixes; ++i) w[i] = there ? four_of(fn + i * p.fn.stride) : make_float4(0, 0, 0, 0);
  for (int r = 0; r < rows; ++r) {
    const float4 x = next;
    if (r + 1 < rows && there) next = four_of(streams + (r + 1) * p.streams.outer);
    float v[kShares] = {};
#pragma unroll
    for (int i = 0; i < kMixes; ++i) v[i] = fmaf(x.x, w[i].x, fmaf(x.y, w[i].y, fmaf(x.z, w[i].z, x.w * w[i].w)));
    v[kMixes] = fmaf(x.x, x.x, fmaf(x.y, x.y, fmaf(x.z, x.z, x.w * x.w)));
    shares[threadIdx.x / 32][r][threadIdx.x % 32] = spread_sum(v);
  }
  __syncthreads();
  const int i = static_cast<int>(threadIdx.x) % kShares;
  for (int r = static_cast<int>(threadIdx.x) / kShares; r < rows; r += kSliceThreads / kShares) {
    const float sum = (shares[0][r][i] + shares[1][r][i]) + (shares[2][r][i] + shares[3][r][i]);
    parts[(static_cast<int64_t>(first + r) * gridDim.x + slice) * kShares + i] = sum;
  }
}

/// Sinkhorn of 4 x 4, a row a lane (again in every four lanes): softmax of the row, then alternating divisions by column and row sums.
__device__ __forceinline__ void sinkhorn_four(float (&cell)[4], int iterations, float eps) {
  float most = cell[0];
#pragma unroll
  for (int b = 1; b < 4; ++b) most = cell[b] > most || cell[b] != cell[b] ? cell[b] : most;
  float sum = 0;
#pragma unroll
  for (int b = 0; b < 4; ++b) sum += cell[b] = expf(cell[b] - most);
#pragma unroll
  for (int b = 0; b < 4; ++b) cell[b] = cell[b] / sum + eps;
  for (int pass = 0; pass < 2 * iterations - 1; ++pass) {
    if (pass % 2 == 0) {
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        float column = cell[b] + __shfl_xor_sync(0xFFFFFFFFu, cell[b], 1);
        column += __shfl_xor_sync(0xFFFFFFFFu, column, 2);
        cell[b] *= __fdividef(1.0f, column + eps);
      }
    } else {
      const float factor = __fdividef(1.0f, (cell[0] + cell[1]) + (cell[2] + cell[3]) + eps);
#pragma unroll
      for (int b = 0; b < 4; ++b) cell[b] *= factor;
    }
  }
}

constexpr int kFinishThreads = 256;
constexpr int kAhead = 2;

/// A block a row: the first warp goes from the mixes to post and comb, the others mix the streams as soon as they know how.
__global__ void __launch_bounds__(kFinishThreads, 4) mhc_finish(const MhcInArgs p, const float* parts, int slices) {
  constexpr int kGroups = kFinishThreads / 32;
  __shared__ double sums[kGroups][32];
  __shared__ float pre[4];
  const int64_t t = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int mine = (static_cast<int>(threadIdx.x) - 32) * 4;
  constexpr int kStep = (kFinishThreads - 32) * 4;
  const float* const x = p.streams.data + t * p.streams.outer;
  float4 v[kAhead][4];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const int c = mine + i * kStep;
      v[i][s] = c >= 0 && c < p.width ? four_of(x + s * p.streams.inner + c) : make_float4(0, 0, 0, 0);
    }
  }
  double sum = 0;
  for (int i = warp; i < slices; i += kGroups) sum += static_cast<double>(parts[(t * slices + i) * kShares + lane]);
  sums[warp][lane] = sum;
  __syncthreads();
  float m = 0;
  if (warp == 0) {
    sum = 0;
    for (int i = 0; i < kGroups; ++i) sum += sums[i][lane];
    const double squares = __shfl_sync(0xFFFFFFFFu, sum, kMixes);
    const double factor = 1.0 / sqrt(squares / (4 * p.width) + static_cast<double>(p.eps));
    const int third = lane < 4 ? 0 : (lane < 8 ? 1 : 2);
    if (lane < kMixes) {
      m = static_cast<float>(sum * factor * static_cast<double>(element(p.scale, third)) + static_cast<double>(element(p.base, lane)));
    }
    const double open = sigmoid(m);
    if (lane < 4) pre[lane] = static_cast<float>(open) + p.hc_eps;
    if (lane >= 4 && lane < 8) p.post.data[t * p.post.stride + lane - 4] = static_cast<float>(2.0 * open);
  }
  __syncthreads();
  if (warp == 0) {
    float cell[4];
#pragma unroll
    for (int b = 0; b < 4; ++b) cell[b] = __shfl_sync(0xFFFFFFFFu, m, 8 + lane % 4 * 4 + b);
    sinkhorn_four(cell, p.iterations, p.hc_eps);
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      if (lane < 4) p.comb.data[t * p.comb.stride + lane * 4 + b] = cell[b];
    }
    return;
  }
  const float f[4] = {pre[0], pre[1], pre[2], pre[3]};
  float* const out = p.x.data + t * p.x.stride;
  const auto mix = [&](const float4* s, int c) {
    out[c] = fmaf(f[3], s[3].x, fmaf(f[2], s[2].x, fmaf(f[1], s[1].x, f[0] * s[0].x)));
    out[c + 1] = fmaf(f[3], s[3].y, fmaf(f[2], s[2].y, fmaf(f[1], s[1].y, f[0] * s[0].y)));
    out[c + 2] = fmaf(f[3], s[3].z, fmaf(f[2], s[2].z, fmaf(f[1], s[1].z, f[0] * s[0].z)));
    out[c + 3] = fmaf(f[3], s[3].w, fmaf(f[2], s[2].w, fmaf(f[1], s[1].w, f[0] * s[0].w)));
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (mine + i * kStep < p.width) mix(v[i], mine + i * kStep);
  }
  for (int c = mine + kAhead * kStep; c < p.width; c += kStep) {
    float4 more[4];
#pragma unroll
    for (int s = 0; s < 4; ++s) more[s] = four_of(x + s * p.streams.inner + c);
    mix(more, c);
  }
}

constexpr int kRowsAtOnce = 4096;  // bounds the scratch

int slices_of(const MhcInArgs& args) { return 4 * static_cast<int>(blocks_for(args.width, kSliceChannels)); }

template <class T, int kRows>
void launch_rows(const MhcInArgs& args, float* parts, void* stream) {
  const auto kernel = mhc_slices<T, kRows>;
  LATHE_LAUNCH(kernel, dim3(static_cast<unsigned>(slices_of(args)), blocks_for(args.tokens, kRows)), dim3(kSliceThreads), 0, stream, args, parts);
}
template <class T>
void launch_slices(const MhcInArgs& args, float* parts, void* stream) {
  if (args.tokens < 16) return launch_rows<T, 1>(args, parts, stream);
  if (args.tokens < 256) return launch_rows<T, 4>(args, parts, stream);
  launch_rows<T, 16>(args, parts, stream);
}

}  // namespace

void launch_mhc_in(const MhcInArgs& args, void* stream) {
  if (args.tokens > 0) LATHE_LAUNCH(mhc_in, dim3(static_cast<unsigned>(args.tokens)), dim3(kThreads), 0, stream, args);
}

int64_t mhc_parts_bytes(const MhcInArgs& args) {
  const bool fits = args.tokens > 0 && args.width > 0 && args.count == 4 && args.width % 4 == 0 && args.streams.outer % 4 == 0 &&
                    args.streams.inner % 4 == 0 && args.fn.stride % 4 == 0 && reinterpret_cast<uintptr_t>(args.streams.data) % 16 == 0 &&
                    reinterpret_cast<uintptr_t>(args.fn.values) % 16 == 0 && (args.fn.type == Type::kF32 || args.fn.type == Type::kBF16);
  return fits ? int64_t{args.tokens < kRowsAtOnce ? args.tokens : kRowsAtOnce} * slices_of(args) * kShares * 4 : 0;
}

void launch_mhc_in_parts(const MhcInArgs& args, float* parts, void* stream) {
  for (int32_t begin = 0; begin < args.tokens; begin += kRowsAtOnce) {
    MhcInArgs some = args;
    some.streams.data += begin * args.streams.outer, some.x.data += begin * args.x.stride;
    some.post.data += begin * args.post.stride, some.comb.data += begin * args.comb.stride;
    some.tokens = args.tokens - begin < kRowsAtOnce ? args.tokens - begin : kRowsAtOnce;
    if (args.fn.type == Type::kF32) {
      launch_slices<float>(some, parts, stream);
    } else {
      launch_slices<uint16_t>(some, parts, stream);
    }
    LATHE_LAUNCH(mhc_finish, dim3(static_cast<unsigned>(some.tokens)), dim3(kFinishThreads), 0, stream, some, parts, slices_of(args));
  }
}

}  // namespace lathe::kernels::cuda
