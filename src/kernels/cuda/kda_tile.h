#pragma once
// Parts of the gated delta rule for heads of 128 x 128 that the kernels of kda_decode.cu and kda_stream.cu share. Included by .cu files only.

#include "kernels/cuda/device.h"

namespace lathe::kernels::cuda {

inline constexpr int kKeys = 128;
inline constexpr int kValues = 128;
inline constexpr int64_t kStateSize = kKeys * kValues;

/// What a key channel contributes at one token: k and q with the decay in, k, and expm1(g).
struct alignas(16) Channel {
  float k_decayed, q_decayed, k, e;
};

/// One warp: from q, k and the log gates of channels first + step i of every lane. Returns q·k.
__device__ __forceinline__ float normalise(const float* q, const float* k, const float* e, int first, int step, Channel* channels) {
  float qq = 0, kk = 0, qk = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) qq = fmaf(q[i], q[i], qq), kk = fmaf(k[i], k[i], kk), qk = fmaf(q[i], k[i], qk);
#pragma unroll
  for (int mask = 16; mask > 0; mask >>= 1) {
    qq += __shfl_xor_sync(0xFFFFFFFFu, qq, mask), kk += __shfl_xor_sync(0xFFFFFFFFu, kk, mask), qk += __shfl_xor_sync(0xFFFFFFFFu, qk, mask);
  }
  const float q_factor = rsqrtf(qq + 1e-6f) * 0.08838834764831845f;  // 128^-0.5
  const float k_factor = rsqrtf(kk + 1e-6f);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float loss = expm1f(e[i]);
    const float kn = k[i] * k_factor;
    const float qn = q[i] * q_factor;
    channels[first + step * i] = {fmaf(kn, loss, kn), fmaf(qn, loss, qn), kn, loss};
  }
  return qk * q_factor * k_factor;
}

/// One warp: `channels` of one token. Returns q·k.
__device__ __forceinline__ float prepare(const RecurrenceArgs& p, int64_t t, int64_t h, Channel* channels) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const float* const q_raw = p.q.data + t * p.q.outer + h * p.q.inner;
  const float* const k_raw = p.k.data + t * p.k.outer + h * p.k.inner;
  const float* const g = p.g.data + t * p.g.stride + h * kKeys;
  float q[4], k[4], e[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) q[i] = q_raw[lane + 32 * i], k[i] = k_raw[lane + 32 * i], e[i] = g[lane + 32 * i];
  return normalise(q, k, e, lane, 32, channels);
}

/// q and k of one token, normalised, and the decay, in shared memory; any number of keys. One warp.
__device__ inline void prepare_any(const RecurrenceArgs& p, int64_t t, int64_t h, float* q, float* k, float* e) {
  const float* const q_raw = p.q.data + t * p.q.outer + h * p.q.inner;
  const float* const k_raw = p.k.data + t * p.k.outer + h * p.k.inner;
  double qq = 0;
  double kk = 0;
  for (int c = threadIdx.x; c < p.keys; c += 32) {
    qq += static_cast<double>(q_raw[c]) * static_cast<double>(q_raw[c]);
    kk += static_cast<double>(k_raw[c]) * static_cast<double>(k_raw[c]);
  }
  const auto q_factor = static_cast<float>(1.0 / sqrt(warp_sum(qq) + 1e-6) / sqrt(static_cast<double>(p.keys)));
  const auto k_factor = static_cast<float>(1.0 / sqrt(warp_sum(kk) + 1e-6));
  for (int c = threadIdx.x; c < p.keys; c += 32) {
    q[c] = q_raw[c] * q_factor;
    k[c] = k_raw[c] * k_factor;
    e[c] = expm1f(p.g.data[t * p.g.stride + h * p.keys + c]);
  }
  __syncwarp();
}

/// Fetched where it stands: otherwise the compiler asks for all rows at once, into registers that are not there.
__device__ __forceinline__ Channel channel_now(const Channel* at) {
#ifdef LATHE_CUDA_EMULATED
  return *at;
#else
  Channel c;
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(at));
  asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(c.k_decayed), "=f"(c.q_decayed), "=f"(c.k), "=f"(c.e)
               : "r"(address)
               : "memory");
  return c;
#endif
}

/// A warp's part of a state: kCols columns, all 128 rows. A lane has 4 columns and every (128 / kCols)-th … row: kRows of them.
template <int kCols>
struct Tile {
  static constexpr int kAcross = kCols / 4;    // lanes side by side
  static constexpr int kDown = 32 / kAcross;   // rows that a warp touches at once: 8 or 4
  static constexpr int kRows = kKeys / kDown;  // 16 or 32
  static constexpr int kClasses = 8 / kDown;   // residue classes of a lane: 1 or 2
  float4 s[kRows];

  static __device__ __forceinline__ int row(int i) { return (static_cast<int>(threadIdx.x) & 31) / kAcross + kDown * i; }
  static __device__ __forceinline__ int column() { return (static_cast<int>(threadIdx.x) & 31) % kAcross * 4; }

  __device__ __forceinline__ void load(const float* from) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) s[i] = __ldcs(reinterpret_cast<const float4*>(from + row(i) * kValues + column()));
  }
  /// From or to a whole state in shared memory; `first` is the first of the warp's columns. Free of bank conflicts for 32 columns.
  __device__ __forceinline__ void load_shared(const float* state, int first) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) s[i] = *reinterpret_cast<const float4*>(state + row(i) * kValues + first + column());
  }
  __device__ __forceinline__ void save_shared(float* state, int first) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) *reinterpret_cast<float4*>(state + row(i) * kValues + first + column()) = s[i];
  }
  __device__ __forceinline__ void zero() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) s[i] = make_float4(0, 0, 0, 0);
  }
  __device__ __forceinline__ void save(float* to) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) __stcs(reinterpret_cast<float4*>(to + row(i) * kValues + column()), s[i]);
  }
  /// One token: the state decays and learns v; o gets this lane's 4 columns (the same in all lanes of a column).
  __device__ __forceinline__ void step(const Channel* channels, const float* v, float beta, float qk, float* o) {
    float a[kClasses][4] = {}, b[kClasses][4] = {};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const Channel c = channel_now(channels + row(i));
      float* const ai = a[i % kClasses];
      float* const bi = b[i % kClasses];
      ai[0] = fmaf(s[i].x, c.k_decayed, ai[0]), ai[1] = fmaf(s[i].y, c.k_decayed, ai[1]);
      ai[2] = fmaf(s[i].z, c.k_decayed, ai[2]), ai[3] = fmaf(s[i].w, c.k_decayed, ai[3]);
      bi[0] = fmaf(s[i].x, c.q_decayed, bi[0]), bi[1] = fmaf(s[i].y, c.q_decayed, bi[1]);
      bi[2] = fmaf(s[i].z, c.q_decayed, bi[2]), bi[3] = fmaf(s[i].w, c.q_decayed, bi[3]);
    }
    float u[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float from_k = kClasses == 2 ? a[0][j] + a[kClasses - 1][j] : a[0][j];
      float from_q = kClasses == 2 ? b[0][j] + b[kClasses - 1][j] : b[0][j];
#pragma unroll
      for (int mask = 16; mask >= kAcross; mask >>= 1) {
        from_k += __shfl_xor_sync(0xFFFFFFFFu, from_k, mask);
        from_q += __shfl_xor_sync(0xFFFFFFFFu, from_q, mask);
      }
      u[j] = beta * (v[j] - from_k);
      o[j] = fmaf(qk, u[j], from_q);
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const Channel c = channel_now(channels + row(i));
      s[i].x += fmaf(c.e, s[i].x, c.k * u[0]), s[i].y += fmaf(c.e, s[i].y, c.k * u[1]);
      s[i].z += fmaf(c.e, s[i].z, c.k * u[2]), s[i].w += fmaf(c.e, s[i].w, c.k * u[3]);
    }
  }
};

/// Row t of head h for the warp whose first column is `first`: the tile takes v and beta in, and the lanes of its first rows write o.
template <int kCols, class AnyTile>
__device__ __forceinline__ void step_row(const RecurrenceArgs& p, int64_t t, int64_t h, int first, const Channel* channels, float qk, AnyTile& tile) {
  const int column = first + Tile<kCols>::column();
  const float* const v_row = p.v.data + t * p.v.outer + h * p.v.inner + column;
  const float v[4] = {v_row[0], v_row[1], v_row[2], v_row[3]};
  float o[4];
  tile.step(channels, v, p.beta.data[t * p.beta.stride + h], qk, o);
  if (Tile<kCols>::row(0) == 0) {
    float* const to = p.o.data + t * p.o.outer + h * p.o.inner + column;
    to[0] = o[0], to[1] = o[1], to[2] = o[2], to[3] = o[3];
  }
}

}  // namespace lathe::kernels::cuda
