// Embedding, gather, elementwise ops, norms, hyper-connections, vision rope and attention. One block a row, statistics in double.

#include "kernels/cuda/device.h"

namespace lathe::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void embed(const EmbedArgs p) {
  const int64_t t = blockIdx.x;
  float* const out = p.out.data + t * p.out.stride;
  const int image = p.override_row != nullptr ? p.override_row[t] : -1;
  const int64_t id = p.ids[t];
  for (int c = threadIdx.x; c < p.table.cols; c += kThreads) {
    out[c] = image >= 0 ? p.overrides.data[image * p.overrides.stride + c] : element(p.table.values, p.table.type, id * p.table.stride + c);
  }
}

__global__ void gather_rows(const GatherArgs p) {
  const float* const x = p.x.data + p.rows[blockIdx.x] * p.x.stride;
  for (int c = threadIdx.x; c < p.width; c += kThreads) p.out.data[blockIdx.x * p.out.stride + c] = x[c];
}

enum class Kind { kAdd, kGelu, kSwiglu };
template <Kind kKind>
__global__ void elementwise(const ElementwiseArgs p) {
  const int64_t t = blockIdx.y;
  const int c = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (c >= p.width) return;
  const float a = p.a.data[t * p.a.stride + c];
  float out;
  if (kKind == Kind::kAdd) {
    out = a + p.b.data[t * p.b.stride + c];
  } else if (kKind == Kind::kGelu) {
    out = static_cast<float>(0.5 * a * (1.0 + erf(static_cast<double>(a) * 0.70710678118654752440)));
  } else {
    out = swiglu_value(a, p.b.data[t * p.b.stride + c], p.limit);
  }
  p.out.data[t * p.out.stride + c] = out;
}

template <bool kCentred>
__global__ void norm(const NormArgs p) {
  const int64_t t = blockIdx.x;
  const float* const x = p.x.data + t * p.x.stride;
  double mean = 0;
  if (kCentred) {
    double sum = 0;
    for (int c = threadIdx.x; c < p.width; c += kThreads) sum += static_cast<double>(x[c]);
    mean = block_sum(sum) / p.width;
  }
  double squares = 0;
  for (int c = threadIdx.x; c < p.width; c += kThreads) squares += (static_cast<double>(x[c]) - mean) * (static_cast<double>(x[c]) - mean);
  const double factor = 1.0 / sqrt(block_sum(squares) / p.width + static_cast<double>(p.eps));
  for (int c = threadIdx.x; c < p.width; c += kThreads) {
    double value = (static_cast<double>(x[c]) - mean) * factor * static_cast<double>(element(p.weight, c));
    if (kCentred) value += static_cast<double>(element(p.bias, c));
    p.out.data[t * p.out.stride + c] = static_cast<float>(value);
  }
}

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

constexpr int kMhcThreads = 512;

__device__ __forceinline__ float4 four_of(const float* at) { return *reinterpret_cast<const float4*>(at); }
__device__ __forceinline__ float4 four_of(const uint16_t* at) {
  const uint2 v = *reinterpret_cast<const uint2*>(at);
  return make_float4(__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xFFFF0000u), __uint_as_float(v.y << 16), __uint_as_float(v.y & 0xFFFF0000u));
}

/// Four streams: a thread takes four channels at a time for all 24 mixes, so that many loads are on their way.
template <class T>
__global__ void __launch_bounds__(kMhcThreads) mhc_in_four(const MhcInArgs p) {
  constexpr int kMixes = 24;
  __shared__ double parts[kMhcThreads / 32][kMixes + 1];
  __shared__ float m[kMixes];
  const float* const x = p.streams.data + static_cast<int64_t>(blockIdx.x) * p.streams.outer;
  const auto* const fn = static_cast<const T*>(p.fn.values);
  double sums[kMixes + 1] = {};
  for (int stream = 0; stream < 4; ++stream) {
    for (int c = static_cast<int>(threadIdx.x) * 4; c < p.width; c += kMhcThreads * 4) {
      const float4 v = four_of(x + stream * p.streams.inner + c);
      float4 w[kMixes];
#pragma unroll
      for (int i = 0; i < kMixes; ++i) w[i] = four_of(fn + i * p.fn.stride + stream * p.width + c);
      const double d[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int i = 0; i < kMixes; ++i) sums[i] += d[0] * w[i].x + d[1] * w[i].y + d[2] * w[i].z + d[3] * w[i].w;
      sums[kMixes] += d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + d[3] * d[3];
    }
  }
#pragma unroll
  for (int i = 0; i <= kMixes; ++i) {
    const double sum = warp_sum(sums[i]);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32][i] = sum;
  }
  __syncthreads();
  if (threadIdx.x < kMixes) {
    const int row = static_cast<int>(threadIdx.x);
    double sum = 0;
    double squares = 0;
    for (int i = 0; i < kMhcThreads / 32; ++i) sum += parts[i][row], squares += parts[i][kMixes];
    const double factor = 1.0 / sqrt(squares / (4 * p.width) + static_cast<double>(p.eps));
    const int third = row < 4 ? 0 : (row < 8 ? 1 : 2);
    m[row] = static_cast<float>(sum * factor * static_cast<double>(element(p.scale, third)) + static_cast<double>(element(p.base, row)));
  }
  __syncthreads();
  mhc_mix(p, m);
}

template <int kCount>  // 0: any
__global__ void mhc_out(const MhcOutArgs p) {
  __shared__ float post[kStreamsMax];
  __shared__ float comb[kStreamsMax * kStreamsMax];
  const int64_t t = blockIdx.y;
  const int s = kCount > 0 ? kCount : p.count;
  for (int i = threadIdx.x; i < s; i += kThreads) post[i] = p.post.data[t * p.post.stride + i];
  for (int i = threadIdx.x; i < s * s; i += kThreads) comb[i] = p.comb.data[t * p.comb.stride + i];
  __syncthreads();
  const int c = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (c >= p.width) return;
  float before[kCount > 0 ? kCount : kStreamsMax];
  for (int a = 0; a < s; ++a) before[a] = p.streams.data[t * p.streams.outer + a * p.streams.inner + c];
  const float y = p.y.data[t * p.y.stride + c];
  for (int b = 0; b < s; ++b) {
    float sum = post[b] * y;
    for (int a = 0; a < s; ++a) sum = fmaf(comb[a * s + b], before[a], sum);
    p.out.data[t * p.out.outer + b * p.out.inner + c] = sum;
  }
}

__global__ void stream_mean(const StreamMeanArgs p) {
  const int64_t t = blockIdx.y;
  const int c = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (c >= p.width) return;
  double sum = 0;
  for (int i = 0; i < p.count; ++i) sum += static_cast<double>(p.streams.data[t * p.streams.outer + i * p.streams.inner + c]);
  p.out.data[t * p.out.stride + c] = static_cast<float>(sum / p.count);
}

/// One warp a head; blockIdx.y: q or k.
__global__ void vision_rope(const VisionRopeArgs p) {
  const int64_t t = blockIdx.x / p.heads;
  const int h = static_cast<int>(blockIdx.x % p.heads);
  float* const x = p.qkv + t * p.row + blockIdx.y * p.part + static_cast<int64_t>(h) * p.width;
  const Vector& weight = blockIdx.y == 0 ? p.q_norm : p.k_norm;
  double squares = 0;
  for (int d = threadIdx.x; d < p.width; d += 32) squares += static_cast<double>(x[d]) * static_cast<double>(x[d]);
  const double factor = 1.0 / sqrt(warp_sum(squares) / p.width + static_cast<double>(p.eps));
  const int half = p.width / 2;
  const int quarter = half / 2;
  const int32_t* const place = p.positions + t * p.positions_stride;
  for (int d = threadIdx.x; d < half; d += 32) {
    const double frequency = pow(10000.0, -2.0 * (d % quarter) / half);
    const double angle = (d < quarter ? place[0] : place[1]) * frequency;
    const double a = static_cast<double>(x[d]) * factor * static_cast<double>(element(weight, d));
    const double b = static_cast<double>(x[d + half]) * factor * static_cast<double>(element(weight, d + half));
    x[d] = static_cast<float>(a * cos(angle) - b * sin(angle));
    x[d + half] = static_cast<float>(b * cos(angle) + a * sin(angle));
  }
}

/// One warp a row and head, keys one after the other.
__global__ void vision_attend(const VisionAttendArgs p) {
  constexpr int kEach = kVisionHeadMax / 32;
  const int64_t t = blockIdx.x / p.heads;
  const int64_t head = static_cast<int64_t>(blockIdx.x % p.heads) * p.width;
  int segment = 0;
  while (segment < p.segments && p.segment_begin[segment + 1] <= t) ++segment;
  if (segment == p.segments || t < p.segment_begin[0]) return;
  const int lane = static_cast<int>(threadIdx.x);
  const float scale = static_cast<float>(1.0 / sqrt(static_cast<double>(p.width)));
  float q[kEach], o[kEach];
  for (int i = 0; i < kEach; ++i) {
    const int d = lane + 32 * i;
    q[i] = d < p.width ? p.qkv[t * p.row + head + d] : 0.0f;
    o[i] = 0;
  }
  float most = -INFINITY;
  float sum = 0;
  for (int64_t key = p.segment_begin[segment]; key < p.segment_begin[segment + 1]; ++key) {
    const float* const k = p.qkv + key * p.row + p.part + head;
    const float* const v = k + p.part;
    float score = 0;
    for (int i = 0; i < kEach; ++i) {
      if (lane + 32 * i < p.width) score = fmaf(q[i], k[lane + 32 * i], score);
    }
    score = warp_sum(score) * scale;
    const float larger = score <= most ? most : score;
    const float kept = most == -INFINITY ? 0.0f : expf(most - larger);
    const float weight = expf(score - larger);
    most = larger;
    sum = fmaf(sum, kept, weight);
    for (int i = 0; i < kEach; ++i) {
      if (lane + 32 * i < p.width) o[i] = fmaf(o[i], kept, weight * v[lane + 32 * i]);
    }
  }
  for (int i = 0; i < kEach; ++i) {
    if (lane + 32 * i < p.width) p.out.data[t * p.out.stride + head + lane + 32 * i] = o[i] / sum;
  }
}

template <Kind kKind>
void launch_elementwise(const ElementwiseArgs& args, void* stream) {
  if (args.tokens == 0 || args.width == 0) return;
  for (int32_t t = 0; t < args.tokens; t += 65535) {
    ElementwiseArgs part = args;
    part.a.data += t * args.a.stride, part.out.data += t * args.out.stride;
    if (part.b.data != nullptr) part.b.data += t * args.b.stride;
    part.tokens = args.tokens - t < 65535 ? args.tokens - t : 65535;
    const dim3 grid(blocks_for(args.width, kThreads), static_cast<unsigned>(part.tokens));
    const auto kernel = elementwise<kKind>;
    LATHE_LAUNCH(kernel, grid, dim3(kThreads), 0, stream, part);
  }
}

}  // namespace

void launch_embed(const EmbedArgs& args, void* stream) {
  if (args.tokens > 0) LATHE_LAUNCH(embed, dim3(static_cast<unsigned>(args.tokens)), dim3(kThreads), 0, stream, args);
}
void launch_gather_rows(const GatherArgs& args, void* stream) {
  if (args.count > 0) LATHE_LAUNCH(gather_rows, dim3(static_cast<unsigned>(args.count)), dim3(kThreads), 0, stream, args);
}
void launch_add(const ElementwiseArgs& args, void* stream) { launch_elementwise<Kind::kAdd>(args, stream); }
void launch_gelu(const ElementwiseArgs& args, void* stream) { launch_elementwise<Kind::kGelu>(args, stream); }
void launch_swiglu(const ElementwiseArgs& args, void* stream) { launch_elementwise<Kind::kSwiglu>(args, stream); }
void launch_rms_norm(const NormArgs& args, void* stream) {
  if (args.tokens > 0) LATHE_LAUNCH(norm<false>, dim3(static_cast<unsigned>(args.tokens)), dim3(kThreads), 0, stream, args);
}
void launch_layer_norm(const NormArgs& args, void* stream) {
  if (args.tokens > 0) LATHE_LAUNCH(norm<true>, dim3(static_cast<unsigned>(args.tokens)), dim3(kThreads), 0, stream, args);
}
void launch_mhc_in(const MhcInArgs& args, void* stream) {
  if (args.tokens == 0) return;
  const dim3 grid(static_cast<unsigned>(args.tokens));
  const bool fours = args.count == 4 && args.width % 4 == 0 && args.streams.outer % 4 == 0 && args.streams.inner % 4 == 0 &&
                     args.fn.stride % 4 == 0 && reinterpret_cast<uintptr_t>(args.streams.data) % 16 == 0 &&
                     reinterpret_cast<uintptr_t>(args.fn.values) % 16 == 0;
  if (fours && args.fn.type == Type::kF32) {
    LATHE_LAUNCH(mhc_in_four<float>, grid, dim3(kMhcThreads), 0, stream, args);
  } else if (fours && args.fn.type == Type::kBF16) {
    LATHE_LAUNCH(mhc_in_four<uint16_t>, grid, dim3(kMhcThreads), 0, stream, args);
  } else {
    LATHE_LAUNCH(mhc_in, grid, dim3(kThreads), 0, stream, args);
  }
}
void launch_mhc_out(const MhcOutArgs& args, void* stream) {
  if (args.tokens == 0 || args.width == 0) return;
  const dim3 grid(blocks_for(args.width, kThreads), static_cast<unsigned>(args.tokens));
  if (args.count == 4) {
    LATHE_LAUNCH(mhc_out<4>, grid, dim3(kThreads), 0, stream, args);
  } else {
    LATHE_LAUNCH(mhc_out<0>, grid, dim3(kThreads), 0, stream, args);
  }
}
void launch_stream_mean(const StreamMeanArgs& args, void* stream) {
  if (args.tokens == 0 || args.width == 0) return;
  const dim3 grid(blocks_for(args.width, kThreads), static_cast<unsigned>(args.tokens));
  LATHE_LAUNCH(stream_mean, grid, dim3(kThreads), 0, stream, args);
}
void launch_vision_rope(const VisionRopeArgs& args, void* stream) {
  if (args.tokens == 0 || args.heads == 0) return;
  LATHE_LAUNCH(vision_rope, dim3(static_cast<unsigned>(args.tokens * args.heads), 2), dim3(32), 0, stream, args);
}
void launch_vision_attend(const VisionAttendArgs& args, void* stream) {
  if (args.tokens == 0 || args.heads == 0) return;
  LATHE_LAUNCH(vision_attend, dim3(static_cast<unsigned>(args.tokens * args.heads)), dim3(32), 0, stream, args);
}

}  // namespace lathe::kernels::cuda
