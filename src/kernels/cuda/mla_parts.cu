// Latent attention over BF16 latents on the tensor cores, in two launches.
//
// Parts     The keys of a row are numbered: those of its pools, then its tail. 64 of them are a part. The first kernel makes a part's scores, its
//           maximum and exp(score − maximum); the second multiplies them with the latents and adds the parts in order, each times
//           exp(its maximum − the row's).
// Numerics  f32 operands enter as sums of bf16 numbers: q as three (all of its bits), weights as two (2^-18), and the sum of weights is that of
//           these two.
// Bits      An output depends on its row, its head and the keys, in one order, whatever the shape of the blocks: few rows have many small blocks,
//           many rows blocks of 64 heads.

#include "kernels/cuda/tensor_core.h"

namespace lathe::kernels::cuda {
namespace {

constexpr int kWeightThreads = 256;
constexpr int kWarps = kWeightThreads / 32;

/// What the keys of a row are.
struct RowKeys {
  int sequence;
  int pooled;  ///< keys before the tail
  int tail;    ///< its first position
  int total;
  bool here;  ///< its tail fits
};

/// By a whole block of kWeightThreads threads.
__device__ RowKeys keys_of(const AttendArgs& p, int t) {
  __shared__ int found[2][kWarps];
  int sequences = 0;  // that begin at or before t
  for (int s = static_cast<int>(threadIdx.x); s < p.batch.sequences; s += kWeightThreads) sequences += p.batch.begin[s] <= t ? 1 : 0;
  int used = 0;
  for (int i = static_cast<int>(threadIdx.x); i < p.pools_max; i += kWeightThreads) {
    if (p.pools[t * p.pools_stride + i] >= 0) used = i + 1;
  }
  for (int mask = 16; mask > 0; mask >>= 1) {
    sequences += __shfl_xor_sync(0xFFFFFFFFu, sequences, mask);
    used = max(used, __shfl_xor_sync(0xFFFFFFFFu, used, mask));
  }
  if (threadIdx.x % 32 == 0) found[0][threadIdx.x / 32] = sequences, found[1][threadIdx.x / 32] = used;
  __syncthreads();
  sequences = used = 0;
  for (int w = 0; w < kWarps; ++w) sequences += found[0][w], used = max(used, found[1][w]);
  const int s = sequences - 1;
  const int position = position_of(p.batch, s, t);
  const int tail = p.tail_begin != nullptr ? p.tail_begin[t] : (position + 1) / p.kpool * p.kpool;
  const int tail_keys = max(position - tail + 1, 0);
  return {.sequence = s, .pooled = used * p.kpool, .tail = tail, .total = used * p.kpool + tail_keys, .here = tail_keys <= kTailRoom};
}

/// Row of the pool that key i lies in; −1: no key.
__device__ int place_of(const AttendArgs& p, const RowKeys& keys, int t, int i) {
  int at = -1;
  if (i < keys.pooled) {
    const int pool = p.pools[t * p.pools_stride + i / p.kpool];
    at = pool >= 0 ? pool * p.kpool + i % p.kpool : -1;
  } else if (i < keys.total) {
    at = keys.tail + i - keys.pooled;
  }
  if (at < 0) return -1;
  const int rows = static_cast<int>(p.latents.block_rows);
  return p.latents.table[keys.sequence * p.latents.table_stride + at / rows] * rows + at % rows;
}

/// Bytes between the latents of two keys in shared memory: eight lanes that read 16 bytes of four neighbours of two keys meet no bank twice.
__host__ __device__ constexpr int latent_stride(int latent) { return latent * 2 + 64; }

/// The latents of a part to shared memory; zeros where there is no key.
__device__ __forceinline__ void fetch_part(const AttendArgs& p, const int* places, char* to) {
  const int stride = latent_stride(p.latent);
  const auto* const pool = static_cast<const uint16_t*>(p.latents.pool);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int key = static_cast<int>(threadIdx.x) / 32; key < kPartKeys; key += kWarps) {
    const int place = places[key];
    const uint16_t* const from = pool + (place < 0 ? 0 : place * p.latents.row_stride);
    for (int c = lane; c < p.latent / 8; c += 32) copy_16(to + key * stride + c * 16, from + c * 8, place >= 0);
  }
}

/// q of two heads for 32 channels, a lane the eight from its own on; heads beyond the last count as zeros.
struct QueryWords {
  float4 v[2][2];
};
__device__ __forceinline__ QueryWords query_words(const float* const* rows, int c) {
  QueryWords q;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int i = 0; i < 2; ++i) q.v[r][i] = rows[r] != nullptr ? *reinterpret_cast<const float4*>(rows[r] + c + 4 * i) : make_float4(0, 0, 0, 0);
  }
  return q;
}

/// acc [kTiles of 8 keys] += q · latents of 32 channels, 16 heads. Channel 8 l + 4 e + 2 i (+ 1) is number 2 l + 8 i (+ 1) of product e. Products with
/// one sum stand apart, since each waits for the one before.
template <int kTiles>
__device__ __forceinline__ void score_tiles(QueryWords q, const char* keys, int stride, float (*acc)[4]) {
  constexpr int kTogether = kTiles < 4 ? kTiles : 4;
  unsigned a[2][3][4];
#pragma unroll
  for (int e = 0; e < 2; ++e) {
#pragma unroll
    for (int part = 0; part < 3; ++part) {
      a[e][part][0] = take_bf16(q.v[0][e].x, q.v[0][e].y), a[e][part][1] = take_bf16(q.v[1][e].x, q.v[1][e].y);
      a[e][part][2] = take_bf16(q.v[0][e].z, q.v[0][e].w), a[e][part][3] = take_bf16(q.v[1][e].z, q.v[1][e].w);
    }
  }
#pragma unroll
  for (int n = 0; n < kTiles; n += kTogether) {
    unsigned b[kTogether][2][2];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const uint4 v = *reinterpret_cast<const uint4*>(keys + (n + i) * 8 * stride);
      b[i][0][0] = v.x, b[i][0][1] = v.y, b[i][1][0] = v.z, b[i][1][1] = v.w;
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
#pragma unroll
      for (int part = 2; part >= 0; --part) {
#pragma unroll
        for (int i = 0; i < kTogether; ++i) mma_bf16(acc[n + i], a[e][part], b[i][e]);
      }
    }
  }
}

__device__ __forceinline__ float quad_sum(float value) {
  value += __shfl_xor_sync(0xFFFFFFFFu, value, 1);
  return value + __shfl_xor_sync(0xFFFFFFFFu, value, 2);
}

/// Shared memory of the first kernel behind the latents.
struct PartTables {
  float most[4][64];         ///< of a warp's keys, by head of the block
  float sums[4][64];         ///< of 16 keys
  int places[2][kPartKeys];  ///< of this part and the next
};

/// Softmax weights of a warp's tiles as operands of the second kernel, and their sums by 16 keys. most: of rows lane / 4 and + 8.
template <int kTiles>
__device__ __forceinline__ void store_weights(float (*score)[4], const float* most, uint4* to, PartTables& tables, int chunk, int head, bool wanted) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int c = 0; c < kTiles / 2; ++c) {
    unsigned word[2][4];
    float sum[2] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // A operand: rows lane / 4, + 8, then again for the keys of the second tile
      const float* const s = &score[2 * c + i / 2][i % 2 * 2];
      float e[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) e[j] = s[j] == -INFINITY ? 0.0f : expf(s[j] - most[i % 2]);
      const float whole[2] = {e[0], e[1]};
      word[0][i] = take_bf16(e[0], e[1]);
      word[1][i] = take_bf16(e[0], e[1]);
      sum[i % 2] += (whole[0] - e[0]) + (whole[1] - e[1]);
    }
    if (wanted) {
      to[(c * 2 + 0) * 32 + lane] = uint4{word[0][0], word[0][1], word[0][2], word[0][3]};
      to[(c * 2 + 1) * 32 + lane] = uint4{word[1][0], word[1][1], word[1][2], word[1][3]};
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float total = quad_sum(sum[r]);
      if (lane % 4 == 0) tables.sums[chunk + c][head + lane / 4 + 8 * r] = total;
    }
  }
}

/// Where a warp of the first kernel works: two halves of the channels, kGroups times 16 heads, and the rest goes over the keys.
template <int kGroups>
struct PartWarp {
  static constexpr int kKeyWarps = 4 / kGroups;
  static constexpr int kTiles = 8 / kKeyWarps;  // of 8 keys
  int lane, number, half, local, key_warp, group;
  __device__ PartWarp()
      : lane(static_cast<int>(threadIdx.x) % 32),
        number(static_cast<int>(threadIdx.x) / 32 % 4),
        half(static_cast<int>(threadIdx.x) / 128),
        local(number / kKeyWarps),
        key_warp(number % kKeyWarps),
        group(static_cast<int>(blockIdx.y) * kGroups + local) {}
};

/// acc = products of half of the channels with the latents of a part; q of the first channels is asked for before the latents are there.
template <int kGroups>
__device__ __forceinline__ void part_scores(const AttendArgs& a, int t, const PartWarp<kGroups>& w, const char* latents, float (*acc)[4]) {
  constexpr int kTiles = PartWarp<kGroups>::kTiles;
  constexpr int kAhead = kGroups > 1 ? 1 : 4;  // 32 channels each; few blocks wait for every load, many hide it
  const int channels = a.latent / 2;
  const int channel = w.half * channels + w.lane % 4 * 8;
  const int stride = latent_stride(a.latent);
  const float* rows[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int head = w.group * 16 + w.lane / 4 + 8 * r;
    rows[r] = head < a.heads ? a.q.data + t * a.q.outer + head * a.q.inner + channel : nullptr;
  }
  QueryWords q[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (i * 32 < channels) q[i] = query_words(rows, i * 32);
  }
  copies_wait<0>();
  __syncthreads();
  const char* const keys = latents + (w.key_warp * kTiles * 8 + w.lane / 4) * stride + channel * 2;
  for (int begin = 0; begin < channels; begin += 32 * kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int c = begin + i * 32;
      if (c >= channels) break;
      const QueryWords now = q[i];
      if (c + 32 * kAhead < channels) q[i] = query_words(rows, c + 32 * kAhead);
      score_tiles<kTiles>(now, keys + c * 2, stride, acc);
    }
  }
}

/// By the warps of the first half: scores from both halves, −∞ where there is no key, and the warp's maxima to the tables.
template <int kGroups>
__device__ __forceinline__ void complete_scores(const PartWarp<kGroups>& w, const float4* other, float scale, const int* places, PartTables& tables,
                                                float (*acc)[4]) {
  constexpr int kTiles = PartWarp<kGroups>::kTiles;
  float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const float4 v = other[n * 32];
    const float sum[4] = {acc[n][0] + v.x, acc[n][1] + v.y, acc[n][2] + v.z, acc[n][3] + v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = (w.key_warp * kTiles + n) * 8 + w.lane % 4 * 2 + i % 2;
      acc[n][i] = places[key] < 0 ? -INFINITY : sum[i] * scale;
      most[i / 2] = larger(most[i / 2], acc[n][i]);
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    most[r] = larger(most[r], __shfl_xor_sync(0xFFFFFFFFu, most[r], 1));
    most[r] = larger(most[r], __shfl_xor_sync(0xFFFFFFFFu, most[r], 2));
    if (w.lane % 4 == 0) tables.most[w.key_warp][w.local * 16 + w.lane / 4 + 8 * r] = most[r];
  }
}

/// Maximum of a head of the block over the part.
template <int kGroups>
__device__ __forceinline__ float part_most(const PartTables& tables, int head) {
  float most = tables.most[0][head];
  for (int i = 1; i < PartWarp<kGroups>::kKeyWarps; ++i) most = larger(most, tables.most[i][head]);
  return most;
}

/// Parts blockIdx.x, + gridDim.x, … of a row's keys for kGroups times 16 heads. The latents of the next part come while the weights of this one are made.
template <int kGroups>
__global__ void __launch_bounds__(kWeightThreads, kGroups > 1 ? 2 : 1) attend_weights(const AttendParts p) {
  constexpr int kTiles = PartWarp<kGroups>::kTiles;
  const AttendArgs& a = p.attend;
  LATHE_DYNAMIC_SHARED(char, latents);
  auto* const exchange = reinterpret_cast<float4*>(latents + kPartKeys * latent_stride(a.latent));  // [4 warps, kTiles, 32]
  auto& tables = *reinterpret_cast<PartTables*>(exchange + 4 * kTiles * 32);
  const int row = static_cast<int>(blockIdx.z);
  const int t = p.row_begin + row;
  const int step = static_cast<int>(gridDim.x);
  int part = static_cast<int>(blockIdx.x);
  const RowKeys keys = keys_of(a, t);
  const int parts = keys.here ? (keys.total + kPartKeys - 1) / kPartKeys : -1;
  if (blockIdx.y == 0 && part == 0 && threadIdx.x == 0) p.counts[row] = parts;
  if (part >= parts) return;
  const auto find_places = [&](int of, int buffer) {
    if (threadIdx.x >= kPartKeys) return;
    const int place = place_of(a, keys, t, of * kPartKeys + static_cast<int>(threadIdx.x));
    tables.places[buffer][threadIdx.x] = place;
    if (blockIdx.y == 0) p.places[(static_cast<int64_t>(row) * p.parts + of) * kPartKeys + threadIdx.x] = place;
  };
  find_places(part, 0);
  __syncthreads();
  fetch_part(a, tables.places[0], latents);
  copies_commit();
  const PartWarp<kGroups> w;
  for (int buffer = 0; part < parts; part += step, buffer = 1 - buffer) {
    const int64_t at = static_cast<int64_t>(row) * p.parts + part;
    if (part + step < parts) find_places(part + step, 1 - buffer);
    float acc[kTiles][4] = {};
    part_scores(a, t, w, latents, acc);
    float4* const mine = exchange + w.number * kTiles * 32 + w.lane;
    if (w.half == 1) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) mine[n * 32] = make_float4(acc[n][0], acc[n][1], acc[n][2], acc[n][3]);
    }
    __syncthreads();
    if (part + step < parts) fetch_part(a, tables.places[1 - buffer], latents);
    copies_commit();
    if (w.half == 0) complete_scores(w, mine, a.scale, tables.places[buffer], tables, acc);
    __syncthreads();
    if (w.half == 0) {
      const int head = w.local * 16 + w.lane / 4;
      const float most[2] = {part_most<kGroups>(tables, head), part_most<kGroups>(tables, head + 8)};
      const int chunk = w.key_warp * (kTiles / 2);
      auto* const to = reinterpret_cast<uint4*>(p.weights) + ((at * p.groups + w.group) * 4 + chunk) * 64;
      store_weights<kTiles>(acc, most, to, tables, chunk, w.local * 16, w.group < p.groups);
    }
    __syncthreads();
    const int head = static_cast<int>(threadIdx.x);
    const int all = static_cast<int>(blockIdx.y) * kGroups * 16 + head;
    if (head < kGroups * 16 && all < p.groups * 16) {
      p.most[at * p.groups * 16 + all] = part_most<kGroups>(tables, head);
      p.sums[at * p.groups * 16 + all] = (tables.sums[0][head] + tables.sums[1][head]) + (tables.sums[2][head] + tables.sums[3][head]);
    }
  }
}

template <int kGroups>
void launch_weights(const AttendParts& p, int per_block, void* stream) {
  const dim3 grid(blocks_for(p.parts, per_block), blocks_for(p.groups, kGroups), static_cast<unsigned>(p.rows));
  const int64_t shared = kPartKeys * latent_stride(p.attend.latent) + 4 * (2 * kGroups) * 32 * 16 + static_cast<int64_t>(sizeof(PartTables));
  LATHE_LAUNCH(attend_weights<kGroups>, grid, dim3(kWeightThreads), shared, stream, p);
}

}  // namespace

/// Parts of a block so that the last round of blocks is full; a block's first part costs more than the others.
static int parts_per_block(const AttendParts& p) {
  int best = 1;
  int64_t least = INT64_MAX;
  for (int each = 1; each <= 16 && each <= p.parts; ++each) {
    const int64_t blocks = int64_t{p.rows} * blocks_for(p.groups, 4) * blocks_for(p.parts, each);
    const int64_t rounds = (blocks + 2 * multiprocessors() - 1) / (2 * multiprocessors());
    if (rounds * (2 * each + 1) < least) best = each, least = rounds * (2 * each + 1);
  }
  return best;
}
void launch_attend_weights(const AttendParts& p, AttendRung rung, void* stream) {
  if (p.rows == 0 || p.attend.heads == 0) return;
  if (few_rows(p, rung)) return launch_weights<1>(p, 1, stream);
  launch_weights<4>(p, parts_per_block(p), stream);
}

void launch_mla_attend_parts(const AttendParts& p, AttendRung rung, void* stream) {
  launch_attend_weights(p, rung, stream);
  launch_attend_sums(p, rung, stream);
}

}  // namespace lathe::kernels::cuda
