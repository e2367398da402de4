// Latent attention: rows into pages, index keys, the choice of pools, absorb and attend.

#include "kernels/cuda/kept.h"

namespace lathe::kernels::cuda {
namespace {

constexpr int kThreads = 128;

/// Row `row` of a pool from value(channel), by the whole block; codes are made in runs of as many as there are threads.
template <class Value>
__device__ __forceinline__ void write_page_row(const Pages& pages, int64_t row, int width, const Value& value) {
  __shared__ unsigned most[kThreads / 32];
  const int64_t to = row * pages.row_stride;
  for (int first = 0; first < width; first += kThreads) {
    const int c = first + static_cast<int>(threadIdx.x);
    const float mine = c < width ? value(c) : 0.0f;
    if (pages.scales == nullptr) {
      if (c < width) store(pages.pool, pages.type, to + c, mine);
      continue;
    }
    unsigned largest = magnitude_bits(mine);
    for (int mask = 16; mask > 0; mask >>= 1) largest = max(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, mask));
    __syncthreads();
    if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = largest;
    __syncthreads();
    for (const unsigned other : most) largest = max(largest, other);
    const bool int8 = pages.type == Type::kI8;
    const CodeScale scale = code_scale(largest, int8 ? 127.0f : 448.0f);
    if (c < width && int8) static_cast<int8_t*>(pages.pool)[to + c] = static_cast<int8_t>(code_of(mine, scale.inverse));
    if (c < width && !int8)
      static_cast<uint8_t*>(pages.pool)[to + c] = static_cast<uint8_t>(f8_bits(scale.inverse == 0.0f ? 0.0f : mine * scale.inverse));
    if (threadIdx.x == 0) pages.scales[row * pages.scale_stride + first / kThreads] = scale.scale;
  }
}
static_assert(kThreads == 128);

__global__ void write_latents(const WriteLatentsArgs p) {
  const int t = static_cast<int>(blockIdx.x);
  const int s = sequence_of(p.batch, t);
  write_page_row(p.pool, page_row(p.pool, s, position_of(p.batch, s, t)), p.width, [&](int c) { return p.x.data[t * p.x.stride + c]; });
}

/// Mean and factor of the norm of one raw key.
__device__ void key_statistics(const IndexKeysArgs& p, int t, double& mean, double& factor) {
  const float* const k = p.k.data + t * p.k.stride;
  double sum = 0;
  for (int c = threadIdx.x; c < p.width; c += kThreads) sum += static_cast<double>(k[c]);
  mean = block_sum(sum) / p.width;
  double squares = 0;
  for (int c = threadIdx.x; c < p.width; c += kThreads) squares += (static_cast<double>(k[c]) - mean) * (static_cast<double>(k[c]) - mean);
  factor = 1.0 / sqrt(block_sum(squares) / p.width + static_cast<double>(p.eps));
}
__device__ __forceinline__ float normalised(const IndexKeysArgs& p, int t, int c, double mean, double factor) {
  return static_cast<float>((static_cast<double>(p.k.data[t * p.k.stride + c]) - mean) * factor * static_cast<double>(element(p.norm_weight, c)) +
                            static_cast<double>(element(p.norm_bias, c)));
}

/// A block per row; those whose row completes a pool write it. The ring is only read: rows go into it afterwards.
__global__ void index_pools(const IndexKeysArgs p) {
  LATHE_DYNAMIC_SHARED(float, keys);  // [pool, width]
  const int t = static_cast<int>(blockIdx.x);
  const int s = sequence_of(p.batch, t);
  const int start = p.batch.start[s];
  const int begin = p.batch.begin[s];
  const int position = start + t - begin;
  if ((position + 1) % p.pool != 0) return;
  const int first = position + 1 - p.pool;
  const auto ring = [&](int at) { return p.ring + p.slot[s] * p.ring_slot + at % p.ring_rows * p.ring_row; };
  for (int j = 0; j < p.pool; ++j) {
    const int at = first + j;
    if (at < start) {
      for (int c = threadIdx.x; c < p.width; c += kThreads) keys[j * p.width + c] = ring(at)[c];
    } else {
      double mean, factor;
      key_statistics(p, begin + at - start, mean, factor);
      for (int c = threadIdx.x; c < p.width; c += kThreads) keys[j * p.width + c] = normalised(p, begin + at - start, c, mean, factor);
    }
  }
  write_page_row(p.keys, page_row(p.keys, s, first / p.pool), p.width, [&](int c) {  // a thread reads only what it wrote
    const auto gate = [&](int j) {
      const int at = first + j;
      const float raw = at < start ? ring(at)[p.ring_part + c] : p.gate.data[(begin + at - start) * p.gate.stride + c];
      return static_cast<double>(raw) + static_cast<double>(element(p.ape, j * p.ape_stride + c));
    };
    double most = gate(0);
    for (int j = 1; j < p.pool; ++j) most = most < gate(j) ? gate(j) : most;
    double sum = 0;
    double key = 0;
    for (int j = 0; j < p.pool; ++j) {
      const double weight = exp(gate(j) - most);
      sum += weight;
      key += weight * static_cast<double>(keys[j * p.width + c]);
    }
    return static_cast<float>(key / sum);
  });
}

__global__ void index_ring(const IndexKeysArgs p) {
  const int t = static_cast<int>(blockIdx.x);
  const int s = sequence_of(p.batch, t);
  if (p.batch.begin[s + 1] - t > p.ring_rows) return;
  float* const to = p.ring + p.slot[s] * p.ring_slot + position_of(p.batch, s, t) % p.ring_rows * p.ring_row;
  double mean, factor;
  key_statistics(p, t, mean, factor);
  for (int c = threadIdx.x; c < p.width; c += kThreads) {
    to[c] = normalised(p, t, c, mean, factor);
    to[p.ring_part + c] = p.gate.data[t * p.gate.stride + c];
  }
}

constexpr int kPoolsPerBlock = 64;

/// Whether a row has to score at all, and how many pools it has.
__device__ __forceinline__ int pools_of(const SelectArgs& p, int t) {
  const int s = sequence_of(p.batch, t);
  return (position_of(p.batch, s, t) + 1) / p.kpool;
}

/// A warp scores one pool after the other; lanes go over the channels, q stays in shared memory.
__global__ void index_scores(const SelectArgs p) {
  LATHE_DYNAMIC_SHARED(float, q);  // [heads, width], then weights [heads]
  float* const weights = q + p.heads * p.width;
  const int t = p.row_begin + static_cast<int>(blockIdx.y);
  const int s = sequence_of(p.batch, t);
  const int pools = pools_of(p, t);
  const int first = static_cast<int>(blockIdx.x) * kPoolsPerBlock;
  if (first >= pools || (pools <= p.most && !p.wanted)) return;
  const float scale = static_cast<float>(1.0 / sqrt(static_cast<double>(p.width)));
  const float head_scale = static_cast<float>(1.0 / sqrt(static_cast<double>(p.heads)));
  for (int i = threadIdx.x; i < p.heads * p.width; i += kThreads) q[i] = p.q.data[t * p.q.outer + i / p.width * p.q.inner + i % p.width];
  for (int h = threadIdx.x; h < p.heads; h += kThreads) weights[h] = p.weights.data[t * p.weights.stride + h] * head_scale;
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float* const out = p.scores.data + (p.wanted ? t : static_cast<int>(blockIdx.y)) * p.scores.stride;
  for (int pool = first + static_cast<int>(threadIdx.x) / 32; pool < min(pools, first + kPoolsPerBlock); pool += kThreads / 32) {
    const int64_t key = page_row(p.keys, s, pool);
    float total = 0;
    for (int h = 0; h < p.heads; ++h) {
      float product = 0;
      for (int c = lane; c < p.width; c += 32) product = fmaf(q[h * p.width + c], page_value(p.keys, key, c), product);
      product = warp_sum(product) * scale;
      total = fmaf(weights[h], product < 0.0f ? 0.0f : product, total);
    }
    if (lane == 0) out[pool] = total;
  }
}

/// Exclusive prefix sum of 0/1 flags over the block, and their total.
__device__ int block_rank(bool flag, int* total, int* warp_counts) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const unsigned marks = __ballot_sync(0xFFFFFFFFu, flag);
  __syncthreads();
  if (lane == 0) warp_counts[warp] = __popc(marks);
  __syncthreads();
  int before = __popc(marks & ((1u << lane) - 1u));
  int sum = 0;
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w < warp) before += warp_counts[w];
    sum += warp_counts[w];
  }
  *total = sum;
  return before;
}

/// One block a row: the key of the last pool that fits is found digit by digit, then the pools are written in order.
__global__ void index_choose(const SelectArgs p) {
  __shared__ int histogram[256];
  __shared__ int warp_counts[kThreads / 32];
  __shared__ unsigned prefix_shared;
  __shared__ int left_shared;
  const int t = p.row_begin + static_cast<int>(blockIdx.x);
  const int pools = pools_of(p, t);
  int32_t* const selection = p.selection + t * p.selection_stride;
  float* const scores = p.scores.data + (p.wanted ? t : static_cast<int>(blockIdx.x)) * p.scores.stride;
  if (p.wanted) {
    for (int i = pools + static_cast<int>(threadIdx.x); i < p.score_columns; i += kThreads) scores[i] = -INFINITY;
  }
  if (pools <= p.most) {
    for (int i = threadIdx.x; i < p.most; i += kThreads) selection[i] = i < pools ? i : -1;
    return;
  }
  unsigned prefix = 0;  // digits found so far
  int left = p.most;    // how many with exactly this prefix are taken
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < 256; i += kThreads) histogram[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < pools; i += kThreads) {
      const unsigned key = order_key(scores[i]);
      if (shift == 24 || (key >> (shift + 8)) == (prefix >> (shift + 8))) atomicAdd(&histogram[(key >> shift) & 255u], 1);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int digit = 255;
      while (digit > 0 && histogram[digit] < left) left -= histogram[digit--];
      prefix_shared = prefix | static_cast<unsigned>(digit) << shift;
      left_shared = left;
    }
    __syncthreads();
    prefix = prefix_shared;
    left = left_shared;
  }
  int written = 0;
  int equal_seen = 0;
  for (int first = 0; first < pools; first += kThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    const unsigned key = i < pools ? order_key(scores[i]) : 0;
    const bool equal = i < pools && key == prefix;
    int equals = 0;
    const int rank = equal_seen + block_rank(equal, &equals, warp_counts);
    const bool taken = (i < pools && key > prefix) || (equal && rank < left);
    int taken_here = 0;
    const int slot = written + block_rank(taken, &taken_here, warp_counts);
    if (taken) selection[slot] = i;
    equal_seen += equals;
    written += taken_here;
  }
}

constexpr int kAbsorbTokens = 8;

/// A thread has one latent channel of one head for 8 tokens.
__global__ void mla_absorb(const AbsorbArgs p) {
  LATHE_DYNAMIC_SHARED(float, q);  // [nope, 8]
  const int c = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  const int64_t h = blockIdx.y;
  const int first = static_cast<int>(blockIdx.z) * kAbsorbTokens;
  for (int i = threadIdx.x; i < p.nope * kAbsorbTokens; i += kThreads) {
    const int t = first + i % kAbsorbTokens;
    const float value = t < p.tokens ? p.q.data[t * p.q.outer + h * p.q.inner + i / kAbsorbTokens] : 0.0f;
    q[i] = p.fast ? round_bf16(value) : value;
  }
  __syncthreads();
  if (c >= p.latent) return;
  float sum[kAbsorbTokens] = {};
  const int64_t row = h * (p.nope + p.value);
  for (int r = 0; r < p.nope; ++r) {
    const float w = weight_at(p.kv_b, p.kv_b.values, p.kv_b.scales, row + r, c, p.fast);
#pragma unroll
    for (int j = 0; j < kAbsorbTokens; ++j) sum[j] = fmaf(q[r * kAbsorbTokens + j], w, sum[j]);
  }
#pragma unroll
  for (int j = 0; j < kAbsorbTokens; ++j) {
    if (first + j < p.tokens) p.out.data[(first + j) * p.out.outer + h * p.out.inner + c] = sum[j];
  }
}

constexpr int kHeadsPerBlock = 8;
constexpr int kAttendThreads = 32 * kHeadsPerBlock;
constexpr int kKeysAtOnce = 16;

/// 16 latents to shared memory as f32, by the whole block; those without a key stay as they were.
__device__ __forceinline__ void fetch_latents(const AttendArgs& p, const int64_t* places, float* latents) {
  const bool wide =
      p.latents.type == Type::kBF16 && p.latent % 8 == 0 && p.latents.row_stride % 8 == 0 && reinterpret_cast<uintptr_t>(p.latents.pool) % 16 == 0;
  if (!wide) {
    for (int i = threadIdx.x; i < kKeysAtOnce * p.latent; i += kAttendThreads) {
      const int64_t at = places[i / p.latent];
      if (at >= 0) latents[i] = page_value(p.latents, at, i % p.latent);
    }
    return;
  }
  constexpr int kEights = kKeysAtOnce * kLatentMax / 8 / kAttendThreads;  // of a thread at most, all on their way at a time
  const int eights = p.latent / 8;
  uint4 v[kEights];
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    const int n = i * kAttendThreads + static_cast<int>(threadIdx.x);
    const int64_t at = n < kKeysAtOnce * eights ? places[n / eights] : -1;
    v[i] = uint4{0, 0, 0, 0};
    if (at >= 0) v[i] = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(p.latents.pool) + at * p.latents.row_stride + n % eights * 8);
  }
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    const int n = i * kAttendThreads + static_cast<int>(threadIdx.x);
    if (n >= kKeysAtOnce * eights) break;
    auto* const to = reinterpret_cast<float4*>(latents + n * 8);
    to[0] = make_float4(__uint_as_float(v[i].x << 16), __uint_as_float(v[i].x & 0xFFFF0000u), __uint_as_float(v[i].y << 16),
                        __uint_as_float(v[i].y & 0xFFFF0000u));
    to[1] = make_float4(__uint_as_float(v[i].z << 16), __uint_as_float(v[i].z & 0xFFFF0000u), __uint_as_float(v[i].w << 16),
                        __uint_as_float(v[i].w & 0xFFFF0000u));
  }
}

/// Rows of the pool that have the latents of keys `first` … of row t; the first kKeysAtOnce threads write one each.
__device__ void place_keys(const AttendArgs& p, int t, int s, int tail, int first, int total, int64_t* places) {
  if (threadIdx.x >= kKeysAtOnce) return;
  const int pooled = p.pools_max * p.kpool;
  const int i = first + static_cast<int>(threadIdx.x);
  int at = -1;
  if (i < pooled) {
    const int pool = p.pools[t * p.pools_stride + i / p.kpool];
    at = pool >= 0 ? pool * p.kpool + i % p.kpool : -1;
  } else if (i < total) {
    at = tail + i - pooled;
  }
  places[threadIdx.x] = at >= 0 ? page_row(p.latents, s, at) : -1;
}

/// One row and 8 heads: latents come to shared memory 16 at a time, a warp has a head, a lane every 32nd channel of it. Softmax on the way, key chunks in order.
template <int kEach>
__global__ void __launch_bounds__(kAttendThreads) mla_attend(const AttendArgs p) {
  LATHE_DYNAMIC_SHARED(float, latents);    // [16, latent]
  __shared__ int64_t places[kKeysAtOnce];  // rows of the pool; negative: no key
  const int t = static_cast<int>(blockIdx.x);
  const int h = static_cast<int>(blockIdx.y) * kHeadsPerBlock + static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool mine = h < p.heads;
  const int s = sequence_of(p.batch, t);
  const int position = position_of(p.batch, s, t);
  const int pooled = p.pools_max * p.kpool;
  const int tail = p.tail_begin != nullptr ? p.tail_begin[t] : (position + 1) / p.kpool * p.kpool;
  if (max(position - tail + 1, 0) <= p.tail_over) return;
  const int total = pooled + (position >= tail ? position - tail + 1 : 0);
  float q[kEach], z[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int c = lane + 32 * i;
    q[i] = mine && c < p.latent ? p.q.data[t * p.q.outer + static_cast<int64_t>(h) * p.q.inner + c] : 0.0f;
    z[i] = 0;
  }
  float most = -INFINITY;
  float sum = 0;
  bool any = false;
  for (int first = 0; first < total; first += kKeysAtOnce) {
    __syncthreads();
    place_keys(p, t, s, tail, first, total, places);
    __syncthreads();
    fetch_latents(p, places, latents);
    __syncthreads();
    for (int key = 0; key < kKeysAtOnce; ++key) {
      if (places[key] < 0) continue;
      const float* const latent = latents + key * p.latent;
      float score = 0;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (lane + 32 * i < p.latent) score = fmaf(q[i], latent[lane + 32 * i], score);
      }
      score = warp_sum(score) * p.scale;
      const float larger = score <= most ? most : score;
      const float kept = any ? expf(most - larger) : 0.0f;
      const float weight = expf(score - larger);
      most = larger;
      any = true;
      sum = fmaf(sum, kept, weight);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (lane + 32 * i < p.latent) z[i] = fmaf(z[i], kept, weight * latent[lane + 32 * i]);
      }
    }
  }
  if (!mine) return;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int c = lane + 32 * i;
    if (c < p.latent) p.out.data[t * p.out.outer + static_cast<int64_t>(h) * p.out.inner + c] = any ? z[i] / sum : 0.0f;
  }
  if (lane == 0 && p.row_max.data != nullptr) p.row_max.data[t * p.row_max.stride + h] = most;
  if (lane == 0 && p.row_sum.data != nullptr) p.row_sum.data[t * p.row_sum.stride + h] = sum;
}

template <int kEach>
void launch_attend(const AttendArgs& args, void* stream) {
  const dim3 grid(static_cast<unsigned>(args.batch.tokens), blocks_for(args.heads, kHeadsPerBlock));
  const int64_t shared = int64_t{kKeysAtOnce} * args.latent * 4;
  LATHE_LAUNCH(mla_attend<kEach>, grid, dim3(kAttendThreads), shared, stream, args);
}

}  // namespace

void launch_write_latents(const WriteLatentsArgs& args, void* stream) {
  if (args.batch.tokens > 0) LATHE_LAUNCH(write_latents, dim3(static_cast<unsigned>(args.batch.tokens)), dim3(kThreads), 0, stream, args);
}

void launch_index_keys(const IndexKeysArgs& args, void* stream) {
  if (args.batch.tokens == 0) return;
  const dim3 grid(static_cast<unsigned>(args.batch.tokens));
  const int64_t shared = int64_t{args.pool} * args.width * 4;
  LATHE_LAUNCH(index_pools, grid, dim3(kThreads), shared, stream, args);
  LATHE_LAUNCH(index_ring, grid, dim3(kThreads), 0, stream, args);
}

void launch_index_select(const SelectArgs& args, void* stream) {
  if (args.row_end == args.row_begin) return;
  const auto rows = static_cast<unsigned>(args.row_end - args.row_begin);
  if (args.score_columns > 0) {
    const int64_t shared = (int64_t{args.heads} * (args.width + 1)) * 4;
    LATHE_LAUNCH(index_scores, dim3(blocks_for(args.score_columns, kPoolsPerBlock), rows), dim3(kThreads), shared, stream, args);
  }
  LATHE_LAUNCH(index_choose, dim3(rows), dim3(kThreads), 0, stream, args);
}

void launch_mla_absorb(const AbsorbArgs& args, void* stream) {
  if (args.tokens == 0 || args.heads == 0) return;
  const dim3 grid(blocks_for(args.latent, kThreads), static_cast<unsigned>(args.heads), blocks_for(args.tokens, kAbsorbTokens));
  LATHE_LAUNCH(mla_absorb, grid, dim3(kThreads), int64_t{args.nope} * kAbsorbTokens * 4, stream, args);
}

void launch_mla_attend(const AttendArgs& args, void* stream) {
  if (args.batch.tokens == 0 || args.heads == 0) return;
  if (args.latent <= 64) return launch_attend<2>(args, stream);
  if (args.latent <= 128) return launch_attend<4>(args, stream);
  launch_attend<kLatentMax / 32>(args, stream);
}

}  // namespace lathe::kernels::cuda
