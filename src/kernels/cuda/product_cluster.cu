// Matrix products without leaves by clusters of blocks (cluster_tile.h): one launch for all parts, tiles of weight rows times up to 64 tokens.

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
template <bool kFp8, int kTokens, class Shape>
struct ProductWork {
  const Parts& parts;

  __device__ __forceinline__ int tiles() const { return parts.first_tile[parts.count]; }
  /// The part of a unit, and the first row of its tile.
  __device__ __forceinline__ int part_of(int unit, int* row) const {
    const int tile = unit % tiles();
    int which = 0;
    while (parts.first_tile[which + 1] <= tile) ++which;
    *row = (tile - parts.first_tile[which]) * Shape::kRows;
    return which;
  }
  __device__ __forceinline__ const char* row(int unit, int r) const {
    int first;
    const Matrix& m = parts.part[part_of(unit, &first)].weight;
    return static_cast<const char*>(m.values) + min(first + r, m.rows - 1) * m.stride * (kFp8 ? 1 : 2);
  }
  __device__ __forceinline__ const float* scales(int unit, int r) const {
    int first;
    const Matrix& m = parts.part[part_of(unit, &first)].weight;
    if (m.scales == nullptr) return nullptr;
    return m.scales + (min(first + r, m.rows - 1) + m.row_offset) / m.block_rows * m.scale_stride + m.col_offset / kClusterScaleBlock;
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
      const int at = first + row + r % 16 + r / 16 * (Shape::kRows / 2);
      if (at >= p.weight.rows || begin + t >= p.tokens) continue;
      float value = sum(r, t);
      if (p.bias.data != nullptr) value += element(p.bias, at);
      p.y[(begin + t) * p.y_stride + at] = value;
    }
  }
};

template <bool kFp8, int kTokens, class Shape>
__global__ void __cluster_dims__(Shape::kBlocks, 1, 1) __launch_bounds__(kClusterThreads, 1) product(const __grid_constant__ Parts parts) {
  LATHE_DYNAMIC_SHARED(char, shared);
  const int clusters = static_cast<int>(gridDim.x) / Shape::kBlocks;
  const int each = (parts.units + clusters - 1) / clusters;
  const int first = static_cast<int>(blockIdx.x) / Shape::kBlocks * each;
  cluster_units<kFp8, kTokens, Shape>(ProductWork<kFp8, kTokens, Shape>{parts}, first, min(parts.units, first + each), parts.part[0].weight.cols, shared);
}

template <bool kFp8, int kTokens, bool kLong>
void launch_shape(Parts& parts, void* stream) {
  using Shape = ClusterShape<kTokens, kLong>;
  constexpr int kBlocks = Shape::kBlocks;
  const auto kernel = product<kFp8, kTokens, Shape>;
  const int64_t shared = cluster_shared<kTokens, kLong>(parts.part[0].weight.cols);
  static const int resident = resident_clusters(kernel, kBlocks, kClusterSharedMax);
  for (int i = 0; i < parts.count; ++i) {
    parts.first_tile[i + 1] = parts.first_tile[i] + static_cast<int>(blocks_for(parts.part[i].rows, Shape::kRows));
  }
  parts.units = parts.first_tile[parts.count] * static_cast<int>(blocks_for(parts.part[0].tokens, kTokens));
  const int rounds = (parts.units + resident - 1) / resident;
  const int clusters = (parts.units + rounds - 1) / rounds;
  LATHE_LAUNCH_CLUSTER(kernel, kBlocks, dim3(static_cast<unsigned>(clusters * kBlocks)), dim3(kClusterThreads), shared, stream, parts);
}

template <bool kFp8, int kTokens>
void launch(Parts& parts, void* stream) {
  static_assert(cluster_shared<kTokens, false>(kClusterLong) <= kClusterSharedMax && cluster_shared<kTokens, true>(kClusterColsMax) <= kClusterSharedMax);
  if (kTokens == 8 || parts.part[0].weight.cols <= kClusterLong) return launch_shape<kFp8, kTokens, false>(parts, stream);
  launch_shape<kFp8, kTokens, kTokens != 8>(parts, stream);
}

}  // namespace

void launch_product_wgmma(const ProductArgs* args, int count, void* stream) {
  Parts parts{};
  for (int i = 0; i < count; ++i) {
    if (args[i].rows == 0) continue;
    parts.part[parts.count++] = args[i];
  }
  const int tokens = args[0].tokens;
  if (parts.count == 0 || tokens == 0) return;
  const bool fp8 = parts.part[0].weight.type == Type::kF8;
  if (tokens <= 8) return fp8 ? launch<true, 8>(parts, stream) : launch<false, 8>(parts, stream);
  if (tokens <= 16) return fp8 ? launch<true, 16>(parts, stream) : launch<false, 16>(parts, stream);
  fp8 ? launch<true, 64>(parts, stream) : launch<false, 64>(parts, stream);
}

}  // namespace lathe::kernels::cuda
