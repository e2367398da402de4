// The experts by clusters of blocks (cluster_tile.h): every expert's rows in tiles of 8 to 64, times tiles of rows of its matrices.

#include "kernels/cuda/cluster_tile.h"

namespace lathe::kernels::cuda {
namespace {

/// Which experts have rows, and where their row tiles begin in the list of all.
struct ExpertJobs {
  int count;
  int expert[kExpertsMax];
  int first[kExpertsMax + 1];
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
      jobs->expert[at] = e, jobs->first[at] = tiles + before;
    }
    count += __popc(marks);
    tiles += __shfl_sync(0xFFFFFFFFu, before + mine, 31);
  }
  if (lane == 0) jobs->count = count, jobs->first[count] = tiles;
}

/// Units: expert after expert, its token tiles, their row tiles. kDown: rows of down, else a tile has as many rows of gate as of up.
template <bool kFp8, int kTokens, bool kDown, class Shape>
struct ExpertWork {
  const MoeArgs& p;
  const ExpertJobs& jobs;
  int row_tiles;
  static constexpr int kHalf = Shape::kRows / 2;
  static constexpr int kStep = kDown ? 2 * kHalf : kHalf;  // rows from tile to tile

  __device__ __forceinline__ int job_of(int unit) const {
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
    return low;
  }
  /// Which matrix a row of a tile belongs to (0 gate, 1 up, 2 down), and its number there.
  __device__ __forceinline__ int matrix_of(int unit, int r, int* row) const {
    *row = unit % row_tiles * kStep + (kDown ? r : r % kHalf);
    return kDown ? 2 : r / kHalf;
  }
  __device__ __forceinline__ const Matrix& shape(int which) const { return kDown ? p.down : (which == 0 ? p.gate : p.up); }
  __device__ __forceinline__ const char* row(int unit, int r) const {
    int at;
    const int which = matrix_of(unit, r, &at);
    return static_cast<const char*>(p.table[which * p.experts + jobs.expert[job_of(unit)]]) + min(at, shape(which).rows - 1) * shape(which).stride * (kFp8 ? 1 : 2);
  }
  __device__ __forceinline__ const float* scales(int unit, int r) const {
    int at;
    const int which = matrix_of(unit, r, &at);
    const Matrix& m = shape(which);
    const auto* const scales = static_cast<const float*>(p.table[(3 + which) * p.experts + jobs.expert[job_of(unit)]]);
    if (scales == nullptr) return nullptr;
    return scales + (min(at, m.rows - 1) + m.row_offset) / m.block_rows * m.scale_stride + m.col_offset / kClusterScaleBlock;
  }
  __device__ __forceinline__ int x_of(int unit) const { return unit / row_tiles; }
  __device__ __forceinline__ ClusterX x(int unit) const {
    const int job = job_of(unit);
    const int e = jobs.expert[job];
    const int begin = (x_of(unit) - jobs.first[job]) * kTokens;
    return {.x = kDown ? p.hidden : p.x.data,
            .stride = kDown ? p.inner : p.x.stride,
            .index = p.lists + static_cast<int64_t>(e) * p.tokens + begin,
            .divisor = kDown ? 1 : p.chosen,
            .first = 0,
            .count = p.counts[e] - begin};
  }
  template <class Sum>
  __device__ __forceinline__ void store(int unit, int row, int token, int tokens, Sum sum) const {
    const int job = job_of(unit);
    const int e = jobs.expert[job];
    const int begin = (x_of(unit) - jobs.first[job]) * kTokens + token;
    const int count = p.counts[e];
    const int32_t* const pairs = p.lists + static_cast<int64_t>(e) * p.tokens + begin;
    constexpr int kRows = kDown ? 32 : 16;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * tokens; i += kClusterThreads) {
      const int r = i % kRows;
      const int t = i / kRows;
      const int at = unit % row_tiles * kStep + row + r % 16 + r / 16 * kHalf;
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
__global__ void __cluster_dims__(Shape::kBlocks, 1, 1) __launch_bounds__(kClusterThreads, 1) experts(const __grid_constant__ MoeArgs p) {
  LATHE_DYNAMIC_SHARED(char, shared);
  auto* const jobs = reinterpret_cast<ExpertJobs*>(shared);
  list_jobs(p, kTokens, jobs);
  __syncthreads();
  using Work = ExpertWork<kFp8, kTokens, kDown, Shape>;
  const int row_tiles = ((kDown ? p.width : p.inner) + Work::kStep - 1) / Work::kStep;
  const int units = jobs->first[jobs->count] * row_tiles;
  const int clusters = static_cast<int>(gridDim.x) / Shape::kBlocks;
  const int each = (units + clusters - 1) / clusters;
  const int first = static_cast<int>(blockIdx.x) / Shape::kBlocks * each;
  cluster_units<kFp8, kTokens, Shape>(Work{p, *jobs, row_tiles}, first, min(units, first + each), kDown ? p.down.cols : p.gate.cols,
                               shared + kClusterJobBytes);
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
  if (args.tokens <= 8 || pairs <= 2 * args.experts || cols > kClusterLong) return fp8 ? launch<true, 8>(args, stream) : launch<false, 8>(args, stream);
  if (pairs <= 10 * args.experts) {
    return fp8 ? launch<true, 16>(args, stream) : launch<false, 16>(args, stream);
  }
  fp8 ? launch<true, 64>(args, stream) : launch<false, 64>(args, stream);
}

}  // namespace lathe::kernels::cuda
