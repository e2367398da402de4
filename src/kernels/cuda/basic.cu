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

/// Width up to 4 · kFours · kNormThreads: a row is read once.
constexpr int kNormThreads = 512;
template <class T, int kFours>
__global__ void __launch_bounds__(kNormThreads) rms_norm_fours(const NormArgs p) {
  const int64_t t = blockIdx.x;
  const auto* const weight = static_cast<const T*>(p.weight.data);
  float4 x[kFours], w[kFours];
#pragma unroll
  for (int i = 0; i < kFours; ++i) {
    const int c = (i * kNormThreads + static_cast<int>(threadIdx.x)) * 4;
    x[i] = c < p.width ? four_of(p.x.data + t * p.x.stride + c) : make_float4(0, 0, 0, 0);
    w[i] = c < p.width ? four_of(weight + c) : make_float4(0, 0, 0, 0);
  }
  double squares = 0;
#pragma unroll
  for (int i = 0; i < kFours; ++i) {
    const double d[4] = {x[i].x, x[i].y, x[i].z, x[i].w};
    squares += (d[0] * d[0] + d[1] * d[1]) + (d[2] * d[2] + d[3] * d[3]);
  }
  const auto factor = static_cast<float>(1.0 / sqrt(block_sum(squares) / p.width + static_cast<double>(p.eps)));
#pragma unroll
  for (int i = 0; i < kFours; ++i) {
    const int c = (i * kNormThreads + static_cast<int>(threadIdx.x)) * 4;
    if (c >= p.width) break;
    *reinterpret_cast<float4*>(p.out.data + t * p.out.stride + c) =
        make_float4(x[i].x * factor * w[i].x, x[i].y * factor * w[i].y, x[i].z * factor * w[i].z, x[i].w * factor * w[i].w);
  }
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
  if (args.tokens == 0) return;
  const dim3 grid(static_cast<unsigned>(args.tokens));
  const auto aligned = [](const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; };
  const bool fours = args.width % 4 == 0 && args.width <= 16 * kNormThreads && args.x.stride % 4 == 0 && args.out.stride % 4 == 0 &&
                     aligned(args.x.data) && aligned(args.out.data) && aligned(args.weight.data);
  const bool wide = args.width > 8 * kNormThreads;
  const auto run = [&](auto kernel) { LATHE_LAUNCH(kernel, grid, dim3(kNormThreads), 0, stream, args); };
  if (fours && args.weight.type == Type::kF32) return wide ? run(rms_norm_fours<float, 4>) : run(rms_norm_fours<float, 2>);
  if (fours && args.weight.type == Type::kBF16) return wide ? run(rms_norm_fours<uint16_t, 4>) : run(rms_norm_fours<uint16_t, 2>);
  LATHE_LAUNCH(norm<false>, grid, dim3(kThreads), 0, stream, args);
}
void launch_layer_norm(const NormArgs& args, void* stream) {
  if (args.tokens > 0) LATHE_LAUNCH(norm<true>, dim3(static_cast<unsigned>(args.tokens)), dim3(kThreads), 0, stream, args);
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
