// Matrix products in which x flows through shared memory beside the weights: for more than eight tokens (docs/kernels/products.md).
//
// Work     A block has groups of four warps: kAcross groups with 64 weight rows each and all channels; or, for matrices with few rows, kDown groups
//          with the same 64 rows and a part of the channels each. Nothing is exchanged between blocks.
// Weights  as in cluster_tile.h: a ring of 16-byte copies that each lane reads itself, over the borders of tiles.
// x        is packed once by a small launch, in the order in which the tensor cores read it, and comes in pieces (128 channels for FP8, with their
//          scales; 64 for BF16) by bulk copies into a ring that the groups of a block share. All blocks read the same pieces at about the same time,
//          so they come from the L2.
// Bits     Those of cluster_tile.h: eight segments of the channels, each added up block by block, then added in order.
// Floor    the bytes of the weights. Measured, one H200, 2026-11-30, % of read bandwidth, 24576 x 4096, M = 16, 32, 64: FP8 75, 70, 61; BF16 83, 81, 77.
// Tried    the first warp asks for x: waits for the others of its group; pairs of blocks that share x by multicast: no faster; fewer weights on their way
//          before x is there: slower; 64 FP8 tokens in kDown groups: sums spill (docs/kernels/products.md).

#include "kernels/cuda/product_work.h"

namespace lathe::kernels::cuda {
namespace {

template <bool kFp8, int kTokens_, int kAcross_, int kDown_>
struct StreamShape {
  static constexpr int kTokens = kTokens_, kAcross = kAcross_, kDown = kDown_;
  static constexpr int kGroups = kAcross * kDown;
  static constexpr int kWarps = 4 * kGroups;  // that multiply; one more asks for x, in a group of its own
  static constexpr int kWorkers = 32 * kWarps;
  static constexpr int kUsers = kWorkers + 32;
  static constexpr int kThreads = kWorkers + 128;
  // Of a thread, when the kernel begins: so many leave room for a block of pack_x beside the product before. The loader's group gives some to the others.
  static constexpr int kRegisters = 480 / (kGroups + 1);
  static constexpr int kLoaderRegisters = 24;
  static constexpr int kWorkerRegisters = (480 - kLoaderRegisters) / kGroups / 8 * 8;
  static_assert(kRegisters % 8 == 0);
  static constexpr bool kAhead = !kFp8 || kTokens < 64;         // the next block's first half is made ready beside the products; registers allow it
  static constexpr int kRows = 64 * kAcross;                    // of a tile
  static constexpr int kBlockChannels = kFp8 ? 128 : 64;        // of a lane's weights at a time, 128 bytes a row
  static constexpr int kScales = kBlockChannels * kTokens * 2;  // where x's scales begin in a piece of x for them, after x
  static constexpr int kPiece = kScales + (kFp8 ? scales_bytes<kTokens>(kBlockChannels) : 0);
  static constexpr int kPieces = (kDown == 1 ? 65536 : 32768) / kScales;  // of a ring
  static constexpr int kBarriers = (kDown * kPieces * 2 * static_cast<int>(sizeof(Barrier)) + 127) / 128 * 128;
  static constexpr int kRing = kDown * kPieces * kPiece;
  static constexpr int kRoom = static_cast<int>(kClusterSharedMax - kBarriers - kRing) / (kWarps * 2048);
  static constexpr int kStages = kRoom < 8 ? kRoom : 8;  // of a warp's weights, 2 KiB each
  static constexpr int64_t kShared = kBarriers + kRing + int64_t{kWarps} * kStages * 2048;
  static constexpr int kPassTokens = kTokens < 32 ? kTokens : 32;  // whose sums are exchanged at a time
  static constexpr int kPitch = 68;                                // floats from token to token there
  static_assert(kDown == 1 || kSegments * kPassTokens * kPitch * 4 <= kRing);
};

/// A ring of pieces of x, as a thread that uses it sees it.
template <class Shape>
struct Pieces {
  Barrier* full;
  Barrier* free;
  char* ring;
  int place = 0;
  unsigned phase = 0;

  __device__ __forceinline__ void next() {
    if (++place == Shape::kPieces) place = 0, phase ^= 1u;
  }
  __device__ __forceinline__ Operand wait() const {
    barrier_wait(full + place, phase);
    return operand_at(ring + place * Shape::kPiece);
  }
  __device__ __forceinline__ const float* scales() const { return reinterpret_cast<const float*>(ring + place * Shape::kPiece + Shape::kScales); }
  /// This thread needs the piece no longer. One lane for all, after a __syncwarp, is sound too and as fast, but the race checker does not follow it.
  __device__ __forceinline__ void release() {
    barrier_arrive(free + place);
    next();
  }
  /// As the thread that fills the ring: the first time through it nothing has to be waited for.
  __device__ __forceinline__ void fill(const char* from) {
    barrier_wait(free + place, phase ^ 1u);
    barrier_arrive_expect(full + place, Shape::kPiece);
    bulk_load(ring + place * Shape::kPiece, from, Shape::kPiece, full + place);
    next();
  }
};
template <class Shape>
__device__ __forceinline__ Pieces<Shape> pieces_of(char* shared, int down) {
  auto* const barriers = reinterpret_cast<Barrier*>(shared) + 2 * down * Shape::kPieces;
  return {barriers, barriers + Shape::kPieces, shared + Shape::kBarriers + down * Shape::kPieces * Shape::kPiece};
}

/// Where a warp works: its group's channels, its 16 rows of the tile.
struct StreamPlace {
  int lane, warp, down, q;
};
template <class Shape>
__device__ __forceinline__ StreamPlace stream_place() {
  const int warp = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 32, 0);
  const int group = warp / 4;
  return {static_cast<int>(threadIdx.x) % 32, warp, Shape::kDown == 1 ? 0 : group, (Shape::kAcross == 1 ? 0 : group) * 4 + warp % 4};
}

/// A block of weights, 128 bytes of a lane's rows, as A operands of products with a piece of x.
template <bool kFp8, class Shape>
struct StreamBlock {
  static constexpr int kSteps = kHalfSteps<kFp8>;
  const char* bytes;
  unsigned a[2 * kSteps][4];

  /// Its first half, from the ring.
  __device__ __forceinline__ void open(const char* from) {
    bytes = from;
    half_operands<kFp8>(lane_weights(from, 0, 0), lane_weights(from, 1, 0), a);
  }
  /// Begins the products of both halves, a group each. FP8: 128 channels, sums is written. BF16: 64 channels, added to sums if `add`.
  template <class Stream>
  __device__ __forceinline__ void multiply(Stream& weights, Operand x, float* sums, bool add) {
    constexpr int kStep = operand_bytes(Shape::kTokens);
    wgmma_begin();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) wgmma<Shape::kTokens, kFp8>(sums, a[i], operand_after(x, i * kStep), (!kFp8 && add) || i > 0);
    wgmma_commit();
    const uint4 low = lane_weights(bytes, 0, 1);
    const uint4 high = lane_weights(bytes, 1, 1);
    weights.ask();
    half_operands<kFp8>(low, high, a + kSteps);
    wgmma_begin();
#pragma unroll
    for (int i = kSteps; i < 2 * kSteps; ++i) wgmma<Shape::kTokens, kFp8>(sums, a[i], operand_after(x, i * kStep), true);
    wgmma_commit();
  }
};

/// Sums of the groups, two segments each, to the outputs of a tile: through the memory of the ring, in which nothing is on its way.
template <class Shape, class Work>
__device__ __forceinline__ void add_groups(const Work& work, const TileCursor& tile, const StreamPlace& at, const float* even, const float* odd,
                                           float* part) {
  const int row = at.q * 16 + at.lane / 4;
  const ProductArgs& p = work.parts.part[tile.item];
#pragma unroll
  for (int begin = 0; begin < Shape::kTokens; begin += Shape::kPassTokens) {
    part_barrier(1, Shape::kWorkers);
#pragma unroll
    for (int i = begin / 2; i < (begin + Shape::kPassTokens) / 2; ++i) {
      const int token = i / 4 * 8 + at.lane % 4 * 2 + i % 2 - begin;
      float* const to = part + (2 * at.down * Shape::kPassTokens + token) * Shape::kPitch + row + i % 4 / 2 * 8;
      to[0] = even[i], to[Shape::kPassTokens * Shape::kPitch] = odd[i];
    }
    part_barrier(1, Shape::kWorkers);
    for (int i = static_cast<int>(threadIdx.x); i < Shape::kPassTokens * 64; i += Shape::kWorkers) {
      const float* const from = part + i / 64 * Shape::kPitch + i % 64;
      float sum = from[0];
#pragma unroll
      for (int segment = 1; segment < kSegments; ++segment) sum += from[segment * Shape::kPassTokens * Shape::kPitch];
      Work::put(p, tile.tile * Shape::kRows + i % 64, tile.tokens * Shape::kTokens + begin + i / 64, sum);
    }
  }
  fence_for_bulk();
  part_barrier(2, Shape::kUsers);  // the ring may be filled again
}

/// Little code, since it runs once a tile and has to be fetched.
template <class Shape, class Work>
__device__ __forceinline__ void put_sums(const Work& work, const TileCursor& tile, const StreamPlace& at, const float* sums) {
  const ProductArgs& p = work.parts.part[tile.item];
  const int row = tile.tile * Shape::kRows + at.q * 16 + at.lane / 4;
  const int token = tile.tokens * Shape::kTokens + at.lane % 4 * 2;
  float* y = p.y + token * p.y_stride + row;
  float bias[2] = {-0.0f, -0.0f};  // what leaves every number as it is
  bool there[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    there[i] = row + 8 * i < p.weight.rows;
    if (there[i] && p.bias.data != nullptr) bias[i] = element(p.bias, row + 8 * i);
  }
#pragma unroll
  for (int j = 0; j < Shape::kTokens / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (there[i / 2] && token + 8 * j + i % 2 < p.tokens) y[i % 2 * p.y_stride + i / 2 * 8] = sums[4 * j + i] + bias[i / 2];
    }
    y += 8 * p.y_stride;
  }
}

/// The scales of a group's blocks: lane b has those of blocks b and b + 32.
struct Scales {
  float low, high;
  __device__ __forceinline__ float at(int block) const { return __shfl_sync(0xFFFFFFFFu, block < 32 ? low : high, block & 31); }
};
template <class Work>
__device__ __forceinline__ Scales scales_of(const Work& work, const TileCursor& tile, const StreamPlace& at, int begin, int blocks) {
  const float* const scales = work.scales(tile, at.q * 16);
  if (scales == nullptr) return {1.0f, 1.0f};
  const float* const mine = scales + begin / kClusterScaleBlock + at.lane;
  return {at.lane < blocks ? mine[0] : 1.0f, at.lane + 32 < blocks ? mine[32] : 1.0f};
}

/// The warp that asks for x, piece after piece of a tile for every group's ring.
template <class Shape, class Work>
__device__ void load_x(const Work& work, TileCursor tile, int tiles, int cols, const char* packed, char* shared) {
  const int blocks = cols / Shape::kDown / Shape::kBlockChannels;
  Pieces<Shape> rings[Shape::kDown];
#pragma unroll
  for (int down = 0; down < Shape::kDown; ++down) rings[down] = pieces_of<Shape>(shared, down);
  fence_for_bulk();
  for (int i = 0; i < tiles; ++i) {
    const char* const from = packed + int64_t{tile.tokens} * (cols / Shape::kBlockChannels) * Shape::kPiece;
    for (int block = 0; threadIdx.x % 32 == 0 && block < blocks; ++block) {
#pragma unroll
      for (int down = 0; down < Shape::kDown; ++down) rings[down].fill(from + int64_t{down * blocks + block} * Shape::kPiece);
    }
    __syncwarp();
    if (Shape::kDown > 1) part_barrier(2, Shape::kUsers);
    if (i + 1 < tiles) work.next(tile);
  }
}

/// A warp that multiplies.
template <bool kFp8, class Shape, class Work>
__device__ __forceinline__ void multiply_tiles(const Work& work, const StreamPlace& at, TileCursor now, int tiles, int cols, char* shared) {
  constexpr int kCount = Shape::kTokens / 2;
  const int segment_blocks = segment_channels(cols) / Shape::kBlockChannels;
  const int blocks = cols / Shape::kDown / Shape::kBlockChannels;
  const int begin = at.down * blocks * Shape::kBlockChannels;
  Pieces<Shape> x = pieces_of<Shape>(shared, at.down);
  char* const ring = shared + Shape::kBarriers + Shape::kRing + at.warp * Shape::kStages * 2048;
  WeightStream<Shape::kStages, Work> weights{work, now, tiles, blocks, begin * (kFp8 ? 1 : 2), at.q * 16, ring};
  weights.fill();
  Scales scales = scales_of(work, now, at, begin, tiles > 0 ? blocks : 0);
  part_barrier(3, Shape::kUsers);                                                     // the barriers of the ring are there
  const float none = cols > (kSegments - 1) * segment_channels(cols) ? -0.0f : 0.0f;  // a sum that segments are added to; empty ones are 0
  StreamBlock<kFp8, Shape> here;
  int stage = 0;
  const auto open = [&]() {
    here.open(weights.wait(stage));
    stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
  };
  for (int tile = 0; tile < tiles; ++tile) {
    TileCursor after = now;
    Scales next_scales{1.0f, 1.0f};
    if (tile + 1 < tiles) work.next(after), next_scales = scales_of(work, after, at, begin, blocks);
    float total[kCount], acc[kCount];
#pragma unroll
    for (int j = 0; j < kCount; ++j) total[j] = none, acc[j] = 0;
    int in_segment = 0;
    if (Shape::kAhead) open();
    for (int block = 0; block < blocks; ++block) {
      float sums[kCount];
      if (!Shape::kAhead) open();
      here.multiply(weights, x.wait(), kFp8 ? sums : acc, in_segment > 0);
      if (Shape::kAhead && block + 1 < blocks) wgmma_wait<1>(), open();  // beside the second half
      if constexpr (kFp8) {
        if (!Shape::kAhead) wgmma_wait<0>();
        const Factors<Shape::kTokens> factors(scales.at(block), x.scales());
        if (Shape::kAhead) wgmma_wait<0>();
        wgmma_results<kCount>(sums);
#pragma unroll
        for (int j = 0; j < kCount; ++j) acc[j] = fmaf(factors.of(j), sums[j], acc[j]);
      } else {
        wgmma_wait<0>();
        wgmma_results<kCount>(acc);
      }
      x.release();
      if (Shape::kDown == 1 ? ++in_segment < segment_blocks && block + 1 < blocks : ++in_segment != segment_blocks || block + 1 == blocks) continue;
      in_segment = 0;
#pragma unroll
      for (int j = 0; j < kCount; ++j) total[j] += acc[j], acc[j] = 0;
    }
    if constexpr (Shape::kDown == 1) {
      put_sums<Shape>(work, now, at, total);
    } else {
      add_groups<Shape>(work, now, at, total, acc, reinterpret_cast<float*>(shared + Shape::kBarriers));
    }
    scales = next_scales, now = after;
  }
  copies_wait<0>();
}

template <bool kFp8, class Shape>
__global__ void __maxnreg__(Shape::kRegisters) product_stream(const __grid_constant__ Parts parts, const char* packed) {
  LATHE_DYNAMIC_SHARED(char, shared);
  const ProductWork<kFp8, Shape::kTokens, Shape> work{parts};
  const StreamPlace at = stream_place<Shape>();
  const int cols = parts.part[0].weight.cols;
  const int each = (parts.units + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
  const int unit = static_cast<int>(blockIdx.x) * each;
  const int tiles = min(parts.units - unit, each);
  if (threadIdx.x == Shape::kWorkers) {
    for (int i = 0; i < 2 * Shape::kDown * Shape::kPieces; ++i) {
      barrier_init(reinterpret_cast<Barrier*>(shared) + i, i / Shape::kPieces % 2 == 0 ? 1 : 128 * Shape::kAcross);
    }
    barriers_ready();
  }
  const TileCursor first = work.start(min(unit, parts.units - 1));
  launch_next();
  if (at.warp >= Shape::kWarps) {
    give_registers<Shape::kLoaderRegisters>();
    if (at.warp > Shape::kWarps) return;
    part_barrier(3, Shape::kUsers);
    wait_for_inputs();
    load_x<Shape>(work, first, tiles, cols, packed, shared);
  } else {
    take_registers<Shape::kWorkerRegisters>();
    multiply_tiles<kFp8, Shape>(work, at, first, tiles, cols, shared);
  }
}

/// A piece of x and 16 tokens a block: small enough to find room beside a product.
constexpr int kPackTokens = 16;
constexpr int kPackThreads = 4 * kPackTokens;
template <bool kFp8, class Shape>
__global__ void __launch_bounds__(kPackThreads, 16) pack_x(const __grid_constant__ ProductArgs p, char* to) {
  launch_next(), wait_for_inputs();
  constexpr int kParts = Shape::kTokens / kPackTokens;
  constexpr int kWarps = Shape::kTokens / 8;
  const int warp = static_cast<int>(blockIdx.x) % kParts * (kWarps / kParts) + static_cast<int>(threadIdx.x) / 32;
  const int number = static_cast<int>(blockIdx.x) / kParts;
  const int begin = number * Shape::kBlockChannels;
  const int token = static_cast<int>(blockIdx.y) * Shape::kTokens;
  const ClusterX x{.x = p.x, .stride = p.x_stride, .index = nullptr, .divisor = 1, .first = token, .count = p.tokens - token};
  char* const piece = to + (int64_t{p.weight.cols / Shape::kBlockChannels} * static_cast<int>(blockIdx.y) + number) * Shape::kPiece;
  if constexpr (kFp8) {
    stage_x_half<Shape::kTokens, true>(x, begin, begin + Shape::kBlockChannels, piece, reinterpret_cast<float*>(piece + Shape::kScales), warp,
                                       kWarps);
  } else {
    stage_x<Shape::kTokens, true>(x, begin, begin + Shape::kBlockChannels, piece, warp, kWarps);
  }
}

template <bool kFp8, class Shape>
void launch_shape(Parts& parts, const char* packed, void* stream) {
  count_tiles(parts, Shape::kRows, Shape::kTokens);
  const int rounds = (parts.units + multiprocessors() - 1) / multiprocessors();
  const auto blocks = static_cast<unsigned>((parts.units + rounds - 1) / rounds);
  const auto kernel = product_stream<kFp8, Shape>;
  LATHE_LAUNCH_CLUSTER(kernel, 1, dim3(blocks), dim3(Shape::kThreads), Shape::kShared, stream, parts, packed);
}

/// Whether groups had better share the rows: few rows, and channels that are eight whole segments. By the rows that a multiprocessor has at most.
bool goes_down(const Parts& parts) {
  if (parts.part[0].weight.cols % (kSegments * kClusterScaleBlock) != 0 || parts.part[0].tokens > 64) return false;
  const auto rounds = [&](int rows) {
    int tiles = 0;
    for (int i = 0; i < parts.count; ++i) tiles += static_cast<int>(blocks_for(parts.part[i].rows, rows));
    return (tiles + multiprocessors() - 1) / multiprocessors();
  };
  return 2 * rounds(192) > rounds(64);
}
/// Tokens of a tile. Sums of more than 32 FP8 tokens and two segments do not fit into the registers.
int tile_tokens(const Parts& parts) {
  const int tokens = parts.part[0].tokens;
  if (tokens <= 16) return 16;
  return tokens <= 32 || (parts.part[0].weight.type == Type::kF8 && goes_down(parts)) ? 32 : 64;
}

template <bool kFp8, int kTokens>
void launch(Parts& parts, char* packed, void* stream) {
  const ProductArgs& first = parts.part[0];
  using Across = StreamShape<kFp8, kTokens, 3, 1>;
  const auto pack = pack_x<kFp8, Across>;
  const dim3 grid(static_cast<unsigned>(first.weight.cols / Across::kBlockChannels * (kTokens / kPackTokens)), blocks_for(first.tokens, kTokens));
  LATHE_LAUNCH_CLUSTER(pack, 1, grid, dim3(kPackThreads), 0, stream, first, packed);
  if constexpr (!kFp8 || kTokens <= 32) {
    if (goes_down(parts)) return launch_shape<kFp8, StreamShape<kFp8, kTokens, 1, 4>>(parts, packed, stream);
  }
  launch_shape<kFp8, Across>(parts, packed, stream);
}
template <bool kFp8>
void launch_type(Parts& parts, char* packed, void* stream) {
  switch (tile_tokens(parts)) {
    case 16: return launch<kFp8, 16>(parts, packed, stream);
    case 32: return launch<kFp8, 32>(parts, packed, stream);
    default: return launch<kFp8, 64>(parts, packed, stream);
  }
}

}  // namespace

int64_t product_stream_bytes(const ProductArgs* args, int count) {
  const Parts parts = parts_of(args, count);
  if (parts.count == 0 || parts.part[0].leaf_channels > 0 || !x_aligned(parts.part[0].x, parts.part[0].x_stride)) return 0;
  const int tokens = parts.part[0].tokens;
  const int tile = tile_tokens(parts);
  const int64_t cols = parts.part[0].weight.cols;
  return int64_t{blocks_for(tokens, tile)} * tile * (cols * 2 + (parts.part[0].weight.type == Type::kF8 ? cols / kClusterScaleBlock * 4 : 0));
}

void launch_product_stream(const ProductArgs* args, int count, void* scratch, void* stream) {
  Parts parts = parts_of(args, count);
  auto* const packed = static_cast<char*>(scratch);
  parts.part[0].weight.type == Type::kF8 ? launch_type<true>(parts, packed, stream) : launch_type<false>(parts, packed, stream);
}

int64_t product_scratch_bytes(const ProductArgs* args, int count) { return args[0].tokens > 8 ? product_stream_bytes(args, count) : 0; }
void launch_product_wgmma(const ProductArgs* args, int count, void* scratch, void* stream) {
  product_scratch_bytes(args, count) > 0 ? launch_product_stream(args, count, scratch, stream) : launch_product_cluster(args, count, stream);
}

}  // namespace lathe::kernels::cuda
