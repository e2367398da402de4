// Products of INT8 codes on the tensor cores (docs/kernels/codes.md). y = x Wᵀ with 64 rows of weights for each group of four warps and up to 256 tokens; 128 codes
// a row at a time flow in through a ring that goes on over the borders of tiles: weights by 16-byte copies, x, packed before, by one bulk copy, which two blocks
// share where there are many tokens.
//
// Bits      Sums are integers: the shape of tiles, cuts of the channels over blocks, and their order change nothing.
// Cuts      Where tiles are few, several blocks have some of a tile's channels each. They leave their sums in memory; the last one to arrive adds them.

#include "kernels/cuda/codes_args.h"
#include "kernels/cuda/wgmma_codes.h"

namespace lathe::kernels::cuda {
namespace {

constexpr int kChunk = kCodesChunk;  // codes of a row in a stage
constexpr int kLoaders = 128;

/// kShare: blocks of a cluster, which have the same tokens and bring them to each other.
template <int kTokens, int kGroups, int kShare_>
struct Shape {
  static constexpr int kShare = kShare_;
  static constexpr int kRows = 64 * kGroups;
  static constexpr int kConsumers = 128 * kGroups;
  static constexpr int kTokenBytes = kTokens * kChunk;
  static constexpr int kStageBytes = kRows * kChunk + kTokenBytes;
  static constexpr int kStages = 208 * 1024 / kStageBytes < 12 ? 208 * 1024 / kStageBytes : 12;
  static constexpr int kSums = kTokens / 2;  ///< of a thread
};
template <class S>
struct Shared {
  Barrier full[S::kStages], empty[S::kStages];
  float x_scales[2][S::kTokenBytes / kChunk];  ///< of the tiles by turns
  int last;
};
template <class S>
inline constexpr int64_t kSharedBytes = S::kStages * S::kStageBytes + 1024 + static_cast<int64_t>(sizeof(Shared<S>));

/// Tiles of all parts, one after the other, each with all its tokens; and into how many cuts their channels go.
struct Tiles {
  int32_t before[kProductPartsMax + 1];
  int32_t token_tiles, cuts, chunks;
};

/// One cut of a tile.
struct Item {
  int part, first_row, first_token, tile, cut, begin, end;
};
template <class S>
__device__ __forceinline__ Item item_of(const CodesArgs& p, const Tiles& tiles, int number) {
  Item item{};
  item.tile = number / tiles.cuts, item.cut = number % tiles.cuts;
  while (item.part + 1 < p.count && item.tile >= tiles.before[item.part + 1]) ++item.part;
  const int mine = item.tile - tiles.before[item.part];
  const int together = mine / S::kShare;
  item.first_row = (together / tiles.token_tiles * S::kShare + mine % S::kShare) * S::kRows;
  item.first_token = together % tiles.token_tiles * (S::kTokenBytes / kChunk);
  item.begin = tiles.chunks * item.cut / tiles.cuts, item.end = tiles.chunks * (item.cut + 1) / tiles.cuts;
  return item;
}

/// A thread's share of the weights that flow in: the same 16 bytes of every sixteenth row.
template <class S>
struct Loader {
  const CodesArgs& p;
  const Tiles& tiles;
  int number, items;
  const int8_t* weight = nullptr;
  int64_t stride = 0;
  int rows = 0;  ///< that there are, from this thread's first on
  int first_token = 0;
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
    const Item item = item_of<S>(p, tiles, number);
    const CodesPart& part = p.parts[item.part];
    const int row = item.first_row + thread() / 8;
    rows = part.rows - row, stride = part.stride;
    weight = part.weight + static_cast<int64_t>(row) * stride + piece() * 16;
    first_token = item.first_token, chunk = item.begin, end = item.end;
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
  /// One thread. In a cluster each block brings its part of the tokens to all.
  __device__ __forceinline__ void load_x(char* stage, Barrier* full) const {
    const int8_t* const from = p.x + (static_cast<int64_t>(chunk) * p.x_rows + first_token) * kChunk;
    char* const to = stage + S::kRows * kChunk;
    barrier_arrive_expect(full, S::kTokenBytes);
    if constexpr (S::kShare == 1) {
      bulk_load(to, from, S::kTokenBytes, full);
    } else {
      constexpr int kMine = S::kTokenBytes / S::kShare;
      const int offset = static_cast<int>(blockIdx.x) % S::kShare * kMine;
      bulk_load_both(to + offset, from + offset, kMine, full);
    }
  }
};

template <class S>
__device__ void load_all(const CodesArgs& p, const Tiles& tiles, char* stages, Shared<S>& shared) {
  Loader<S> weights(p, tiles), x(p, tiles);
  for (int i = 0; i < S::kStages && weights.next(); ++i) weights.load_weights(stages + i * S::kStageBytes);
  wait_for_inputs();
  for (int n = 0; x.next(); ++n) {
    const int stage = n % S::kStages;
    if (n >= S::kStages) {
      barrier_wait(&shared.empty[stage], static_cast<unsigned>(n / S::kStages - 1) & 1u);
      weights.next();
      weights.load_weights(stages + stage * S::kStageBytes);
    }
    if (Loader<S>::thread() == 0) x.load_x(stages + stage * S::kStageBytes, &shared.full[stage]);
    copies_arrive(&shared.full[stage]);
  }
}
/// One lane of each warp: what it read of a stage may be written again, by all blocks that write there.
template <class S>
__device__ __forceinline__ void release(Shared<S>& shared, int stage) {
  if (threadIdx.x % 32 != 0) return;
  if constexpr (S::kShare == 1) {
    barrier_arrive(&shared.empty[stage]);
  } else {
    for (int rank = 0; rank < S::kShare; ++rank) arrive_remote(&shared.empty[stage], rank);
  }
}

/// The sums of a whole tile. Thread: rows lane / 4 and eight further of its warp's sixteen, two tokens of every eight. put(sum, token of the tile, half).
template <int kTokens, class T, class Value>
__device__ __forceinline__ void write_rows(const Item& item, const CodesPart& part, int tokens, const int* d, const Value& value) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int row = item.first_row + static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
  T* to = static_cast<T*>(part.y) + static_cast<int64_t>(item.first_token + lane % 4 * 2) * part.y_stride + row;
#pragma unroll
  for (int i = 0; i < kTokens / 8; ++i) {
#pragma unroll
    for (int next = 0; next < 2; ++next) {
      const int token = i * 8 + lane % 4 * 2 + next;
      if (item.first_token + token >= tokens) return;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (row + 8 * half < part.rows) to[next * part.y_stride + 8 * half] = value(d[i * 4 + half * 2 + next], token, half);
      }
    }
    to += 8 * part.y_stride;
  }
}
template <int kTokens>
__device__ __forceinline__ void write_tile(const CodesArgs& p, const Item& item, const int* d, const float* x_scales) {
  const CodesPart& part = p.parts[item.part];
  if (part.integers) return write_rows<kTokens, int32_t>(item, part, p.tokens, d, [](int sum, int, int) { return sum; });
  float scale[2], bias[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = item.first_row + static_cast<int>(threadIdx.x) / 32 * 16 + (static_cast<int>(threadIdx.x) & 31) / 4 + 8 * half;
    scale[half] = row < part.rows ? part.scales[row * part.scale_stride] : 0.0f;
    bias[half] = row < part.rows && part.bias.data != nullptr ? element(part.bias, row) : 0.0f;
  }
  const auto product = [&](int sum, int token, int half) { return __fmul_rn(__fmul_rn(static_cast<float>(sum), x_scales[token]), scale[half]); };
  if (part.bias.data == nullptr) return write_rows<kTokens, float>(item, part, p.tokens, d, product);
  write_rows<kTokens, float>(item, part, p.tokens, d, [&](int sum, int token, int half) { return __fadd_rn(product(sum, token, half), bias[half]); });
}

/// Where a tile is cut: true in the block that comes last, which then has the sums of all.
template <class S>
__device__ __forceinline__ bool meet(const Tiles& tiles, const Item& item, int32_t* counters, int32_t* partial, int* d, int* last) {
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

template <class S>
__device__ void multiply(const CodesArgs& p, const Tiles& tiles, const char* stages, Shared<S>& shared, int32_t* counters, int32_t* partial) {
  constexpr int kTokens = S::kTokenBytes / kChunk;
  const int thread = static_cast<int>(threadIdx.x);
  const int items = tiles.before[p.count] * tiles.cuts;
  int n = 0, turn = 0;
  for (int number = static_cast<int>(blockIdx.x); number < items; number += static_cast<int>(gridDim.x), turn ^= 1) {
    const Item item = item_of<S>(p, tiles, number);
    float* const x_scales = shared.x_scales[turn];
    int d[S::kSums];
    for (int chunk = item.begin; chunk < item.end; ++chunk, ++n) {
      const int stage = n % S::kStages;
      barrier_wait(&shared.full[stage], static_cast<unsigned>(n / S::kStages) & 1u);
      fence_for_bulk();
      const char* const a = stages + stage * S::kStageBytes + thread / 128 * 64 * kChunk;
      const char* const b = stages + stage * S::kStageBytes + S::kRows * kChunk;
      wgmma_begin();
#pragma unroll
      for (int k = 0; k < 4; ++k) wgmma_codes<kTokens>(d, a, b, 2 * k, chunk > item.begin || k > 0);
      wgmma_commit();
      if (chunk == item.begin) {  // the scales are there when the codes are
        if (thread < kTokens && item.first_token + thread < p.tokens) x_scales[thread] = p.x_scales[item.first_token + thread];
        continue;
      }
      wgmma_wait<1>();
      release(shared, (n - 1) % S::kStages);
    }
    wgmma_wait<0>();
    codes_results<S::kSums>(d);
    release(shared, (n - 1) % S::kStages);
    if (tiles.cuts > 1 && !meet<S>(tiles, item, counters, partial, d, &shared.last)) continue;
    if (tiles.cuts == 1) part_barrier(1, S::kConsumers);  // x_scales
    write_tile<kTokens>(p, item, d, x_scales);
  }
}

template <int kTokens, int kGroups, int kShare>
__global__ void __launch_bounds__(128 * kGroups + kLoaders, 1) codes(const CodesArgs p, const Tiles tiles, int32_t* counters, int32_t* partial) {
  using S = Shape<kTokens, kGroups, kShare>;
  LATHE_DYNAMIC_SHARED(char, dynamic);
  char* const stages = dynamic + swizzle_gap(dynamic);
  auto& shared = *reinterpret_cast<Shared<S>*>(stages + S::kStages * S::kStageBytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) barrier_init(&shared.full[i], kLoaders + 1), barrier_init(&shared.empty[i], 4 * kGroups * kShare);
    barriers_ready();
  }
  __syncthreads();
  if constexpr (kShare > 1) cluster_arrive(), cluster_wait();
  if (threadIdx.x >= S::kConsumers) {
    if constexpr (kTokens * kGroups >= 256) give_registers<56>();
    load_all<S>(p, tiles, stages, shared);
  } else {
    if constexpr (kTokens * kGroups >= 256) take_registers<224>();
    multiply<S>(p, tiles, stages, shared, counters, partial);
  }
  if constexpr (kShare > 1) cluster_arrive(), cluster_wait();  // nobody ends while another may still tell it something
}

constexpr int kRowsOfTile = 128;
constexpr int kGroupsOfTile = 2;
int share_of(int tile_tokens) { return tile_tokens == 256 ? 2 : 1; }

/// Cuts so that all blocks have about as much to do; an end of a tile counts as three chunks.
Tiles tiles_of(const CodesArgs& args) {
  Tiles tiles{};
  const int tokens = codes_tile(args.tokens), share = share_of(tokens);
  tiles.token_tiles = (args.tokens + tokens - 1) / tokens;
  tiles.chunks = codes_chunks(args.cols);
  for (int i = 0; i < args.count; ++i) {
    const int rows = kRowsOfTile * share;
    tiles.before[i + 1] = tiles.before[i] + (args.parts[i].rows + rows - 1) / rows * share * tiles.token_tiles;
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
  constexpr int kShare = kTokens == 256 ? 2 : 1;
  using S = Shape<kTokens, kGroupsOfTile, kShare>;
  const int items = tiles.before[args.count] * tiles.cuts;
  if (items == 0 || tiles.chunks == 0) return;
  const int most = (multiprocessors() + kShare - 1) / kShare * kShare;
  const auto blocks = static_cast<unsigned>(items < most ? items : most);
  const auto kernel = codes<kTokens, kGroupsOfTile, kShare>;
  LATHE_LAUNCH_CLUSTER(kernel, kShare, dim3(blocks), dim3(S::kConsumers + kLoaders), kSharedBytes<S>, stream, args, tiles, counters, partial);
}

}  // namespace

int32_t codes_counters(const CodesArgs& args) {
  const Tiles tiles = tiles_of(args);
  return tiles.cuts > 1 ? tiles.before[args.count] : 0;
}
int64_t codes_partial_bytes(const CodesArgs& args) {
  const Tiles tiles = tiles_of(args);
  return tiles.cuts > 1 ? int64_t{tiles.before[args.count]} * tiles.cuts * kRowsOfTile * codes_tile(args.tokens) * 4 : 0;
}

void launch_codes_wgmma(const CodesArgs& args, int32_t* counters, int32_t* partial, void* stream) {
  const Tiles tiles = tiles_of(args);
  switch (codes_tile(args.tokens)) {
    case 8: return launch<8>(args, tiles, counters, partial, stream);
    case 16: return launch<16>(args, tiles, counters, partial, stream);
    case 32: return launch<32>(args, tiles, counters, partial, stream);
    case 64: return launch<64>(args, tiles, counters, partial, stream);
    case 128: return launch<128>(args, tiles, counters, partial, stream);
    default: return launch<256>(args, tiles, counters, partial, stream);
  }
}

}  // namespace lathe::kernels::cuda
