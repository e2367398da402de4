// Routing, and the experts: rows are listed by expert, every expert's rows go through its matrices in tiles, the canonical tree adds the experts of a row.

#include "kernels/cuda/product_tile.h"

namespace lathe::kernels::cuda {
namespace {

constexpr int kThreads = 256;

/// Largest key of a row's candidates, lowest index on ties; removes it. One warp; key 0xFFFFFFFF cannot occur, taken ones are marked.
__device__ int take_best(const unsigned* keys, bool* taken, int count) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  unsigned best = 0;
  int at = count;
  for (int i = lane; i < count; i += 32) {
    if (!taken[i] && (at == count || keys[i] > best)) best = keys[i], at = i;
  }
  for (int mask = 16; mask > 0; mask >>= 1) {
    const unsigned other = __shfl_xor_sync(0xFFFFFFFFu, best, mask);
    const int other_at = __shfl_xor_sync(0xFFFFFFFFu, at, mask);
    if (other_at < count && (at == count || other > best || (other == best && other_at < at))) best = other, at = other_at;
  }
  __syncwarp();
  if (lane == 0 && at < count) taken[at] = true;
  __syncwarp();
  return at;
}

/// One warp a row.
__global__ void route(const RouteArgs p) {
  __shared__ float s[kRouteExpertsMax];
  __shared__ float biased[kRouteExpertsMax];
  __shared__ unsigned keys[kRouteExpertsMax];
  __shared__ bool taken[kRouteExpertsMax];
  __shared__ bool group_taken[kRouteExpertsMax];
  const int64_t t = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x);
  for (int e = lane; e < p.experts; e += 32) {
    s[e] = static_cast<float>(sigmoid(static_cast<double>(p.logits.data[t * p.logits.stride + e])));
    biased[e] = s[e] + element(p.bias, e);
    taken[e] = p.groups > 1;
  }
  __syncwarp();
  if (p.groups > 1) {
    const int size = p.experts / p.groups;
    for (int g = lane; g < p.groups; g += 32) {
      int first = g * size;
      for (int e = first + 1; e < (g + 1) * size; ++e) first = order_key(biased[e]) > order_key(biased[first]) ? e : first;
      int second = -1;
      for (int e = g * size; e < (g + 1) * size; ++e) {
        if (e != first && (second < 0 || order_key(biased[e]) > order_key(biased[second]))) second = e;
      }
      keys[g] = order_key(biased[first] + biased[second]);
      group_taken[g] = false;
    }
    __syncwarp();
    for (int i = 0; i < p.groups_kept; ++i) {
      const int g = take_best(keys, group_taken, p.groups);
      for (int e = g * size + lane; e < (g + 1) * size; e += 32) taken[e] = false;
      __syncwarp();
    }
  }
  for (int e = lane; e < p.experts; e += 32) keys[e] = order_key(biased[e]);
  __syncwarp();
  // Chosen experts are marked by a key that no number has.
  for (int i = 0; i < p.chosen; ++i) {
    const int e = take_best(keys, taken, p.experts);
    if (lane == 0) keys[e] = 0xFFFFFFFFu;
    __syncwarp();
  }
  double sum = 1e-20;
  for (int e = 0; e < p.experts; ++e) {
    if (keys[e] == 0xFFFFFFFFu) sum += static_cast<double>(s[e]);
  }
  int before = 0;
  for (int first = 0; first < p.experts; first += 32) {
    const int e = first + lane;
    const bool mine = e < p.experts && keys[e] == 0xFFFFFFFFu;
    const unsigned marks = __ballot_sync(0xFFFFFFFFu, mine);
    if (mine) {
      const int slot = before + __popc(marks & ((1u << lane) - 1u));
      const double weight = static_cast<double>(s[e]);
      p.ids[t * p.ids_stride + slot] = e;
      p.weights.data[t * p.weights.stride + slot] = static_cast<float>((p.normalise ? weight / sum : weight) * static_cast<double>(p.scale));
    }
    before += __popc(marks);
  }
}

/// One warp an expert: where it lies, and the (row, slot) pairs that chose it, ascending.
__global__ void moe_lists(const MoeArgs p, const __grid_constant__ ExpertTable table) {
  const int e = static_cast<int>(blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x);
  if (lane < 6) p.table[lane * p.experts + e] = table.at[lane * p.experts + e];
  const int pairs = p.tokens * p.chosen;
  constexpr int kTogether = 8;  // loads on their way
  int count = 0;
  for (int first = 0; first < pairs; first += 32 * kTogether) {
    bool mine[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int pair = first + i * 32 + lane;
      mine[i] = pair < pairs && p.ids[pair / p.chosen * p.ids_stride + pair % p.chosen] == p.expert_begin + e;
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const unsigned marks = __ballot_sync(0xFFFFFFFFu, mine[i]);
      if (mine[i]) p.lists[static_cast<int64_t>(e) * p.tokens + count + __popc(marks & ((1u << lane) - 1u))] = first + i * 32 + lane;
      count += __popc(marks);
    }
  }
  if (lane == 0) p.counts[e] = count;
}

/// The n-th expert that any row chose, −1: there are fewer.
__device__ int chosen_expert(const MoeArgs& p, int n) {
  __shared__ int found;
  if (threadIdx.x == 0) found = -1;
  __syncthreads();
  if (threadIdx.x < 32) {
    int before = 0;
    for (int first = 0; first < p.experts; first += 32) {
      const int e = first + static_cast<int>(threadIdx.x);
      const bool chosen = e < p.experts && p.counts[e] > 0;
      const unsigned marks = __ballot_sync(0xFFFFFFFFu, chosen);
      if (chosen && before + __popc(marks & ((1u << threadIdx.x) - 1u)) == n) found = e;
      before += __popc(marks);
    }
  }
  __syncthreads();
  return found;
}

/// Operands of matrix `which` (0 gate, 1 up, 2 down) of an expert for tokens [first, …) of its list.
template <bool kMma>
__device__ TileIn expert_tile(const MoeArgs& p, const Matrix& m, int which, int e, int row, int rows, int first, int tokens) {
  const int cols = m.cols;
  return {.m = &m,
          .values = p.table[which * p.experts + e],
          .scales = static_cast<const float*>(p.table[(3 + which) * p.experts + e]),
          .row = row,
          .rows = min(rows, m.rows - row),
          .x = which == 2 ? p.hidden : p.x.data,
          .x_stride = which == 2 ? p.inner : p.x.stride,
          .index = p.lists + static_cast<int64_t>(e) * p.tokens + first,
          .divisor = which == 2 ? 1 : p.chosen,
          .first = 0,
          .tokens = min(tokens, p.counts[e] - first),
          .segment_channels = kMma ? mma_segment_channels(cols) : max(cols, 1),
          .segments = kMma ? kMmaSegments : 1,
          .fast = p.fast};
}

/// grid: row tiles, experts that can be chosen at most. The block goes over all tokens of its expert.
template <bool kMma, int kTokenTiles>
__global__ void __launch_bounds__(kTileThreads, kMma ? 3 : 1) moe_gate_up(const MoeArgs p) {
  LATHE_DYNAMIC_SHARED(float, sums);
  constexpr int kTokens = 8 * kTokenTiles;
  constexpr int kStride = 16 * kTokens;
  constexpr int kSegments = kMma ? kMmaSegments : 1;
  const int e = chosen_expert(p, static_cast<int>(blockIdx.y));
  if (e < 0) return;
  const int row = static_cast<int>(blockIdx.x) * 16;
  for (int first = 0; first < p.counts[e]; first += kTokens) {
    const TileIn gate = expert_tile<kMma>(p, p.gate, 0, e, row, 16, first, kTokens);
    const TileIn up = expert_tile<kMma>(p, p.up, 1, e, row, 16, first, kTokens);
    char* const ring = reinterpret_cast<char*>(sums + 2 * kSegments * kStride);
    run_tile<kMma, 1, kTokenTiles, 16>(gate, sums, ring);
    run_tile<kMma, 1, kTokenTiles, 16>(up, sums + kSegments * kStride, ring);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kStride; i += kTileThreads) {
      const int r = i % 16;
      const int t = i / 16;
      if (r >= gate.rows || t >= gate.tokens) continue;
      const float g = sum_segments(sums + r * kTokens + t, kStride, kSegments);
      const float u = sum_segments(sums + kSegments * kStride + r * kTokens + t, kStride, kSegments);
      p.hidden[static_cast<int64_t>(gate.index[t]) * p.inner + row + r] = swiglu_value(g, u, p.limit);
    }
    __syncthreads();
  }
}

template <bool kMma, int kTokenTiles>
__global__ void __launch_bounds__(kTileThreads, kMma ? 3 : 1) moe_down(const MoeArgs p) {
  LATHE_DYNAMIC_SHARED(float, sums);
  constexpr int kTokens = 8 * kTokenTiles;
  constexpr int kStride = 16 * kTokens;
  const int e = chosen_expert(p, static_cast<int>(blockIdx.y));
  if (e < 0) return;
  const int row = static_cast<int>(blockIdx.x) * 16;
  for (int first = 0; first < p.counts[e]; first += kTokens) {
    const TileIn down = expert_tile<kMma>(p, p.down, 2, e, row, 16, first, kTokens);
    run_tile<kMma, 1, kTokenTiles, 16>(down, sums, reinterpret_cast<char*>(sums + (kMma ? kMmaSegments : 1) * kStride));
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kStride; i += kTileThreads) {
      const int r = i % 16;
      const int t = i / 16;
      if (r >= down.rows || t >= down.tokens) continue;
      const int pair = down.index[t];
      const float y = sum_segments(sums + r * kTokens + t, kStride, down.segments);
      p.leaves[static_cast<int64_t>(pair) * p.width + row + r] = p.weights.data[pair / p.chosen * p.weights.stride + pair % p.chosen] * y;
    }
    __syncthreads();
  }
}

constexpr int kChosenMax = 64;

/// Depth of the lowest node of the tree over `total` leaves that holds both.
__device__ int common_depth(int total, int a, int b) {
  int low = 0;
  int high = total;
  for (int depth = 0;; ++depth) {
    const int middle = low + (high - low + 1) / 2;
    if ((a < middle) != (b < middle) || high - low <= 1) return depth;
    if (a < middle) {
      high = middle;
    } else {
      low = middle;
    }
  }
}

/// Nodes of the tree for one row: the chosen experts in them, deeper pairs first. Ids ascend, so those of a node are neighbours.
__global__ void moe_combine(const MoeArgs p) {
  __shared__ int ids[kChosenMax];
  __shared__ int depths[kChosenMax];  // of a slot and the one before it
  const int64_t t = blockIdx.y;
  const int c = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  const int slot = static_cast<int>(threadIdx.x);
  if (slot < p.chosen) ids[slot] = p.ids[t * p.ids_stride + slot];
  __syncthreads();
  if (slot < p.chosen) depths[slot] = slot == 0 ? 0 : common_depth(p.experts_total, ids[slot - 1], ids[slot]);
  __syncthreads();
  const int here = p.partial ? p.expert_begin + p.experts : p.experts_total;
  int64_t node = 0;
  for (int a = p.partial ? p.expert_begin : 0; a < here; ++node) {
    const int b = p.partial ? cover_end(p.experts_total, a, here) : here;
    int first = 0;
    while (first < p.chosen && ids[first] < max(a, p.expert_begin)) ++first;
    int last = first;
    while (last < p.chosen && ids[last] < min(b, p.expert_begin + p.experts)) ++last;
    if (p.present != nullptr && c == 0) p.present[node * p.present_stride + t] = last > first ? 1 : 0;
    if (c < p.width) {
      constexpr int kTogether = 8;  // loads on their way
      float stack[kChosenMax];
      int border[kChosenMax];
      int depth = 0;
      for (int from = first; from < last; from += kTogether) {
        float leaves[kTogether];
#pragma unroll
        for (int i = 0; i < kTogether; ++i) leaves[i] = from + i < last ? p.leaves[(t * p.chosen + from + i) * p.width + c] : 0.0f;
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          if (from + i >= last) break;
          const int at = from + i == first ? 0 : depths[from + i];
          while (depth > 1 && border[depth - 1] > at) stack[depth - 2] += stack[depth - 1], --depth;
          stack[depth] = leaves[i];
          border[depth++] = at;
        }
      }
      while (depth > 1) stack[depth - 2] += stack[depth - 1], --depth;
      p.y[node * p.y_node + t * p.y_stride + c] = last > first ? stack[0] : 0.0f;
    }
    a = b;
  }
}

template <bool kMma, int kTokenTiles>
void launch_experts(const MoeArgs& args, void* stream) {
  constexpr int64_t kPart = (kMma ? kMmaSegments : 1) * 16 * 8 * kTokenTiles * 4;
  constexpr int64_t kRing = kMma ? kRingBytes : 0;
  const auto experts = static_cast<unsigned>(min(args.experts, args.tokens * args.chosen));
  const auto gate_up = moe_gate_up<kMma, kTokenTiles>;
  const auto down = moe_down<kMma, kTokenTiles>;
  LATHE_LAUNCH(gate_up, dim3(blocks_for(args.inner, 16), experts), dim3(kTileThreads), 2 * kPart + kRing, stream, args);
  LATHE_LAUNCH(down, dim3(blocks_for(args.width, 16), experts), dim3(kTileThreads), kPart + kRing, stream, args);
}

}  // namespace

void launch_route(const RouteArgs& args, void* stream) {
  if (args.tokens > 0) LATHE_LAUNCH(route, dim3(static_cast<unsigned>(args.tokens)), dim3(32), 0, stream, args);
}

void launch_moe_lists(const MoeArgs& args, const ExpertTable& table, void* stream) {
  LATHE_LAUNCH(moe_lists, dim3(static_cast<unsigned>(args.experts)), dim3(32), 0, stream, args, table);
}

void launch_moe_combine(const MoeArgs& args, void* stream) {
  if (args.tokens == 0 || args.width == 0) return;
  LATHE_LAUNCH(moe_combine, dim3(blocks_for(args.width, kThreads), static_cast<unsigned>(args.tokens)), dim3(kThreads), 0, stream, args);
}

void launch_moe(const MoeArgs& args, const ExpertTable& table, MoeRung rung, void* stream) {
  if (args.tokens == 0 || args.width == 0) return;
  if (has_experts(args)) {
    launch_moe_lists(args, table, stream);
    switch (rung) {
      case MoeRung::kPlain: launch_experts<false, 1>(args, stream); break;
      case MoeRung::kMma: launch_experts<true, 1>(args, stream); break;
      case MoeRung::kWgmma: launch_experts_wgmma(args, stream); break;
    }
  }
  launch_moe_combine(args, stream);
}

}  // namespace lathe::kernels::cuda
