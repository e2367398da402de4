// Matrix products without leaves by clusters of blocks (cluster_tile.h): one launch for all parts, tiles of 256 weight rows times up to 64 tokens.

#include "kernels/cuda/cluster_tile.h"

namespace lathe::kernels::cuda {
namespace {

struct Parts {
  ProductArgs part[kProductPartsMax];
  int first_tile[kProductPartsMax + 1];
  int count;
  int units;
};

/// Units: row tiles of all parts for the first tokens, then for the next.
template <bool kFp8, int kTokens>
struct ProductWork {
  const Parts& parts;

  __device__ __forceinline__ int tiles() const { return parts.first_tile[parts.count]; }
  /// The part of a unit, and the first row of its tile.
  __device__ __forceinline__ int part_of(int unit, int* row) const {
    const int tile = unit % tiles();
    int which = 0;
    while (parts.first_tile[which + 1] <= tile) ++which;
    *row = (tile - parts.first_tile[which]) * kClusterRows;
    return which;
  }
  __device__ __forceinline__ LaneRow row(int unit, int r) const {
    int first;
    const Matrix& m = parts.part[part_of(unit, &first)].weight;
    const bool there = first + r < m.rows;
    const int64_t row = there ? first + r : first;
    const float* const scales =
        m.scales == nullptr ? nullptr : m.scales + (row + m.row_offset) / m.block_rows * m.scale_stride + m.col_offset / kClusterScaleBlock;
    return {static_cast<const char*>(m.values) + row * m.stride * (kFp8 ? 1 : 2), scales, there};
  }
  __device__ __forceinline__ int x_of(int unit) const { return unit / tiles(); }
  __device__ __forceinline__ ClusterX x(int unit) const {
    const ProductArgs& p = parts.part[0];
    const int token = x_of(unit) * kTokens;
    return {.x = p.x, .stride = p.x_stride, .index = nullptr, .divisor = 1, .first = token, .count = p.tokens - token};
  }
  template <class Sum>
  __device__ __forceinline__ void store(int unit, int row, int token, int tokens, Sum sum) const {
    int first;
    const ProductArgs& p = parts.part[part_of(unit, &first)];
    const int begin = x_of(unit) * kTokens + token;
    for (int i = static_cast<int>(threadIdx.x); i < 32 * tokens; i += kClusterThreads) {
      const int r = i % 32;
      const int t = i / 32;
      const int at = first + row + r % 16 + r / 16 * 128;
      if (at >= p.weight.rows || begin + t >= p.tokens) continue;
      float value = sum(r, t);
      if (p.bias.data != nullptr) value += element(p.bias, at);
      p.y[(begin + t) * p.y_stride + at] = value;
    }
  }
};

template <bool kFp8, int kTokens>
__global__ void __cluster_dims__(kClusterBlocks, 1, 1) __launch_bounds__(kClusterThreads, 1) product(const __grid_constant__ Parts parts) {
  LATHE_DYNAMIC_SHARED(char, shared);
  const int clusters = static_cast<int>(gridDim.x) / kClusterBlocks;
  const int each = (parts.units + clusters - 1) / clusters;
  const int first = static_cast<int>(blockIdx.x) / kClusterBlocks * each;
  cluster_units<kFp8, kTokens>(ProductWork<kFp8, kTokens>{parts}, first, min(parts.units, first + each), parts.part[0].weight.cols, shared);
}

template <bool kFp8, int kTokens>
void launch(Parts& parts, void* stream) {
  const auto kernel = product<kFp8, kTokens>;
  const int64_t shared = cluster_shared<kTokens>(parts.part[0].weight.cols);
  static const int resident = resident_clusters(kernel, kClusterSharedMax);
  parts.units = parts.first_tile[parts.count] * static_cast<int>(blocks_for(parts.part[0].tokens, kTokens));
  // As many tiles for each, no cluster idle while another has two more.
  const int rounds = (parts.units + resident - 1) / resident;
  const int clusters = (parts.units + rounds - 1) / rounds;
  LATHE_LAUNCH_CLUSTER(kernel, kClusterBlocks, dim3(static_cast<unsigned>(clusters * kClusterBlocks)), dim3(kClusterThreads), shared, stream, parts);
}

}  // namespace

void launch_product_wgmma(const ProductArgs* args, int count, void* stream) {
  Parts parts{};
  for (int i = 0; i < count; ++i) {
    if (args[i].rows == 0) continue;
    parts.part[parts.count] = args[i];
    parts.first_tile[parts.count + 1] = parts.first_tile[parts.count] + static_cast<int>(blocks_for(args[i].rows, kClusterRows));
    ++parts.count;
  }
  const int tokens = args[0].tokens;
  if (parts.count == 0 || tokens == 0) return;
  const ProductArgs& first = parts.part[0];
  const bool wide = tokens > 16 && cluster_shared<64>(first.weight.cols) <= kClusterSharedMax;
  const bool some = tokens > 8 && cluster_shared<16>(first.weight.cols) <= kClusterSharedMax;
  if (first.weight.type == Type::kF8) {
    if (wide) return launch<true, 64>(parts, stream);
    if (some) return launch<true, 16>(parts, stream);
    return launch<true, 8>(parts, stream);
  }
  if (wide) return launch<false, 64>(parts, stream);
  if (some) return launch<false, 16>(parts, stream);
  launch<false, 8>(parts, stream);
}

}  // namespace lathe::kernels::cuda
