// The recurrence of KDA over states of f16, or of codes with a scale for each column: f32 within a call, rounded wherever a state is kept.

#include "kernels/cuda/kda_tile.h"
#include "kernels/cuda/kept.h"

namespace lathe::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kColumns = 32;

/// Heads of 128 x 128: warps that know nothing of each other, each with 32 columns of a head in registers. Bits of the tokens as in kda_decode.cu.
template <Kept kKept>
struct NarrowTile : Tile<kColumns> {
  __device__ __forceinline__ void read(const StatePool& pool, int64_t at, int64_t scale_at) {
    float4 scale = make_float4(1, 1, 1, 1);
    if (kKept == Kept::kI8) scale = scales_of(pool, scale_at);
#pragma unroll
    for (int i = 0; i < kRows; ++i) s[i] = scaled(four_kept<kKept>(pool.data, at + row(i) * kValues + column()), scale);
  }
  /// Goes on with what was kept.
  __device__ __forceinline__ void keep(const StatePool& pool, int64_t at, int64_t scale_at) {
    CodeScale code[4] = {};
    if (kKept == Kept::kI8) {
      unsigned most[4] = {};
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        most[0] = max(most[0], magnitude_bits(s[i].x)), most[1] = max(most[1], magnitude_bits(s[i].y));
        most[2] = max(most[2], magnitude_bits(s[i].z)), most[3] = max(most[3], magnitude_bits(s[i].w));
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        for (int mask = kAcross; mask < 32; mask <<= 1) most[j] = max(most[j], __shfl_xor_sync(0xFFFFFFFFu, most[j], mask));
        code[j] = code_scale(most[j], 127.0f);
        if (row(0) == 0) pool.scales[scale_at + column() + j] = code[j].scale;
      }
    }
    const float inverse[4] = {code[0].inverse, code[1].inverse, code[2].inverse, code[3].inverse};
    const float4 scale = make_float4(code[0].scale, code[1].scale, code[2].scale, code[3].scale);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      s[i] = keep_four<kKept>(pool.data, at + row(i) * kValues + column(), s[i], inverse);
      if (kKept == Kept::kI8) s[i] = scaled(s[i], scale);
    }
  }

 private:
  static __device__ __forceinline__ float4 scales_of(const StatePool& pool, int64_t at) {
    const float* const from = pool.scales + at + column();
    return make_float4(from[0], from[1], from[2], from[3]);
  }
  static __device__ __forceinline__ float4 scaled(float4 v, float4 by) { return make_float4(v.x * by.x, v.y * by.y, v.z * by.z, v.w * by.w); }
};

template <Kept kKept>
__global__ void __launch_bounds__(kWarps * 32, 3) narrow_tiles(const RecurrenceArgs p, const NarrowStates n) {
  __shared__ Channel shared[kWarps][kKeys];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int s = static_cast<int>(blockIdx.x) / p.heads;
  const int64_t h = static_cast<int>(blockIdx.x) % p.heads;
  Channel* const channels = shared[warp];
  const int64_t place = h * kStateSize + warp * kColumns, scale_place = h * kValues + warp * kColumns;
  const int64_t in = p.state_in[s];
  NarrowTile<kKept> tile;
  if (in >= 0) {
    tile.read(n.entering, in * n.entering.stride + place, in * n.entering.scale_stride + scale_place);
  } else {
    tile.zero();
  }
  for (int64_t t = p.batch.begin[s]; t < p.batch.begin[s + 1]; ++t) {
    const float qk = prepare(p, t, h, channels);
    __syncwarp();
    step_row<kColumns>(p, t, h, warp * kColumns, channels, qk, tile);
    const int64_t out = p.state_out[t];
    if (out >= 0) tile.keep(n.states, out * n.states.stride + place, out * n.states.scale_stride + scale_place);
    __syncwarp();
  }
}

/// Any sizes: one warp has 32 columns of a head in shared memory, a thread a column.
__global__ void narrow_columns(const RecurrenceArgs p, const NarrowStates n) {
  LATHE_DYNAMIC_SHARED(float, shared);
  float* const q = shared + p.keys * kColumns;
  float* const k = q + p.keys;
  float* const e = k + p.keys;
  const int lane = static_cast<int>(threadIdx.x);
  float* const state = shared + lane;
  const int s = static_cast<int>(blockIdx.y) / p.heads;
  const int64_t h = static_cast<int>(blockIdx.y) % p.heads;
  const int column = static_cast<int>(blockIdx.x) * kColumns + lane;
  const bool mine = column < p.values;
  const int64_t place = h * p.keys * p.values + column, scale_place = h * p.values + column;
  const int64_t in = mine ? p.state_in[s] : -1;
  const float scale = in >= 0 && n.entering.kept == Kept::kI8 ? n.entering.scales[in * n.entering.scale_stride + scale_place] : 1.0f;
  for (int c = 0; c < p.keys; ++c) {
    const int64_t at = in * n.entering.stride + place + static_cast<int64_t>(c) * p.values;
    state[c * kColumns] = in >= 0 ? kept_value(n.entering.data, n.entering.kept, at) * scale : 0.0f;
  }
  for (int64_t t = p.batch.begin[s]; t < p.batch.begin[s + 1]; ++t) {
    __syncwarp();
    prepare_any(p, t, h, q, k, e);
    float guess = 0;
    for (int c = 0; c < p.keys; ++c) {
      float& x = state[c * kColumns];
      x = fmaf(e[c], x, x), guess = fmaf(x, k[c], guess);
    }
    const float u = mine ? p.beta.data[t * p.beta.stride + h] * (p.v.data[t * p.v.outer + h * p.v.inner + column] - guess) : 0.0f;
    float o = 0;
    for (int c = 0; c < p.keys; ++c) {
      float& x = state[c * kColumns];
      x = fmaf(k[c], u, x), o = fmaf(x, q[c], o);
    }
    const int64_t out = p.state_out[t];
    if (!mine) continue;
    p.o.data[t * p.o.outer + h * p.o.inner + column] = o;
    if (out < 0) continue;
    float* const scale_at = n.states.scales == nullptr ? nullptr : n.states.scales + out * n.states.scale_stride + scale_place;
    keep_column(state, kColumns, p.keys, p.values, n.states, out * n.states.stride + place, scale_at);
  }
}

}  // namespace

void launch_recurrence_narrow_128(const RecurrenceArgs& args, const NarrowStates& narrow, void* stream) {
  if (args.batch.sequences == 0 || args.heads == 0) return;
  const dim3 grid(static_cast<unsigned>(args.batch.sequences * args.heads));
  if (narrow.states.kept == Kept::kF16) {
    LATHE_LAUNCH(narrow_tiles<Kept::kF16>, grid, dim3(kWarps * 32), 0, stream, args, narrow);
  } else {
    LATHE_LAUNCH(narrow_tiles<Kept::kI8>, grid, dim3(kWarps * 32), 0, stream, args, narrow);
  }
}

void launch_recurrence_narrow(const RecurrenceArgs& args, const NarrowStates& narrow, void* stream) {
  if (args.batch.sequences == 0 || args.heads == 0) return;
  const int64_t shared = args.keys * (kColumns + 3) * int64_t{4};
  const dim3 grid(blocks_for(args.values, kColumns), static_cast<unsigned>(args.batch.sequences * args.heads));
  LATHE_LAUNCH(narrow_columns, grid, dim3(kColumns), shared, stream, args, narrow);
}

}  // namespace lathe::kernels::cuda
