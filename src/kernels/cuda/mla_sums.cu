// Latent attention over BF16 latents, second launch: softmax weights of parts (mla_parts.cu) times the latents, parts added in order.

#include "kernels/cuda/tensor_core.h"

namespace lathe::kernels::cuda {
namespace {

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

constexpr int kStages = 4;

/// A stage of the ring of attend_many: latents [64 keys] (padded, so that eight rows of 16 bytes meet no bank twice), weights of 64 heads, maxima,
/// sums.
template <int kTiles, int kSplit>
struct ManyStage {
  static constexpr int kChannels = 8 * kTiles * kSplit;
  static constexpr int kThreads = 128 * kSplit;
  static constexpr int kKeys = 16 / kSplit;  // that a warp fetches
  static constexpr int kStride = kChannels * 2 + 16;
  alignas(16) char latents[kPartKeys * kStride];
  uint4 weights[4 * 256];
  float4 most[16];
  float4 sums[16];
};

/// Begins the copies of a part. places: lane i < kKeys has that of key kKeys · warp + i.
template <int kTiles, int kSplit>
__device__ __forceinline__ void fetch_stage(const AttendParts& p, int64_t at, int places, ManyStage<kTiles, kSplit>& to) {
  using Stage = ManyStage<kTiles, kSplit>;
  constexpr int kPieces = Stage::kChannels / 8;
  const AttendArgs& a = p.attend;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto* const pool = static_cast<const uint16_t*>(a.latents.pool) + static_cast<int>(blockIdx.x) * Stage::kChannels;
#pragma unroll
  for (int i = 0; i < Stage::kKeys * kPieces / 32; ++i) {
    const int key = (i * 32 + lane) / kPieces;
    const int piece = lane % kPieces;
    const int place = __shfl_sync(0xFFFFFFFFu, places, key);
    copy_16(to.latents + (warp * Stage::kKeys + key) * Stage::kStride + piece * 16, pool + (place < 0 ? 0 : place * a.latents.row_stride) + piece * 8,
            place >= 0);
  }
  const int group = static_cast<int>(blockIdx.y) * 4;
  const auto* const weights = reinterpret_cast<const uint4*>(p.weights) + (at * p.groups + group) * 256;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < 1024; i += Stage::kThreads) {
    if (group + i / 256 < p.groups) copy_16(to.weights + i, weights + i);
  }
  if (threadIdx.x < 32) {
    const int piece = lane % 16;
    const float* const from = (lane < 16 ? p.most : p.sums) + (at * p.groups + group) * 16 + piece * 4;
    if (group + piece / 4 < p.groups) copy_16((lane < 16 ? to.most : to.sums) + piece, from);
  }
}

/// acc = weights · latents of one part, for 16 heads and 8 · kTiles channels.
template <int kTiles, int kSplit>
__device__ __forceinline__ void multiply_part(const ManyStage<kTiles, kSplit>& in, int group, int piece, float (*acc)[4]) {
  constexpr int kStride = ManyStage<kTiles, kSplit>::kStride;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = 0;
  const char* const rows = in.latents + (lane % 16) * kStride + (piece * kTiles * 8 + lane / 16 * 8) * 2;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const uint4 high = in.weights[group * 256 + (c * 2 + 0) * 32 + lane], low = in.weights[group * 256 + (c * 2 + 1) * 32 + lane];
    const unsigned upper[4] = {high.x, high.y, high.z, high.w}, lower[4] = {low.x, low.y, low.z, low.w};
#pragma unroll
    for (int n = 0; n < kTiles; n += 4) {
      unsigned b[8];
      load_transposed(b, rows + 16 * c * kStride + n * 16);
      load_transposed(b + 4, rows + 16 * c * kStride + n * 16 + 32);
#pragma unroll
      for (int i = 0; i < 4; ++i) mma_bf16(acc[n + i], upper, b + 2 * i);
#pragma unroll
      for (int i = 0; i < 4; ++i) mma_bf16(acc[n + i], lower, b + 2 * i);
    }
  }
}

/// Maxima of the 64 heads of the block over all parts, in shared memory.
__device__ void row_maxima(const AttendParts& p, int64_t base, int parts, int classes, float (*tops)[64]) {
  const int head = static_cast<int>(threadIdx.x) % 64;
  const int all = static_cast<int>(blockIdx.y) * 64 + head;
  float most = -INFINITY;
  for (int j = static_cast<int>(threadIdx.x) / 64; j < parts && all < p.groups * 16; j += classes)
    most = larger(most, p.most[(base + j) * p.groups * 16 + all]);
  tops[threadIdx.x / 64][head] = most;
  __syncthreads();
}

/// 64 heads and 8 · kTiles · kSplit channels of one row. Warps: four groups of 16 heads, kSplit pieces of the channels; parts through a ring.
template <int kTiles, int kSplit>
__global__ void __launch_bounds__(128 * kSplit) attend_many(const AttendParts p) {
  using Stage = ManyStage<kTiles, kSplit>;
  LATHE_DYNAMIC_SHARED(Stage, ring);
  __shared__ float tops[2 * kSplit][64];
  const AttendArgs& a = p.attend;
  const int row = static_cast<int>(blockIdx.z);
  const int t = p.row_begin + row;
  const int parts = p.counts[row];
  if (parts < 0) return;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int group = warp % 4;
  const int piece = warp / 4;
  const int64_t base = static_cast<int64_t>(row) * p.parts;
  const int* const my_places = p.places + base * kPartKeys + warp * Stage::kKeys + lane % Stage::kKeys;
  for (int j = 0; j < kStages - 1; ++j) {
    if (j < parts) fetch_stage<kTiles, kSplit>(p, base + j, my_places[j * kPartKeys], ring[j]);
    copies_commit();
  }
  row_maxima(p, base, parts, 2 * kSplit, tops);
  float most[2];
  float sum[2] = {};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int head = group * 16 + lane / 4 + 8 * r;
    most[r] = tops[0][head];
    for (int i = 1; i < 2 * kSplit; ++i) most[r] = larger(most[r], tops[i][head]);
  }
  float acc[kTiles][4];
  float total[kTiles][4] = {};
  int next = kStages - 1 < parts ? my_places[(kStages - 1) * kPartKeys] : -1;
  for (int j = 0; j < parts; ++j) {
    copies_wait<kStages - 2>();
    __syncthreads();
    const int ahead = j + kStages - 1;
    if (ahead < parts) fetch_stage<kTiles, kSplit>(p, base + ahead, next, ring[ahead % kStages]);
    copies_commit();
    if (ahead + 1 < parts) next = my_places[(ahead + 1) * kPartKeys];
    const Stage& in = ring[j % kStages];
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int head = group * 16 + lane / 4 + 8 * r;
      factor[r] = part_factor(reinterpret_cast<const float*>(in.most)[head], most[r]);
      sum[r] = fmaf(reinterpret_cast<const float*>(in.sums)[head], factor[r], sum[r]);
    }
    multiply_part<kTiles, kSplit>(in, group, piece, acc);
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
    float* const out = a.out.data + t * a.out.outer + head * a.out.inner + static_cast<int>(blockIdx.x) * Stage::kChannels + piece * kTiles * 8;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) out[n * 8 + lane % 4 * 2 + i] = sum[r] == 0 ? 0.0f : total[n][2 * r + i] / sum[r];
    }
    if (blockIdx.x == 0 && piece == 0 && lane % 4 == 0) store_softmax(a, t, head, most[r], sum[r]);
  }
}

template <int kTiles, int kSplit>
void launch_many(const AttendParts& p, void* stream) {
  using Stage = ManyStage<kTiles, kSplit>;
  const dim3 grid(blocks_for(p.attend.latent, Stage::kChannels), blocks_for(p.groups, 4), static_cast<unsigned>(p.rows));
  const auto kernel = attend_many<kTiles, kSplit>;
  LATHE_LAUNCH(kernel, grid, dim3(Stage::kThreads), kStages * static_cast<int64_t>(sizeof(Stage)), stream, p);
}

constexpr int kWideRows = 33;  // from here on blocks of 256 channels fill the device

}  // namespace

void launch_attend_sums(const AttendParts& p, AttendRung rung, void* stream) {
  if (p.rows == 0 || p.attend.heads == 0) return;
  if (few_rows(p, rung)) {
    const dim3 grid(static_cast<unsigned>(p.attend.latent / 16), static_cast<unsigned>(p.groups), static_cast<unsigned>(p.rows));
    LATHE_LAUNCH(attend_few, grid, dim3(kFewThreads), kFewParts * 1024, stream, p);
    return;
  }
  if (p.attend.latent % 256 == 0 && (p.rows >= kWideRows || rung == AttendRung::kMany)) return launch_many<16, 2>(p, stream);
  launch_many<4, 2>(p, stream);
}

}  // namespace lathe::kernels::cuda
