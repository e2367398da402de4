// The experts by clusters of blocks (cluster_tile.h): every expert's rows in tiles of 8 to 64, times tiles of rows of its matrices.

#include "kernels/cuda/cluster_tile.h"

namespace lathe::kernels::cuda {
namespace {

/// Which experts have rows, and where their token tiles begin in the list of all (fewer than 65,536).
struct ExpertJobs {
  int count;
  uint16_t expert[kExpertsMax];
  uint16_t first[kExpertsMax + 1];
};

/// By the first warp; to be followed by a barrier.
__device__ void list_jobs(const MoeArgs& p, int tokens, ExpertJobs* jobs) {
  if (threadIdx.x >= 32) return;
  const int lane = static_cast<int>(threadIdx.x);
  int count = 0;
  int tiles = 0;
  for (int begin = 0; begin < p.experts; begin += 32) {
    const int e = begin + lane;
    const int mine = e < p.experts ? (p.counts[e] + tokens - 1) / tokens : 0;
    const unsigned marks = __ballot_sync(0xFFFFFFFFu, mine > 0);
    int before = 0;  // tiles of lower lanes
    for (int other = 0; other < 32; ++other) {
      const int theirs = __shfl_sync(0xFFFFFFFFu, mine, other);
      before += other < lane ? theirs : 0;
    }
    if (mine > 0) {
      const int at = count + __popc(marks & ((1u << lane) - 1u));
      jobs->expert[at] = static_cast<uint16_t>(e), jobs->first[at] = static_cast<uint16_t>(tiles + before);
    }
    count += __popc(marks);
    tiles += __shfl_sync(0xFFFFFFFFu, before + mine, 31);
  }
  if (lane == 0) jobs->count = count, jobs->first[count] = static_cast<uint16_t>(tiles);
}

/// Units: expert after expert, its token tiles, their row tiles. kDown: rows of down, else a tile has as many rows of gate as of up.
template <bool kFp8, int kTokens, bool kDown, class Shape>
struct ExpertWork {
  const MoeArgs& p;
  const ExpertJobs& jobs;
  int row_tiles;
  static constexpr int kHalf = Shape::kRows / 2;
  static constexpr int kStep = kDown ? 2 * kHalf : kHalf;  // rows from tile to tile

  __device__ __forceinline__ TileCursor start(int unit) const {
    const int tile = unit / row_tiles;
    int low = 0;
    int high = jobs.count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (jobs.first[middle] <= tile) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return {low, unit % row_tiles, tile - jobs.first[low]};
  }
  __device__ __forceinline__ bool next(TileCursor& c) const {
    if (++c.tile < row_tiles) return true;
    c.tile = 0;
    if (jobs.first[c.item] + ++c.tokens == static_cast<int>(jobs.first[c.item + 1])) c.tokens = 0, ++c.item;
    return false;
  }
  /// Which matrix a row of a tile belongs to (0 gate, 1 up, 2 down), and its number there.
  __device__ __forceinline__ int matrix_of(const TileCursor& c, int r, int* row) const {
    *row = c.tile * kStep + (kDown ? r : r % kHalf);
    return kDown ? 2 : r / kHalf;
  }
  __device__ __forceinline__ const Matrix& shape(int which) const { return kDown ? p.down : (which == 0 ? p.gate : p.up); }
  __device__ __forceinline__ RowsFrom rows(const TileCursor& c, int r) const {
    int row;
    const int which = matrix_of(c, r, &row);
    const int64_t stride = shape(which).stride * (kFp8 ? 1 : 2);
    return {static_cast<const char*>(p.table[which * p.experts + jobs.expert[c.item]]) + row * stride, stride, shape(which).rows - row};
  }
  __device__ __forceinline__ const float* scales(const TileCursor& c, int r) const {
    int row;
    const int which = matrix_of(c, r, &row);
    const Matrix& m = shape(which);
    const auto* const scales = static_cast<const float*>(p.table[(3 + which) * p.experts + jobs.expert[c.item]]);
    if (scales == nullptr) return nullptr;
    return scales + (min(row, m.rows - 1) + m.row_offset) / kClusterScaleBlock * m.scale_stride + m.col_offset / kClusterScaleBlock;
  }
  __device__ __forceinline__ int x_number(const TileCursor& c) const { return jobs.first[c.item] + c.tokens; }
  __device__ __forceinline__ ClusterX x(const TileCursor& c) const {
    const int e = jobs.expert[c.item];
    const int begin = c.tokens * kTokens;
    return {.x = kDown ? p.hidden : p.x.data,
            .stride = kDown ? p.inner : p.x.stride,
            .index = p.lists + static_cast<int64_t>(e) * p.tokens + begin,
            .divisor = kDown ? 1 : p.chosen,
            .first = 0,
            .count = p.counts[e] - begin};
  }
  template <class Sum>
  __device__ __forceinline__ void store(const TileCursor& c, int row, int token, int tokens, Sum sum) const {
    const int e = jobs.expert[c.item];
    const int begin = c.tokens * kTokens + token;
    const int count = p.counts[e];
    const int32_t* const pairs = p.lists + static_cast<int64_t>(e) * p.tokens + begin;
    constexpr int kRows = kDown ? 32 : 16;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * tokens; i += kClusterThreads) {
      const int r = i % kRows;
      const int t = i / kRows;
      const int at = c.tile * kStep + row + r % 16 + r / 16 * kHalf;
      if (at >= (kDown ? p.width : p.inner) || begin + t >= count) continue;
      const int pair = pairs[t];
      if (kDown) {
        p.leaves[static_cast<int64_t>(pair) * p.width + at] = p.weights.data[pair / p.chosen * p.weights.stride + pair % p.chosen] * sum(r, t);
      } else {
        p.hidden[static_cast<int64_t>(pair) * p.inner + at] = swiglu_value(sum(r, t), sum(r + 16, t), p.limit);
      }
    }
  }
};

template <bool kFp8, int kTokens, bool kDown, class Shape>
__global__ void __launch_bounds__(kClusterThreads, 1) experts(const __grid_constant__ MoeArgs p) {
  LATHE_DYNAMIC_SHARED(char, shared);
  auto* const jobs = reinterpret_cast<ExpertJobs*>(shared);
  wait_for_inputs();
  list_jobs(p, kTokens, jobs);
  __syncthreads();
  using Work = ExpertWork<kFp8, kTokens, kDown, Shape>;
  const int row_tiles = ((kDown ? p.width : p.inner) + Work::kStep - 1) / Work::kStep;
  const int units = jobs->first[jobs->count] * row_tiles;
  const int clusters = static_cast<int>(gridDim.x) / Shape::kBlocks;
  const int each = (units + clusters - 1) / clusters;
  const int first = static_cast<int>(blockIdx.x) / Shape::kBlocks * each;
  const Work work{p, *jobs, row_tiles};
  cluster_tiles<kFp8, kTokens, Shape, false>(work, first < units ? work.start(first) : TileCursor{}, min(units - first, each),
                                             kDown ? p.down.cols : p.gate.cols, shared + kClusterJobBytes);
}

template <bool kFp8, int kTokens, bool kDown>
void launch_one(const MoeArgs& args, void* stream) {
  using Shape = ClusterShape<kTokens, false>;
  const auto kernel = experts<kFp8, kTokens, kDown, Shape>;
  const int64_t shared = kClusterJobBytes + cluster_shared<kTokens, false>(kDown ? args.down.cols : args.gate.cols);
  static const int resident = resident_clusters(kernel, Shape::kBlocks, kClusterSharedMax);
  LATHE_LAUNCH_CLUSTER(kernel, Shape::kBlocks, dim3(static_cast<unsigned>(resident * Shape::kBlocks)), dim3(kClusterThreads), shared, stream, args);
}

template <bool kFp8, int kTokens>
void launch(const MoeArgs& args, void* stream) {
  launch_one<kFp8, kTokens, false>(args, stream);
  launch_one<kFp8, kTokens, true>(args, stream);
}

}  // namespace

static_assert(sizeof(ExpertJobs) <= kClusterJobBytes && kClusterJobBytes + cluster_shared<8, false>(kClusterColsMax) <= kClusterSharedMax);

void launch_experts_wgmma(const MoeArgs& args, void* stream) {
  // By the rows of an expert on average, so that few experts need two tiles.
  const int pairs = args.tokens * args.chosen;
  const int cols = args.gate.cols > args.down.cols ? args.gate.cols : args.down.cols;
  const bool fp8 = args.gate.type == Type::kF8;
  if (args.tokens <= 8 || pairs <= 2 * args.experts || cols > kClusterLong)
    return fp8 ? launch<true, 8>(args, stream) : launch<false, 8>(args, stream);
  if (pairs <= 10 * args.experts) {
    return fp8 ? launch<true, 16>(args, stream) : launch<false, 16>(args, stream);
  }
  fp8 ? launch<true, 64>(args, stream) : launch<false, 64>(args, stream);
}

}  // namespace lathe::kernels::cuda
