// Replay for heads of any size: a block a head, its state as f32 in shared memory.

#include "kernels/cuda/kept.h"

namespace lathe::kernels::cuda {
namespace {

constexpr int kThreads = 128;

/// One head of one slot.
struct HeadRing {
  const RingArgs& r;
  int64_t slot, h;
  int keys, values;

  __device__ __forceinline__ int64_t key_at(int position) const { return slot * r.key_slot + position % r.rows * r.key_row + h * keys; }
  __device__ __forceinline__ int64_t value_at(int position) const { return slot * r.value_slot + position % r.rows * r.value_row + h * values; }
  __device__ __forceinline__ float key(int position, int c) const { return element(r.keys, r.key_type, key_at(position) + c); }
  __device__ __forceinline__ float value(int position, int j) const { return element(r.values, r.value_type, value_at(position) + j); }
  __device__ __forceinline__ float& decay(int position, int c) const {
    return r.decay[slot * r.decay_slot + position % r.decay_rows * r.decay_row + h * keys + c];
  }
};

/// The state of head h in row `row` (−1: zeros) as f32 [keys, values]; column by column.
__device__ void load_state(const StatePool& pool, int64_t row, const HeadRing& ring, float* state) {
  const int64_t at = row * pool.stride + ring.h * ring.keys * ring.values;
  for (int j = static_cast<int>(threadIdx.x); j < ring.values; j += kThreads) {
    const float scale = row >= 0 && pool.kept == Kept::kI8 ? pool.scales[row * pool.scale_stride + ring.h * ring.values + j] : 1.0f;
    for (int c = 0; c < ring.keys; ++c) {
      const int i = c * ring.values + j;
      state[i] = row >= 0 ? kept_value(pool.data, pool.kept, at + i) * scale : 0.0f;
    }
  }
}
/// Column j of the state after the tokens [begin, end).
__device__ void fold_column(const HeadRing& ring, int begin, int end, int j, float* state) {
  for (int c = 0; c < ring.keys; ++c) {
    float added = 0;
    for (int i = begin; i < end; ++i) added = fmaf(ring.key(i, c), ring.value(i, j), added);
    const float g = ring.decay(end - 1, c);
    float& s = state[c * ring.values + j];
    s = fmaf(expf(g), added, fmaf(expm1f(g), s, s));
  }
}
/// Column j into row `row` of a pool; what a narrow format makes of it, if row is −1.
__device__ void keep(const StatePool& pool, int64_t row, const HeadRing& ring, int j, float* state) {
  StatePool to = pool;
  if (row < 0) to.data = nullptr;
  float* const scale = row < 0 || pool.scales == nullptr ? nullptr : pool.scales + row * pool.scale_stride + ring.h * ring.values + j;
  keep_column(state + j, ring.values, ring.keys, ring.values, to, row * pool.stride + ring.h * ring.keys * ring.values + j, scale);
}

/// Of a token, in shared memory behind the state.
struct Token {
  float* q;  ///< grown
  float* k;
  float2* match;
  float qk;
};

/// Norms, decay and the ring's key of row t. All threads; ends with a barrier.
__device__ void prepare(const VerifyArgs& p, const HeadRing& ring, int t, int position, bool fresh, Token& token) {
  const float* const q = p.q.data + t * p.q.outer + ring.h * p.q.inner;
  const float* const k = p.k.data + t * p.k.outer + ring.h * p.k.inner;
  double qq = 0, kk = 0, qk = 0;
  for (int c = static_cast<int>(threadIdx.x); c < ring.keys; c += kThreads) {
    qq += static_cast<double>(q[c]) * static_cast<double>(q[c]), kk += static_cast<double>(k[c]) * static_cast<double>(k[c]);
    qk += static_cast<double>(q[c]) * static_cast<double>(k[c]);
  }
  qq = block_sum(qq), kk = block_sum(kk), qk = block_sum(qk);
  const double q_factor = 1.0 / sqrt(qq + 1e-6) / sqrt(static_cast<double>(ring.keys)), k_factor = 1.0 / sqrt(kk + 1e-6);
  token.qk = static_cast<float>(qk * q_factor * k_factor);
  for (int c = static_cast<int>(threadIdx.x); c < ring.keys; c += kThreads) {
    const float g = (fresh ? 0.0f : ring.decay(position - 1, c)) + p.g.data[t * p.g.stride + ring.h * ring.keys + c];
    const float grown = expf(g), kn = k[c] * static_cast<float>(k_factor);
    token.q[c] = q[c] * static_cast<float>(q_factor) * grown, token.k[c] = kn * grown;
    store(ring.r.keys, ring.r.key_type, ring.key_at(position) + c, kn * expf(-g));
    ring.decay(position, c) = g;
  }
  __syncthreads();
}

__global__ void verify_plain(const VerifyArgs p) {
  LATHE_DYNAMIC_SHARED(float, state);
  const int s = static_cast<int>(blockIdx.x) / p.heads;
  const int begin = p.batch.begin[s], end = p.batch.begin[s + 1], start = p.batch.start[s];
  const HeadRing ring{p.ring, p.slot[s], static_cast<int>(blockIdx.x) % p.heads, p.keys, p.values};
  if (begin == end) return;
  int checkpoint = p.checkpoint[s];
  auto* const match = reinterpret_cast<float2*>(state + (p.keys * p.values + 1) / 2 * 2);
  auto* const q = reinterpret_cast<float*>(match + p.ring.rows);
  Token token{q, q + p.keys, match, 0};
  load_state(p.states, p.state[s], ring, state);
  for (int t = begin; t < end; ++t) {
    const int position = start + t - begin;
    __syncthreads();
    if (p.fold[t] != 0 && position > checkpoint) {
      for (int j = static_cast<int>(threadIdx.x); j < p.values; j += kThreads) {
        fold_column(ring, checkpoint, position, j, state);
        keep(p.states, -1, ring, j, state);
      }
      checkpoint = position;
    }
    prepare(p, ring, t, position, position == checkpoint, token);
    for (int i = static_cast<int>(threadIdx.x); i < position - checkpoint; i += kThreads) {
      float2 sum = {0, 0};
      for (int c = 0; c < p.keys; ++c) {
        const float key = ring.key(checkpoint + i, c);
        sum.x = fmaf(token.k[c], key, sum.x), sum.y = fmaf(token.q[c], key, sum.y);
      }
      token.match[i] = sum;
    }
    __syncthreads();
    for (int j = static_cast<int>(threadIdx.x); j < p.values; j += kThreads) {
      float a = 0, b = 0;
      for (int c = 0; c < p.keys; ++c) a = fmaf(state[c * p.values + j], token.k[c], a), b = fmaf(state[c * p.values + j], token.q[c], b);
      for (int i = 0; i < position - checkpoint; ++i) {
        const float u = ring.value(checkpoint + i, j);
        a = fmaf(token.match[i].x, u, a), b = fmaf(token.match[i].y, u, b);
      }
      const float u = p.beta.data[t * p.beta.stride + ring.h] * (p.v.data[t * p.v.outer + ring.h * p.v.inner + j] - a);
      p.o.data[t * p.o.outer + ring.h * p.o.inner + j] = fmaf(token.qk, u, b);
      store(p.ring.values, p.ring.value_type, ring.value_at(position) + j, u);
    }
  }
}

__global__ void flush_plain(const FlushArgs p) {
  LATHE_DYNAMIC_SHARED(float, state);
  const int s = static_cast<int>(blockIdx.x) / p.heads;
  const HeadRing ring{p.ring, p.slot[s], static_cast<int>(blockIdx.x) % p.heads, p.keys, p.values};
  const int64_t in = p.state_in[s], into = p.into[s];
  if (into < 0) return;
  const int begin = p.checkpoint[s], end = p.to[s];
  load_state(p.entering, in, ring, state);
  for (int j = static_cast<int>(threadIdx.x); j < p.values; j += kThreads) {
    if (begin == end && in >= 0 && p.entering.kept == Kept::kI8 && p.states.kept == Kept::kI8) {  // the same bits, not the codes of the codes
      const int64_t from = in * p.entering.stride + ring.h * p.keys * p.values + j, to = into * p.states.stride + ring.h * p.keys * p.values + j;
      for (int64_t i = 0; i < int64_t{p.keys} * p.values; i += p.values) {
        static_cast<int8_t*>(p.states.data)[to + i] = static_cast<const int8_t*>(p.entering.data)[from + i];
      }
      const int64_t at = ring.h * p.values + j;
      p.states.scales[into * p.states.scale_stride + at] = p.entering.scales[in * p.entering.scale_stride + at];
      continue;
    }
    if (begin < end) fold_column(ring, begin, end, j, state);
    keep(p.states, into, ring, j, state);
  }
}

}  // namespace

int64_t verify_plain_bytes(const VerifyArgs& args) { return (int64_t{args.keys} * args.values + 2 + 2 * args.ring.rows + 2 * args.keys) * 4; }
int64_t flush_plain_bytes(const FlushArgs& args) { return int64_t{args.keys} * args.values * 4; }

void launch_verify_plain(const VerifyArgs& args, void* stream) {
  if (args.batch.sequences == 0 || args.heads == 0) return;
  const dim3 grid(static_cast<unsigned>(args.batch.sequences * args.heads));
  LATHE_LAUNCH(verify_plain, grid, dim3(kThreads), verify_plain_bytes(args), stream, args);
}

void launch_flush_plain(const FlushArgs& args, void* stream) {
  if (args.sequences == 0 || args.heads == 0) return;
  LATHE_LAUNCH(flush_plain, dim3(static_cast<unsigned>(args.sequences * args.heads)), dim3(kThreads), flush_plain_bytes(args), stream, args);
}

}  // namespace lathe::kernels::cuda
