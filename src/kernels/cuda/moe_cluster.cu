// The experts by clusters of blocks (cluster_tile.h): every expert's rows in tiles of 8 to 64, times tiles of 256 rows of its matrices.

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

/// Units: expert after expert, its token tiles, their row tiles. kDown: rows of down, else a tile has 128 rows of gate and the same of up.
template <bool kFp8, int kTokens, bool kDown>
struct ExpertWork {
  const MoeArgs& p;
  const ExpertJobs& jobs;
  int row_tiles;

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
  __device__ __forceinline__ LaneRow row(int unit, int r) const {
    const int which = kDown ? 2 : r / 128;
    const Matrix& m = kDown ? p.down : (which == 0 ? p.gate : p.up);
    const int e = jobs.expert[job_of(unit)];
    const int first = unit % row_tiles * (kDown ? 256 : 128);
    const int at = first + (kDown ? r : r % 128);
    const bool there = at < m.rows;
    const int64_t row = there ? at : first;
    const auto* const scales = static_cast<const float*>(p.table[(3 + which) * p.experts + e]);
    return {static_cast<const char*>(p.table[which * p.experts + e]) + row * m.stride * (kFp8 ? 1 : 2),
            scales == nullptr ? nullptr : scales + (row + m.row_offset) / m.block_rows * m.scale_stride + m.col_offset / kClusterScaleBlock, there};
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
      const int at = unit % row_tiles * (kDown ? 256 : 128) + row + r % 16 + r / 16 * 128;
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

template <bool kFp8, int kTokens, bool kDown>
__global__ void __cluster_dims__(kClusterBlocks, 1, 1) __launch_bounds__(kClusterThreads, 1) experts(const __grid_constant__ MoeArgs p) {
  LATHE_DYNAMIC_SHARED(char, shared);
  auto* const jobs = reinterpret_cast<ExpertJobs*>(shared);
  list_jobs(p, kTokens, jobs);
  __syncthreads();
  const int row_tiles = kDown ? (p.width + 255) / 256 : (p.inner + 127) / 128;
  const int units = jobs->first[jobs->count] * row_tiles;
  const int clusters = static_cast<int>(gridDim.x) / kClusterBlocks;
  const int each = (units + clusters - 1) / clusters;
  const int first = static_cast<int>(blockIdx.x) / kClusterBlocks * each;
  cluster_units<kFp8, kTokens>(ExpertWork<kFp8, kTokens, kDown>{p, *jobs, row_tiles}, first, min(units, first + each), kDown ? p.down.cols : p.gate.cols,
                               shared + kClusterJobBytes);
}

template <bool kFp8, int kTokens, bool kDown>
void launch_one(const MoeArgs& args, void* stream) {
  const auto kernel = experts<kFp8, kTokens, kDown>;
  const int64_t shared = kClusterJobBytes + cluster_shared<kTokens>(kDown ? args.down.cols : args.gate.cols);
  static const int resident = resident_clusters(kernel, kClusterSharedMax);
  LATHE_LAUNCH_CLUSTER(kernel, kClusterBlocks, dim3(static_cast<unsigned>(resident * kClusterBlocks)), dim3(kClusterThreads), shared, stream, args);
}

template <bool kFp8, int kTokens>
void launch(const MoeArgs& args, void* stream) {
  launch_one<kFp8, kTokens, false>(args, stream);
  launch_one<kFp8, kTokens, true>(args, stream);
}

}  // namespace

static_assert(sizeof(ExpertJobs) <= kClusterJobBytes);

void launch_experts_wgmma(const MoeArgs& args, void* stream) {
  // Rows of an expert on average: tiles so large that few experts need two.
  const bool few = args.tokens * args.chosen <= 2 * args.experts || args.tokens <= 8;
  const int cols = args.gate.cols > args.down.cols ? args.gate.cols : args.down.cols;
  const bool wide = !few && kClusterJobBytes + cluster_shared<64>(cols) <= kClusterSharedMax;
  if (args.gate.type == Type::kF8) {
    if (wide) return launch<true, 64>(args, stream);
    return launch<true, 8>(args, stream);
  }
  if (wide) return launch<false, 64>(args, stream);
  launch<false, 8>(args, stream);
}

}  // namespace lathe::kernels::cuda
