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
__device__ __forceinline__ float larger(float a, float b) { return b > a ? b : a; }  // a NaN is left out

/// Shared memory of the first kernel behind the latents.
struct PartTables {
  float most[4][64];  ///< of a warp's keys, by head of the block
  float sums[4][64];  ///< of 16 keys
  int places[kPartKeys];
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

/// A part of a row's keys for kGroups times 16 heads. Warps: two halves of the channels, kGroups, and the rest goes over the keys.
template <int kGroups>
__global__ void __launch_bounds__(kWeightThreads, kGroups > 1 ? 2 : 1) attend_weights(const AttendParts p) {
  constexpr int kKeyWarps = 4 / kGroups;
  constexpr int kTiles = 8 / kKeyWarps;
  const AttendArgs& a = p.attend;
  LATHE_DYNAMIC_SHARED(char, latents);
  const int stride = latent_stride(a.latent);
  auto* const exchange = reinterpret_cast<float4*>(latents + kPartKeys * stride);  // [4 warps, kTiles, 32]
  auto& tables = *reinterpret_cast<PartTables*>(exchange + 4 * kTiles * 32);
  const int row = static_cast<int>(blockIdx.z);
  const int t = p.row_begin + row;
  const int part = static_cast<int>(blockIdx.x);
  const RowKeys keys = keys_of(a, t);
  const int parts = keys.here ? (keys.total + kPartKeys - 1) / kPartKeys : -1;
  const bool first = blockIdx.y == 0 && threadIdx.x < kPartKeys;
  if (first && part == 0 && threadIdx.x == 0) p.counts[row] = parts;
  if (part >= parts) return;
  const int64_t at = static_cast<int64_t>(row) * p.parts + part;
  if (threadIdx.x < kPartKeys) {
    const int place = place_of(a, keys, t, part * kPartKeys + static_cast<int>(threadIdx.x));
    tables.places[threadIdx.x] = place;
    if (first) p.places[at * kPartKeys + threadIdx.x] = place;
  }
  __syncthreads();
  fetch_part(a, tables.places, latents);
  copies_commit();

  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int half = warp / 4;
  const int local = warp % 4 / kKeyWarps;  // group in the block
  const int key_warp = warp % kKeyWarps;
  const int group = static_cast<int>(blockIdx.y) * kGroups + local;
  const int channel = half * a.latent / 2 + lane % 4 * 8;
  const float* rows[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int head = group * 16 + lane / 4 + 8 * r;
    rows[r] = head < a.heads ? a.q.data + t * a.q.outer + head * a.q.inner + channel : nullptr;
  }
  constexpr int kAhead = kGroups > 1 ? 1 : 4;  // of 32 channels of q on their way; few blocks wait for each load, many hide it
  const int channels = a.latent / 2;
  QueryWords q[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (i * 32 < channels) q[i] = query_words(rows, i * 32);
  }
  copies_wait<0>();
  __syncthreads();
  float acc[kTiles][4] = {};
  const int first_key = key_warp * kTiles * 8;
  const char* const my_keys = latents + (first_key + lane / 4) * stride + channel * 2;
  for (int begin = 0; begin < channels; begin += 32 * kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int c = begin + i * 32;
      if (c >= channels) break;
      const QueryWords now = q[i];
      if (c + 32 * kAhead < channels) q[i] = query_words(rows, c + 32 * kAhead);
      score_tiles<kTiles>(now, my_keys + c * 2, stride, acc);
    }
  }

  float most[2] = {-INFINITY, -INFINITY};
  float4* const mine = exchange + (warp % 4 * kTiles) * 32 + lane;
  if (half == 1) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) mine[n * 32] = make_float4(acc[n][0], acc[n][1], acc[n][2], acc[n][3]);
  }
  __syncthreads();
  if (half == 0) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const float4 other = mine[n * 32];
      const float sum[4] = {acc[n][0] + other.x, acc[n][1] + other.y, acc[n][2] + other.z, acc[n][3] + other.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = first_key + n * 8 + lane % 4 * 2 + i % 2;
        acc[n][i] = tables.places[key] < 0 ? -INFINITY : sum[i] * a.scale;
        most[i / 2] = larger(most[i / 2], acc[n][i]);
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      most[r] = larger(most[r], __shfl_xor_sync(0xFFFFFFFFu, most[r], 1));
      most[r] = larger(most[r], __shfl_xor_sync(0xFFFFFFFFu, most[r], 2));
      if (lane % 4 == 0) tables.most[key_warp][local * 16 + lane / 4 + 8 * r] = most[r];
    }
  }
  __syncthreads();
  if (half == 0) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      most[r] = tables.most[0][local * 16 + lane / 4 + 8 * r];
      for (int w = 1; w < kKeyWarps; ++w) most[r] = larger(most[r], tables.most[w][local * 16 + lane / 4 + 8 * r]);
    }
    const int chunk = key_warp * (kTiles / 2);
    auto* const to = reinterpret_cast<uint4*>(p.weights) + ((at * p.groups + group) * 4 + chunk) * 64;
    store_weights<kTiles>(acc, most, to, tables, chunk, local * 16, group < p.groups);
  }
  __syncthreads();
  if (threadIdx.x < kGroups * 16) {
    const int head = static_cast<int>(threadIdx.x);
    float top = tables.most[0][head];
    for (int w = 1; w < kKeyWarps; ++w) top = larger(top, tables.most[w][head]);
    const int all = static_cast<int>(blockIdx.y) * kGroups * 16 + head;
    if (all < p.groups * 16) {
      p.most[at * p.groups * 16 + all] = top;
      p.sums[at * p.groups * 16 + all] = (tables.sums[0][head] + tables.sums[1][head]) + (tables.sums[2][head] + tables.sums[3][head]);
    }
  }
}

/// What a part counts for in its row.
__device__ __forceinline__ float part_factor(float part_most, float most) { return part_most == most ? 1.0f : expf(part_most - most); }

/// Maximum and sum of one head of a row to where they are asked for.
__device__ __forceinline__ void store_softmax(const AttendArgs& a, int t, int head, float most, float sum) {
  if (a.row_max.data != nullptr) a.row_max.data[t * a.row_max.stride + head] = most;
  if (a.row_sum.data != nullptr) a.row_sum.data[t * a.row_sum.stride + head] = sum;
}

constexpr int kFewThreads = 1024;
constexpr int kFewParts = 64;  // at a time

/// 16 heads and 16 channels of a part, latents straight from memory, to products [16 heads, 16 channels]. Column g of tile u is channel 2 g + u.
__device__ __forceinline__ void multiply_few(const AttendParts& p, int64_t at, int group, float4* products) {
  const AttendArgs& a = p.attend;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4, l = lane % 4;
  const auto* const pool = static_cast<const uint16_t*>(a.latents.pool) + static_cast<int>(blockIdx.x) * 16 + 2 * g;
  const int* const places = p.places + at * kPartKeys + 2 * l;
  unsigned words[4][4];  // keys 2 l, + 1, + 8, + 9 of 16
#pragma unroll
  for (int c = 0; c < 4; ++c) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int place = places[16 * c + k / 2 * 8 + k % 2];
      words[c][k] = place < 0 ? 0 : *reinterpret_cast<const unsigned*>(pool + place * a.latents.row_stride);
    }
  }
  const auto* const weights = reinterpret_cast<const uint4*>(p.weights) + (at * p.groups + group) * 256 + lane;
  float acc[2][4] = {};
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const uint4 high = weights[(c * 2 + 0) * 32], low = weights[(c * 2 + 1) * 32];
    const unsigned upper[4] = {high.x, high.y, high.z, high.w}, lower[4] = {low.x, low.y, low.z, low.w};
    unsigned b[2][2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const unsigned v = words[c][2 * k], w = words[c][2 * k + 1];
      b[0][k] = (v & 0xFFFFu) | w << 16, b[1][k] = v >> 16 | (w & 0xFFFF0000u);
    }
    mma_bf16(acc[0], upper, b[0]), mma_bf16(acc[1], upper, b[1]);
    mma_bf16(acc[0], lower, b[0]), mma_bf16(acc[1], lower, b[1]);
  }
  products[g * 4 + l] = make_float4(acc[0][0], acc[1][0], acc[0][1], acc[1][1]);
  products[(g + 8) * 4 + l] = make_float4(acc[0][2], acc[1][2], acc[0][3], acc[1][3]);
}

/// 16 heads and 16 channels of one row: a warp takes a part after the other.
__global__ void __launch_bounds__(kFewThreads) attend_few(const AttendParts p) {
  LATHE_DYNAMIC_SHARED(float4, products);  // [64 parts, 16 heads, 16 channels]
  __shared__ float factors[kFewParts][16];
  __shared__ float sums[kFewParts][16];
  __shared__ float tops[kFewParts][16];
  const AttendArgs& a = p.attend;
  const int row = static_cast<int>(blockIdx.z);
  const int t = p.row_begin + row;
  const int group = static_cast<int>(blockIdx.y);
  const int parts = p.counts[row];
  if (parts < 0) return;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int slot = static_cast<int>(threadIdx.x) / 16;
  const int head = static_cast<int>(threadIdx.x) % 16;
  const int64_t base = static_cast<int64_t>(row) * p.parts;
  const float* const most_of = p.most + (base * p.groups + group) * 16 + head;
  const float* const sum_of = p.sums + (base * p.groups + group) * 16 + head;
  float most = -INFINITY;
  for (int j = slot; j < parts; j += kFewParts) most = larger(most, most_of[static_cast<int64_t>(j) * p.groups * 16]);
  float total = 0, sum = 0;
  for (int begin = 0; begin < parts; begin += kFewParts) {
    for (int i = warp; i < kFewParts && begin + i < parts; i += kFewThreads / 32) multiply_few(p, base + begin + i, group, products + i * 64);
    if (begin == 0) {
      tops[slot][head] = most;
      __syncthreads();
      for (int i = 0; i < kFewParts; ++i) most = larger(most, tops[i][head]);
    }
    if (begin + slot < parts) {
      const int64_t j = static_cast<int64_t>(begin + slot) * p.groups * 16;
      factors[slot][head] = part_factor(most_of[j], most), sums[slot][head] = sum_of[j];
    }
    __syncthreads();
    if (threadIdx.x < 256) {
      const auto* const value = reinterpret_cast<const float*>(products) + threadIdx.x;
#pragma unroll 4
      for (int i = 0; i < min(kFewParts, parts - begin); ++i) {
        const float factor = factors[i][threadIdx.x / 16];
        total = fmaf(value[i * 256], factor, total);
        sum = fmaf(sums[i][threadIdx.x / 16], factor, sum);
      }
    }
    __syncthreads();
  }
  const int at_head = group * 16 + static_cast<int>(threadIdx.x) / 16;
  if (threadIdx.x >= 256 || at_head >= a.heads) return;
  a.out.data[t * a.out.outer + at_head * a.out.inner + static_cast<int>(blockIdx.x) * 16 + head] = sum == 0 ? 0.0f : total / sum;
  if (blockIdx.x > 0 || head > 0) return;
  most = -INFINITY;
  for (int i = 0; i < kFewParts && parts > 0; ++i) most = larger(most, tops[i][threadIdx.x / 16]);
  store_softmax(a, t, at_head, most, sum);
}

constexpr int kManyThreads = 256;
constexpr int kStages = 4;

/// A stage of the ring of attend_many: latents [64 keys] (padded, so that eight rows of 16 bytes meet no bank twice), weights of 64 heads, maxima,
/// sums.
template <int kTiles>
struct ManyStage {
  static constexpr int kChannels = 16 * kTiles;
  static constexpr int kStride = kChannels * 2 + 16;
  alignas(16) char latents[kPartKeys * kStride];
  uint4 weights[4 * 256];
  float4 most[16];
  float4 sums[16];
};

/// Begins the copies of a part. places: lane i < 8 has that of key 8 · warp + i.
template <int kTiles>
__device__ __forceinline__ void fetch_stage(const AttendParts& p, int64_t at, int places, ManyStage<kTiles>& to) {
  using Stage = ManyStage<kTiles>;
  constexpr int kPieces = Stage::kChannels / 8;
  const AttendArgs& a = p.attend;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto* const pool = static_cast<const uint16_t*>(a.latents.pool) + static_cast<int>(blockIdx.x) * Stage::kChannels;
#pragma unroll
  for (int i = 0; i < kPieces / 4; ++i) {
    const int key = (i * 32 + lane) / kPieces;
    const int piece = lane % kPieces;
    const int place = __shfl_sync(0xFFFFFFFFu, places, key);
    copy_16(to.latents + (warp * 8 + key) * Stage::kStride + piece * 16, pool + (place < 0 ? 0 : place * a.latents.row_stride) + piece * 8,
            place >= 0);
  }
  const int group = static_cast<int>(blockIdx.y) * 4;
  const auto* const weights = reinterpret_cast<const uint4*>(p.weights) + (at * p.groups + group) * 256;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (group + i < p.groups) copy_16(to.weights + i * 256 + threadIdx.x, weights + i * 256 + threadIdx.x);
  }
  if (threadIdx.x < 32) {
    const int piece = lane % 16;
    const float* const from = (lane < 16 ? p.most : p.sums) + (at * p.groups + group) * 16 + piece * 4;
    if (group + piece / 4 < p.groups) copy_16((lane < 16 ? to.most : to.sums) + piece, from);
  }
}

/// acc = weights · latents of one part, for 16 heads and 8 · kTiles channels.
template <int kTiles>
__device__ __forceinline__ void multiply_part(const ManyStage<kTiles>& in, int group, int half, float (*acc)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = 0;
  const char* const rows = in.latents + (lane % 16) * ManyStage<kTiles>::kStride + (half * kTiles * 8 + lane / 16 * 8) * 2;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const uint4 high = in.weights[group * 256 + (c * 2 + 0) * 32 + lane], low = in.weights[group * 256 + (c * 2 + 1) * 32 + lane];
    const unsigned upper[4] = {high.x, high.y, high.z, high.w}, lower[4] = {low.x, low.y, low.z, low.w};
#pragma unroll
    for (int n = 0; n < kTiles; n += 4) {
      unsigned b[8];
      load_transposed(b, rows + 16 * c * ManyStage<kTiles>::kStride + n * 16);
      load_transposed(b + 4, rows + 16 * c * ManyStage<kTiles>::kStride + n * 16 + 32);
#pragma unroll
      for (int i = 0; i < 4; ++i) mma_bf16(acc[n + i], upper, b + 2 * i);
#pragma unroll
      for (int i = 0; i < 4; ++i) mma_bf16(acc[n + i], lower, b + 2 * i);
    }
  }
}

/// Maxima of the 64 heads of the block over all parts, in shared memory.
__device__ void row_maxima(const AttendParts& p, int64_t base, int parts, float (*tops)[64]) {
  const int head = static_cast<int>(threadIdx.x) % 64;
  const int all = static_cast<int>(blockIdx.y) * 64 + head;
  float most = -INFINITY;
  for (int j = static_cast<int>(threadIdx.x) / 64; j < parts && all < p.groups * 16; j += 4)
    most = larger(most, p.most[(base + j) * p.groups * 16 + all]);
  tops[threadIdx.x / 64][head] = most;
  __syncthreads();
}

/// 64 heads and 16 · kTiles channels of one row. Warps: four groups of 16 heads, two halves of the channels; parts through a ring.
template <int kTiles>
__global__ void __launch_bounds__(kManyThreads) attend_many(const AttendParts p) {
  using Stage = ManyStage<kTiles>;
  LATHE_DYNAMIC_SHARED(Stage, ring);
  __shared__ float tops[4][64];
  const AttendArgs& a = p.attend;
  const int row = static_cast<int>(blockIdx.z);
  const int t = p.row_begin + row;
  const int parts = p.counts[row];
  if (parts < 0) return;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int group = warp % 4;
  const int half = warp / 4;
  const int64_t base = static_cast<int64_t>(row) * p.parts;
  const int* const my_places = p.places + base * kPartKeys + warp * 8 + lane % 8;
  for (int j = 0; j < kStages - 1; ++j) {
    if (j < parts) fetch_stage(p, base + j, my_places[j * kPartKeys], ring[j]);
    copies_commit();
  }
  row_maxima(p, base, parts, tops);
  float most[2];
  float sum[2] = {};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int head = group * 16 + lane / 4 + 8 * r;
    most[r] = larger(larger(tops[0][head], tops[1][head]), larger(tops[2][head], tops[3][head]));
  }
  float acc[kTiles][4];
  float total[kTiles][4] = {};
  int next = kStages - 1 < parts ? my_places[(kStages - 1) * kPartKeys] : -1;
  for (int j = 0; j < parts; ++j) {
    copies_wait<kStages - 2>();
    __syncthreads();
    const int ahead = j + kStages - 1;
    if (ahead < parts) fetch_stage(p, base + ahead, next, ring[ahead % kStages]);
    copies_commit();
    if (ahead + 1 < parts) next = my_places[(ahead + 1) * kPartKeys];
    const Stage& in = ring[j % kStages];
    multiply_part(in, group, half, acc);
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int head = group * 16 + lane / 4 + 8 * r;
      factor[r] = part_factor(reinterpret_cast<const float*>(in.most)[head], most[r]);
      sum[r] = fmaf(reinterpret_cast<const float*>(in.sums)[head], factor[r], sum[r]);
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) total[n][i] = fmaf(acc[n][i], factor[i / 2], total[n][i]);
    }
  }
  copies_wait<0>();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int head = static_cast<int>(blockIdx.y) * 64 + group * 16 + lane / 4 + 8 * r;
    if (head >= a.heads) continue;
    float* const out = a.out.data + t * a.out.outer + head * a.out.inner + static_cast<int>(blockIdx.x) * Stage::kChannels + half * kTiles * 8;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) out[n * 8 + lane % 4 * 2 + i] = sum[r] == 0 ? 0.0f : total[n][2 * r + i] / sum[r];
    }
    if (blockIdx.x == 0 && half == 0 && lane % 4 == 0) store_softmax(a, t, head, most[r], sum[r]);
  }
}

template <int kGroups>
void launch_weights(const AttendParts& p, void* stream) {
  const dim3 grid(static_cast<unsigned>(p.parts), blocks_for(p.groups, kGroups), static_cast<unsigned>(p.rows));
  const int64_t shared = kPartKeys * latent_stride(p.attend.latent) + 4 * (2 * kGroups) * 32 * 16 + static_cast<int64_t>(sizeof(PartTables));
  LATHE_LAUNCH(attend_weights<kGroups>, grid, dim3(kWeightThreads), shared, stream, p);
}

template <int kTiles>
void launch_many(const AttendParts& p, void* stream) {
  const dim3 grid(blocks_for(p.attend.latent, 16 * kTiles), blocks_for(p.groups, 4), static_cast<unsigned>(p.rows));
  LATHE_LAUNCH(attend_many<kTiles>, grid, dim3(kManyThreads), kStages * static_cast<int64_t>(sizeof(ManyStage<kTiles>)), stream, p);
}

constexpr int kFewRows = 2;
constexpr int kWideRows = 33;  // from here on blocks of 256 channels fill the device

}  // namespace

static bool few_rows(const AttendParts& p, AttendRung rung) { return rung == AttendRung::kAuto ? p.rows <= kFewRows : rung == AttendRung::kFew; }

void launch_attend_weights(const AttendParts& p, AttendRung rung, void* stream) {
  if (p.rows == 0 || p.attend.heads == 0) return;
  if (few_rows(p, rung)) return launch_weights<1>(p, stream);
  launch_weights<4>(p, stream);
}

void launch_attend_sums(const AttendParts& p, AttendRung rung, void* stream) {
  if (p.rows == 0 || p.attend.heads == 0) return;
  if (few_rows(p, rung)) {
    const dim3 grid(static_cast<unsigned>(p.attend.latent / 16), static_cast<unsigned>(p.groups), static_cast<unsigned>(p.rows));
    LATHE_LAUNCH(attend_few, grid, dim3(kFewThreads), kFewParts * 1024, stream, p);
    return;
  }
  if (p.attend.latent % 256 == 0 && (p.rows >= kWideRows || rung == AttendRung::kMany)) return launch_many<16>(p, stream);
  launch_many<4>(p, stream);
}

void launch_mla_attend_parts(const AttendParts& p, AttendRung rung, void* stream) {
  launch_attend_weights(p, rung, stream);
  launch_attend_sums(p, rung, stream);
}

}  // namespace lathe::kernels::cuda
