// The gated delta rule for heads of 128 x 128: the state in registers, read once and written once (docs/kernels/kda_decode.md).
//
// Order of additions  Both dot products over the 128 key channels go by classes of channel mod 8, each from low to high, then classes {c, c+4}, {.., +2}, {.., +1}.
// All tilings keep it, so a row has the same bits in every batch.

#include "kernels/cuda/kda_tile.h"

namespace lathe::kernels::cuda {
namespace {

/// Warps that fit one multiprocessor: 168 registers for tiles of 32 columns, 128 for tiles of 16.
template <int kCols>
inline constexpr int kWarpsPerSm = kCols == 32 ? 12 : 16;

/// Warps that know nothing of each other: each has kCols columns of one head and prepares its tokens itself.
/// kEarly: the state is asked for before q, k and g. kShared: the block is one head, its first warp prepares for all.
template <int kCols, int kWarps, bool kEarly, bool kShared>
__global__ void __launch_bounds__(kWarps * 32, kWarpsPerSm<kCols> / kWarps) recurrence_tiles(const RecurrenceArgs p) {
  __shared__ Channel shared[kShared ? 1 : kWarps][kKeys];
  __shared__ float shared_qk;
  constexpr int kTilesPerHead = kValues / kCols;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int tile_number = static_cast<int>(blockIdx.x) * kWarps + warp;
  const int64_t h = tile_number / kTilesPerHead % p.heads;
  const int s = tile_number / (kTilesPerHead * p.heads);
  if (s >= p.batch.sequences) return;  // whole warps; with kShared whole blocks
  const int first_column = tile_number % kTilesPerHead * kCols;
  Channel* const channels = shared[kShared ? 0 : warp];
  const int begin = p.batch.begin[s];
  const int end = p.batch.begin[s + 1];
  const int in = p.state_in[s];
  const int64_t place = h * kStateSize + first_column;
  Tile<kCols> tile;
  const auto enter = [&]() {
    if (in >= 0) {
      tile.load(p.entering + in * p.entering_stride + place);
    } else {
      tile.zero();
    }
  };
  if (kEarly) enter();
  for (int64_t t = begin; t < end; ++t) {
    float qk = 0;
    if (kShared) {
      if (warp == 0) {
        qk = prepare(p, t, h, channels);
        if (threadIdx.x == 0) shared_qk = qk;
      }
      __syncthreads();
      qk = shared_qk;
    } else {
      qk = prepare(p, t, h, channels);
      __syncwarp();
    }
    if (!kEarly && t == begin) enter();
    step_row<kCols>(p, t, h, first_column, channels, qk, tile);
    const int out = p.state_out[t];
    if (out >= 0) tile.save(p.states + out * p.states_stride + place);
    if (t + 1 < end) {
      if (kShared) {
        __syncthreads();
      } else {
        __syncwarp();
      }
    }
  }
}

/// The plain form: one thread a column, the block is one head; channels in order, so other bits than the tiles.
__global__ void __launch_bounds__(kValues, 3) recurrence_columns(const RecurrenceArgs p) {
  __shared__ Channel channels[kKeys];
  __shared__ float shared_qk;
  const int s = static_cast<int>(blockIdx.x) / p.heads;
  const int64_t h = static_cast<int>(blockIdx.x) % p.heads;
  const int v = static_cast<int>(threadIdx.x);
  const int in = p.state_in[s];
  float state[kKeys];
  for (int64_t t = p.batch.begin[s]; t < p.batch.begin[s + 1]; ++t) {
    __syncthreads();
    if (threadIdx.x < 32) {
      const float qk = prepare(p, t, h, channels);
      if (threadIdx.x == 0) shared_qk = qk;
    }
    __syncthreads();
    if (t == p.batch.begin[s]) {
      const float* const from = p.entering + in * p.entering_stride + h * kStateSize + v;
#pragma unroll
      for (int c = 0; c < kKeys; ++c) state[c] = in >= 0 ? from[c * kValues] : 0.0f;
    }
    float a = 0, b = 0;
#pragma unroll
    for (int c = 0; c < kKeys; ++c) {
      const Channel now = channel_now(channels + c);
      a = fmaf(state[c], now.k_decayed, a), b = fmaf(state[c], now.q_decayed, b);
    }
    const float u = p.beta.data[t * p.beta.stride + h] * (p.v.data[t * p.v.outer + h * p.v.inner + v] - a);
    p.o.data[t * p.o.outer + h * p.o.inner + v] = fmaf(shared_qk, u, b);
#pragma unroll
    for (int c = 0; c < kKeys; ++c) {
      const Channel now = channel_now(channels + c);
      state[c] += fmaf(now.e, state[c], now.k * u);
    }
    const int out = p.state_out[t];
    if (out < 0) continue;
    float* const to = p.states + out * p.states_stride + h * kStateSize + v;
#pragma unroll
    for (int c = 0; c < kKeys; ++c) to[c * kValues] = state[c];
  }
}

constexpr int kStepThreads = 256;
/// Sums of three numbers over the first four warps, in all threads.
__device__ __forceinline__ void sums_of_three(float* x, float (*parts)[4]) {
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    x[i] = warp_sum(x[i]);
    if (threadIdx.x < kKeys && threadIdx.x % 32 == 0) parts[i][threadIdx.x / 32] = x[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 3; ++i) x[i] = (parts[i][0] + parts[i][1]) + (parts[i][2] + parts[i][3]);
}

/// A whole decode step of one head in one block of 8 warps: convolution, gates, norms, recurrence, gated output norm. The state is on its way all the while.
__global__ void __launch_bounds__(kStepThreads, 2) kda_step(const KdaStepArgs p) {
  __shared__ float mixed[3][kKeys];
  __shared__ Channel channels[kKeys];
  __shared__ float parts[3][4];
  __shared__ float squares[8];
  const int64_t s = blockIdx.x / p.heads;
  const int64_t h = blockIdx.x % p.heads;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int in = p.state_in[s];
  const int out = p.state_out[s];
  const int start = p.start[s];
  const int64_t ring_at = p.slot[s] * p.ring_slot;
  Tile<16> tile;
  const int64_t place = h * kStateSize + warp * 16;
  if (in >= 0) {
    tile.load(p.states + in * p.states_stride + place);
  } else {
    tile.zero();
  }
  const int64_t channels_all = static_cast<int64_t>(p.heads) * kKeys;
  const int64_t here = h * kKeys + thread % kKeys;
  const int newest = start % p.ring_rows;
  const float gate = p.gate.data[s * p.gate.stride + here];
  float g = 0;
  if (thread < kKeys) {
    const float rate = expf(element(p.a_log, h));
    g = p.lower_bound / (1.0f + expf(-rate * (p.a.data[s * p.a.stride + here] + element(p.dt_bias, here))));
  }
  const float beta = 1.0f / (1.0f + expf(-p.b.data[s * p.b.stride + h]));
  for (int i = thread; i < 3 * kKeys; i += kStepThreads) {
    const int64_t c = i / kKeys * channels_all + h * kKeys + i % kKeys;
    const float* const w = p.conv + c;
    const float x = p.raw.data[s * p.raw.stride + c];
    float* const ring = p.ring + ring_at + c;
    const float x1 = start >= 1 ? ring[(start - 1) % p.ring_rows * p.ring_row] : 0.0f;
    const float x2 = start >= 2 ? ring[(start - 2) % p.ring_rows * p.ring_row] : 0.0f;
    const float x3 = start >= 3 ? ring[(start - 3) % p.ring_rows * p.ring_row] : 0.0f;
    const float z = fmaf(w[9 * channels_all], x, fmaf(w[6 * channels_all], x1, fmaf(w[3 * channels_all], x2, w[0] * x3)));
    mixed[i / kKeys][i % kKeys] = z / (1.0f + expf(-z));
    ring[newest * p.ring_row] = x;
  }
  __syncthreads();
  const float q = mixed[0][thread % kKeys];
  const float k = mixed[1][thread % kKeys];
  float sums[3] = {q * q, k * k, q * k};
  sums_of_three(sums, parts);
  const float q_factor = rsqrtf(sums[0] + 1e-6f) * 0.08838834764831845f;
  const float k_factor = rsqrtf(sums[1] + 1e-6f);
  if (thread < kKeys) {
    const float loss = expm1f(g);
    const float kn = k * k_factor;
    const float qn = q * q_factor;
    channels[thread] = {fmaf(kn, loss, kn), fmaf(qn, loss, qn), kn, loss};
  }
  __syncthreads();
  const int column = warp * 16 + Tile<16>::column();
  float o[4];
  tile.step(channels, &mixed[2][column], beta, sums[2] * q_factor * k_factor, o);
  float square = fmaf(o[0], o[0], fmaf(o[1], o[1], fmaf(o[2], o[2], o[3] * o[3])));
  square += __shfl_xor_sync(0xFFFFFFFFu, square, 1);
  square += __shfl_xor_sync(0xFFFFFFFFu, square, 2);
  if (thread % 32 == 0) squares[warp] = square;
  if (Tile<16>::row(0) == 0) {
    for (int j = 0; j < 4; ++j) mixed[0][column + j] = o[j];
  }
  if (out >= 0) tile.save(p.states + out * p.states_stride + place);
  __syncthreads();
  if (thread >= kKeys) return;
  const float total = ((squares[0] + squares[1]) + (squares[2] + squares[3])) + ((squares[4] + squares[5]) + (squares[6] + squares[7]));
  const float factor = rsqrtf(total * (1.0f / kValues) + p.eps);
  p.out.data[s * p.out.stride + here] = mixed[0][thread] * factor * element(p.norm_weight, thread) / (1.0f + expf(-gate));
}

template <int kCols, int kWarps, bool kEarly, bool kShared>
void launch_tiles(const RecurrenceArgs& args, void* stream) {
  const int64_t tiles = int64_t{args.batch.sequences} * args.heads * (kValues / kCols);
  const auto kernel = recurrence_tiles<kCols, kWarps, kEarly, kShared>;
  LATHE_LAUNCH(kernel, dim3(blocks_for(tiles, kWarps)), dim3(kWarps * 32), 0, stream, args);
}

/// Up to this many heads, single warps (the whole step: blocks) spread best over the chip.
constexpr int64_t kFewHeads = 160;

}  // namespace

void launch_recurrence_128(const RecurrenceArgs& args, KdaRung rung, void* stream) {
  const int64_t heads = int64_t{args.batch.sequences} * args.heads;
  if (heads == 0) return;
  switch (rung) {
    case KdaRung::kColumns: LATHE_LAUNCH(recurrence_columns, dim3(static_cast<unsigned>(heads)), dim3(kValues), 0, stream, args); return;
    case KdaRung::kTiles32Late: return launch_tiles<32, 4, false, false>(args, stream);
    case KdaRung::kTiles32: return launch_tiles<32, 4, true, false>(args, stream);
    case KdaRung::kTiles16: return launch_tiles<16, 1, true, false>(args, stream);
    case KdaRung::kHead: return launch_tiles<16, 8, true, true>(args, stream);
    case KdaRung::kTiles32Single: return launch_tiles<32, 1, true, false>(args, stream);
    case KdaRung::kStream: return launch_recurrence_stream(args, stream);
    case KdaRung::kAuto: break;
  }
  if (heads <= kFewHeads) return launch_tiles<16, 1, true, false>(args, stream);
  if (args.batch.tokens > args.batch.sequences)
    return launch_tiles<32, 4, true, false>(args, stream);  // three heads a multiprocessor go through their tokens
  launch_recurrence_stream(args, stream);
}

void launch_kda_step(const KdaStepArgs& args, void* stream) {
  const int64_t heads = int64_t{args.sequences} * args.heads;
  if (heads == 0) return;
  if (heads > kFewHeads) return launch_kda_step_stream(args, stream);
  LATHE_LAUNCH(kda_step, dim3(static_cast<unsigned>(heads)), dim3(kStepThreads), 0, stream, args);
}

}  // namespace lathe::kernels::cuda
