// Kimi delta attention: convolution, gates, gated norm, and the recurrence for any sizes. The fast recurrence is in kda_decode.cu.

#include "kernels/cuda/kda_tile.h"

namespace lathe::kernels::cuda {
namespace {

constexpr int kConvThreads = 128;
constexpr int kColumns = 32;  // of the plain recurrence

/// One thread a channel and sequence: it alone reads and writes its column of the ring.
__global__ void short_conv(const ConvArgs p) {
  const int c = static_cast<int>(blockIdx.x * kConvThreads + threadIdx.x);
  if (c >= p.channels) return;
  const int s = static_cast<int>(blockIdx.y);
  const int begin = p.batch.begin[s];
  const int rows = p.batch.begin[s + 1] - begin;
  if (rows == 0) return;
  const int start = p.batch.start[s];
  const int64_t column = p.slot[s] * p.ring_slot + c;
  // What the row at `own` reads of `position`: other rows of the step as the ring will keep them.
  const auto raw = [&](int position, int own) {
    if (position < 0) return 0.0f;
    if (position < start) return element(p.ring, p.ring_type, column + position % p.ring_rows * p.ring_row);
    const float value = p.x.data[(begin + position - start) * p.x.stride + c];
    return position == own || p.ring_type == Type::kF32 ? value : round_bf16(value);
  };
  for (int t = 0; t < rows; ++t) {
    const int own = start + t;
    float z = 0;
    for (int j = 0; j < p.taps; ++j) z = fmaf(element(p.weight, j * p.weight_stride + c), raw(own - (p.taps - 1) + j, own), z);
    p.out.data[(begin + t) * p.out.stride + c] = z / (1.0f + expf(-z));
  }
  const int kept = rows < p.ring_rows ? rows : p.ring_rows;
  for (int t = rows - kept; t < rows; ++t) {
    store(p.ring, p.ring_type, column + (start + t) % p.ring_rows * p.ring_row, p.x.data[(begin + t) * p.x.stride + c]);
  }
}

__global__ void kda_gate(const KdaGateArgs p) {
  const int64_t t = blockIdx.y;
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (c < p.heads) p.beta.data[t * p.beta.stride + c] = static_cast<float>(sigmoid(p.b.data[t * p.b.stride + c]));
  if (c >= p.heads * p.keys) return;
  const double rate = exp(static_cast<double>(element(p.a_log, c / p.keys)));
  const double a = static_cast<double>(p.a.data[t * p.a.stride + c]) + static_cast<double>(element(p.dt_bias, c));
  double g;
  if (p.bounded) {
    g = p.lower_bound * sigmoid(rate * a);
  } else {
    g = -rate * (a > 20.0 ? a : log1p(exp(a)));
  }
  p.g.data[t * p.g.stride + c] = static_cast<float>(g);
}

/// One warp a row and head.
__global__ void gated_norm(const GatedNormArgs p) {
  const int64_t t = blockIdx.x / p.heads;
  const int64_t h = blockIdx.x % p.heads;
  const float* const o = p.o.data + t * p.o.outer + h * p.o.inner;
  double squares = 0;
  for (int c = threadIdx.x; c < p.width; c += 32) squares += static_cast<double>(o[c]) * static_cast<double>(o[c]);
  const double factor = 1.0 / sqrt(warp_sum(squares) / p.width + static_cast<double>(p.eps));
  for (int c = threadIdx.x; c < p.width; c += 32) {
    const double gate = sigmoid(p.gate.data[t * p.gate.stride + h * p.width + c]);
    p.out.data[t * p.out.stride + h * p.width + c] =
        static_cast<float>(static_cast<double>(o[c]) * factor * static_cast<double>(element(p.weight, c)) * gate);
  }
}

enum class Role { kMain, kPairM, kPairH };

/// One warp: 32 columns of one head's state in shared memory, one thread a column, all rows of the sequence.
__global__ void recurrence_plain(const RecurrenceArgs p, Role role) {
  LATHE_DYNAMIC_SHARED(float, shared);
  float* const state = shared;  // [keys, 32]
  float* const q = state + p.keys * kColumns;
  float* const k = q + p.keys;
  float* const e = k + p.keys;
  const int s = static_cast<int>(blockIdx.y) / p.heads;
  const int64_t h = static_cast<int>(blockIdx.y) % p.heads;
  const int width = role == Role::kPairM ? p.keys : p.values;
  const int column = static_cast<int>(blockIdx.x) * kColumns + static_cast<int>(threadIdx.x);
  const bool mine = column < width;
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t size = static_cast<int64_t>(p.keys) * width;
  const int in = role == Role::kMain ? p.state_in[s] : -1;
  for (int c = 0; c < p.keys; ++c) {
    float value = role == Role::kPairM && c == column ? 1.0f : 0.0f;
    if (in >= 0 && mine) value = p.entering[in * p.entering_stride + h * size + static_cast<int64_t>(c) * width + column];
    state[c * kColumns + lane] = value;
  }
  for (int64_t t = p.batch.begin[s]; t < p.batch.begin[s + 1]; ++t) {
    __syncwarp();
    prepare_any(p, t, h, q, k, e);
    float guess = 0;
    for (int c = 0; c < p.keys; ++c) {
      float& x = state[c * kColumns + lane];
      x = fmaf(e[c], x, x);
      guess = fmaf(x, k[c], guess);
    }
    const float v = role == Role::kPairM || !mine ? 0.0f : p.v.data[t * p.v.outer + h * p.v.inner + column];
    const float u = p.beta.data[t * p.beta.stride + h] * (v - guess);
    float o = 0;
    for (int c = 0; c < p.keys; ++c) {
      float& x = state[c * kColumns + lane];
      x = fmaf(k[c], u, x);
      o = fmaf(x, q[c], o);
    }
    if (role != Role::kMain || !mine) continue;
    p.o.data[t * p.o.outer + h * p.o.inner + column] = o;
    const int out = p.state_out[t];
    for (int c = 0; out >= 0 && c < p.keys; ++c) {
      p.states[out * p.states_stride + h * size + static_cast<int64_t>(c) * width + column] = state[c * kColumns + lane];
    }
  }
  if (role == Role::kMain || !mine) return;
  float* const to = role == Role::kPairM ? p.pair_m + s * p.pair_m_stride : p.pair_h + s * p.pair_h_stride;
  for (int c = 0; c < p.keys; ++c) to[h * size + static_cast<int64_t>(c) * width + column] = state[c * kColumns + lane];
}

}  // namespace

void launch_short_conv(const ConvArgs& args, void* stream) {
  if (args.batch.sequences == 0 || args.channels == 0) return;
  const dim3 grid(blocks_for(args.channels, kConvThreads), static_cast<unsigned>(args.batch.sequences));
  LATHE_LAUNCH(short_conv, grid, dim3(kConvThreads), 0, stream, args);
}

void launch_kda_gate(const KdaGateArgs& args, void* stream) {
  if (args.tokens == 0 || args.heads == 0) return;
  const int width = args.heads * (args.keys > 1 ? args.keys : 1);
  const dim3 grid(blocks_for(width, kConvThreads), static_cast<unsigned>(args.tokens));
  LATHE_LAUNCH(kda_gate, grid, dim3(kConvThreads), 0, stream, args);
}

void launch_gated_norm(const GatedNormArgs& args, void* stream) {
  if (args.tokens == 0 || args.heads == 0) return;
  LATHE_LAUNCH(gated_norm, dim3(static_cast<unsigned>(args.tokens * args.heads)), dim3(32), 0, stream, args);
}

void launch_recurrence_plain(const RecurrenceArgs& args, void* stream) {
  if (args.batch.sequences == 0 || args.heads == 0) return;
  const int64_t shared = (args.keys * (kColumns + 3)) * int64_t{4};
  const auto rows = static_cast<unsigned>(args.batch.sequences * args.heads);
  LATHE_LAUNCH(recurrence_plain, dim3(blocks_for(args.values, kColumns), rows), dim3(kColumns), shared, stream, args, Role::kMain);
  if (args.pair_m == nullptr) return;
  LATHE_LAUNCH(recurrence_plain, dim3(blocks_for(args.keys, kColumns), rows), dim3(kColumns), shared, stream, args, Role::kPairM);
  LATHE_LAUNCH(recurrence_plain, dim3(blocks_for(args.values, kColumns), rows), dim3(kColumns), shared, stream, args, Role::kPairH);
}

}  // namespace lathe::kernels::cuda
