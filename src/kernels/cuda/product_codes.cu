// Products of INT8 codes on the tensor cores (docs/kernels/codes.md). y = x Wᵀ with 64 rows of weights for each group of four warps and up to 256 tokens; both
// come 128 codes a row at a time by 16-byte copies into a ring that flows on over the borders of tiles, and stay as they are.
//
// Bits      Sums are integers: the shape of tiles, cuts of the channels over blocks, and their order change nothing.
// Cuts      Where tiles are few, several blocks have some of a tile's channels each. They leave their sums in memory; the last one to arrive adds them.

#include "kernels/cuda/codes_args.h"
#include "kernels/cuda/wgmma_codes.h"

namespace lathe::kernels::cuda {
namespace {

constexpr int kChunk = 128;  // codes of a row in a stage
constexpr int kLoaders = 128;

template <int kTokens, int kGroups>
struct Shape {
  static constexpr int kRows = 64 * kGroups;
  static constexpr int kConsumers = 128 * kGroups;
  static constexpr int kStageBytes = (kRows + kTokens) * kChunk;
  static constexpr int kStages = 208 * 1024 / kStageBytes < 12 ? 208 * 1024 / kStageBytes : 12;
  static constexpr int kSums = kTokens / 2;  ///< of a thread
  static constexpr int64_t kSharedBytes = kStages * kStageBytes + 1024;
};

/// Tiles of all parts, one after the other, each with all its tokens; and into how many cuts their channels go.
struct Tiles {
  int32_t before[kProductPartsMax + 1];
  int32_t token_tiles, cuts, chunks;
};

/// One cut of a tile.
struct Item {
  int part, first_row, first_token, tile, cut, begin, end;
};
template <int kTokens, int kGroups>
__device__ __forceinline__ Item item_of(const CodesArgs& p, const Tiles& tiles, int number) {
  Item item{};
  item.tile = number / tiles.cuts, item.cut = number % tiles.cuts;
  while (item.part + 1 < p.count && item.tile >= tiles.before[item.part + 1]) ++item.part;
  const int mine = item.tile - tiles.before[item.part];
  item.first_row = mine / tiles.token_tiles * Shape<kTokens, kGroups>::kRows, item.first_token = mine % tiles.token_tiles * kTokens;
  item.begin = tiles.chunks * item.cut / tiles.cuts, item.end = tiles.chunks * (item.cut + 1) / tiles.cuts;
  return item;
}

/// A thread's share of what flows in: the same 16 bytes of every sixteenth row.
template <int kTokens, int kGroups>
struct Loader {
  using S = Shape<kTokens, kGroups>;
  const CodesArgs& p;
  const Tiles& tiles;
  int number, items;
  const int8_t* weight = nullptr;
  const int8_t* x = nullptr;
  int64_t stride = 0;
  int rows = 0, tokens = 0;  ///< that there are, from this thread's first on
  int chunk = 0, end = 0;

  __device__ __forceinline__ Loader(const CodesArgs& args, const Tiles& t)
      : p(args), tiles(t), number(static_cast<int>(blockIdx.x) - static_cast<int>(gridDim.x)), items(t.before[args.count] * t.cuts) {}
  static __device__ __forceinline__ int thread() { return static_cast<int>(threadIdx.x) - S::kConsumers; }
  static __device__ __forceinline__ int piece() { return thread() % 8; }
  /// The next chunk of this block; false: there is none.
  __device__ __forceinline__ bool next() {
    if (++chunk < end) return true;
    number += static_cast<int>(gridDim.x);
    if (number >= items) return false;
    const Item item = item_of<kTokens, kGroups>(p, tiles, number);
    const CodesPart& part = p.parts[item.part];
    const int row = item.first_row + thread() / 8, token = item.first_token + thread() / 8;
    rows = part.rows - row, tokens = p.tokens - token;
    stride = part.stride;
    weight = part.weight + static_cast<int64_t>(row) * stride + piece() * 16;
    x = p.x + static_cast<int64_t>(token) * p.x_stride + piece() * 16;
    chunk = item.begin, end = item.end;
    return true;
  }
  __device__ __forceinline__ void load_weights(char* stage) const {
    const bool inside = chunk * kChunk + piece() * 16 < p.cols;
    const int8_t* from = weight + chunk * kChunk;
#pragma unroll
    for (int i = 0; i < S::kRows / 16; ++i) {
      const bool there = inside && i * 16 < rows;
      copy_16(stage + swizzled(thread() / 8 + i * 16, piece()), there ? from : p.parts[0].weight, there);
      from += 16 * stride;
    }
  }
  __device__ __forceinline__ void load_x(char* stage) const {
    const int8_t* from = x + chunk * kChunk;
#pragma unroll
    for (int i = 0; i < (kTokens + 15) / 16; ++i) {
      if (kTokens < 16 && thread() / 8 >= kTokens) return;
      const bool there = i * 16 < tokens;
      copy_16(stage + S::kRows * kChunk + swizzled(thread() / 8 + i * 16, piece()), there ? from : p.x, there);
      from += 16 * p.x_stride;
    }
  }
};

template <int kStages>
struct Ring {
  Barrier full[kStages], empty[kStages];
};

template <int kTokens, int kGroups>
__device__ void load_all(const CodesArgs& p, const Tiles& tiles, char* stages, Ring<Shape<kTokens, kGroups>::kStages>& ring) {
  using S = Shape<kTokens, kGroups>;
  Loader<kTokens, kGroups> weights(p, tiles), x(p, tiles);
  for (int i = 0; i < S::kStages && weights.next(); ++i) weights.load_weights(stages + i * S::kStageBytes);
  wait_for_inputs();
  for (int n = 0; x.next(); ++n) {
    const int stage = n % S::kStages;
    if (n >= S::kStages) {
      barrier_wait(&ring.empty[stage], static_cast<unsigned>(n / S::kStages - 1) & 1u);
      weights.next();
      weights.load_weights(stages + stage * S::kStageBytes);
    }
    x.load_x(stages + stage * S::kStageBytes);
    copies_arrive(&ring.full[stage]);
  }
}

__device__ __forceinline__ void write_value(const CodesPart& part, int row, int token, int sum, float x_scale, float scale, float bias) {
  const int64_t at = static_cast<int64_t>(token) * part.y_stride + row;
  if (part.integers) {
    static_cast<int32_t*>(part.y)[at] = sum;
    return;
  }
  const float value = __fmul_rn(__fmul_rn(static_cast<float>(sum), x_scale), scale);
  static_cast<float*>(part.y)[at] = part.bias.data != nullptr ? __fadd_rn(value, bias) : value;
}

/// The sums of a whole tile. Thread: rows lane / 4 and eight further of its warp's sixteen, two tokens of every eight.
template <int kTokens>
__device__ __forceinline__ void write_tile(const CodesArgs& p, const Item& item, const int* d) {
  const CodesPart& part = p.parts[item.part];
  const int lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = item.first_row + static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4 + 8 * half;
    if (row >= part.rows) continue;
    const float scale = part.integers ? 0.0f : part.scales[row * part.scale_stride];
    const float bias = part.bias.data != nullptr ? element(part.bias, row) : 0.0f;
#pragma unroll
    for (int i = 0; i < kTokens / 4; ++i) {
      const int token = item.first_token + i / 2 * 8 + lane % 4 * 2 + i % 2;
      if (token < p.tokens) write_value(part, row, token, d[i / 2 * 4 + half * 2 + i % 2], p.x_scales[token], scale, bias);
    }
  }
}

/// Where a tile is cut: true in the block that comes last, which then has the sums of all.
template <int kTokens, int kGroups>
__device__ __forceinline__ bool meet(const Tiles& tiles, const Item& item, int32_t* counters, int32_t* partial, int* d, int* last) {
  using S = Shape<kTokens, kGroups>;
  const auto place = [&](int cut) { return partial + (static_cast<int64_t>(item.tile * tiles.cuts + cut) * S::kSums) * S::kConsumers + threadIdx.x; };
  int32_t* const mine = place(item.cut);
#pragma unroll
  for (int i = 0; i < S::kSums; ++i) mine[i * S::kConsumers] = d[i];
  __threadfence();
  part_barrier(1, S::kConsumers);
  if (threadIdx.x == 0) *last = atomicAdd(counters + item.tile, 1) == tiles.cuts - 1 ? 1 : 0;
  part_barrier(1, S::kConsumers);
  if (*last == 0) return false;
  __threadfence();
  for (int cut = 0; cut < tiles.cuts; ++cut) {
    if (cut == item.cut) continue;
    const volatile int32_t* const other = place(cut);
#pragma unroll
    for (int i = 0; i < S::kSums; ++i) d[i] += other[i * S::kConsumers];
  }
  return true;
}

template <int kTokens, int kGroups>
__device__ void multiply(const CodesArgs& p, const Tiles& tiles, const char* stages, Ring<Shape<kTokens, kGroups>::kStages>& ring, int32_t* counters,
                         int32_t* partial, int* last) {
  using S = Shape<kTokens, kGroups>;
  const int group = static_cast<int>(threadIdx.x) / 128;
  const bool first_lane = threadIdx.x % 32 == 0;
  const int items = tiles.before[p.count] * tiles.cuts;
  int n = 0;
  for (int number = static_cast<int>(blockIdx.x); number < items; number += static_cast<int>(gridDim.x)) {
    const Item item = item_of<kTokens, kGroups>(p, tiles, number);
    int d[S::kSums];
    for (int chunk = item.begin; chunk < item.end; ++chunk, ++n) {
      const int stage = n % S::kStages;
      barrier_wait(&ring.full[stage], static_cast<unsigned>(n / S::kStages) & 1u);
      fence_for_bulk();
      const char* const a = stages + stage * S::kStageBytes + group * 64 * kChunk;
      const char* const b = stages + stage * S::kStageBytes + S::kRows * kChunk;
      wgmma_begin();
#pragma unroll
      for (int k = 0; k < 4; ++k) wgmma_codes<kTokens>(d, a, b, 2 * k, chunk > item.begin || k > 0);
      wgmma_commit();
      if (chunk == item.begin) continue;
      wgmma_wait<1>();
      if (first_lane) barrier_arrive(&ring.empty[(n - 1) % S::kStages]);
    }
    wgmma_wait<0>();
    codes_results<S::kSums>(d);
    if (first_lane) barrier_arrive(&ring.empty[(n - 1) % S::kStages]);
    if (tiles.cuts > 1 && !meet<kTokens, kGroups>(tiles, item, counters, partial, d, last)) continue;
    write_tile<kTokens>(p, item, d);
  }
}

template <int kTokens, int kGroups>
__global__ void __launch_bounds__(128 * kGroups + kLoaders, 1) codes(const CodesArgs p, const Tiles tiles, int32_t* counters, int32_t* partial) {
  using S = Shape<kTokens, kGroups>;
  LATHE_DYNAMIC_SHARED(char, dynamic);
  __shared__ Ring<S::kStages> ring;
  __shared__ int last;
  char* const stages = dynamic + swizzle_gap(dynamic);
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) barrier_init(&ring.full[i], kLoaders), barrier_init(&ring.empty[i], 4 * kGroups);
    barriers_ready();
  }
  __syncthreads();
  if (threadIdx.x >= S::kConsumers) {
    if constexpr (kTokens * kGroups >= 256) give_registers<56>();
    load_all<kTokens, kGroups>(p, tiles, stages, ring);
  } else {
    if constexpr (kTokens * kGroups >= 256) take_registers<224>();
    multiply<kTokens, kGroups>(p, tiles, stages, ring, counters, partial, &last);
  }
}

constexpr int kRowsOfTile = 128;
constexpr int kGroupsOfTile = 2;
int tokens_of_tile(int32_t tokens) {
  for (const int most : {8, 16, 32, 64, 128}) {
    if (tokens <= most) return most;
  }
  return 256;
}
/// Cuts so that all blocks have about as much to do; an end of a tile counts as three chunks.
Tiles tiles_of(const CodesArgs& args) {
  Tiles tiles{};
  const int tokens = tokens_of_tile(args.tokens);
  tiles.token_tiles = (args.tokens + tokens - 1) / tokens;
  tiles.chunks = (args.cols + kChunk - 1) / kChunk;
  for (int i = 0; i < args.count; ++i) {
    tiles.before[i + 1] = tiles.before[i] + (args.parts[i].rows + kRowsOfTile - 1) / kRowsOfTile * tiles.token_tiles;
  }
  tiles.cuts = 1;
  const int all = tiles.before[args.count], blocks = multiprocessors();
  int64_t best = INT64_MAX;
  for (int cuts = 1; cuts <= (tokens <= 64 ? 16 : 1) && cuts * 2 <= (tiles.chunks > 2 ? tiles.chunks : 2); ++cuts) {
    const int64_t rounds = (int64_t{all} * cuts + blocks - 1) / blocks;
    const int64_t cost = rounds * ((tiles.chunks + cuts - 1) / cuts + (cuts > 1 ? 3 : 2));
    if (cost < best) best = cost, tiles.cuts = cuts;
  }
  return tiles;
}

template <int kTokens>
void launch(const CodesArgs& args, const Tiles& tiles, int32_t* counters, int32_t* partial, void* stream) {
  using S = Shape<kTokens, kGroupsOfTile>;
  const int items = tiles.before[args.count] * tiles.cuts;
  if (items == 0 || tiles.chunks == 0) return;
  const auto blocks = static_cast<unsigned>(items < multiprocessors() ? items : multiprocessors());
  const auto kernel = codes<kTokens, kGroupsOfTile>;
  LATHE_LAUNCH_CLUSTER(kernel, 1, dim3(blocks), dim3(S::kConsumers + kLoaders), S::kSharedBytes, stream, args, tiles, counters, partial);
}

}  // namespace

int32_t codes_counters(const CodesArgs& args) {
  const Tiles tiles = tiles_of(args);
  return tiles.cuts > 1 ? tiles.before[args.count] : 0;
}
int64_t codes_partial_bytes(const CodesArgs& args) {
  const Tiles tiles = tiles_of(args);
  return tiles.cuts > 1 ? int64_t{tiles.before[args.count]} * tiles.cuts * kRowsOfTile * tokens_of_tile(args.tokens) * 4 : 0;
}

void launch_codes_wgmma(const CodesArgs& args, int32_t* counters, int32_t* partial, void* stream) {
  const Tiles tiles = tiles_of(args);
  switch (tokens_of_tile(args.tokens)) {
    case 8: return launch<8>(args, tiles, counters, partial, stream);
    case 16: return launch<16>(args, tiles, counters, partial, stream);
    case 32: return launch<32>(args, tiles, counters, partial, stream);
    case 64: return launch<64>(args, tiles, counters, partial, stream);
    case 128: return launch<128>(args, tiles, counters, partial, stream);
    default: return launch<256>(args, tiles, counters, partial, stream);
  }
}

}  // namespace lathe::kernels::cuda
