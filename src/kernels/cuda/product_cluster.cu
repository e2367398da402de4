// Matrix products by clusters of blocks (cluster_tile.h): one launch for all parts, tiles of weight rows times up to 64 tokens.

#include "kernels/cuda/cluster_tile.h"

namespace lathe::kernels::cuda {
namespace {

struct Parts {
  ProductArgs part[kProductPartsMax];
  int tiles[kProductPartsMax];  ///< row tiles of a part
  int count;
  int all;  ///< row tiles
  int units;
};

/// Units: row tiles of all parts for the first tokens, then for the next.
template <bool kFp8, int kTokens, class Shape>
struct ProductWork {
  const Parts& parts;
  static constexpr int kStep = Shape::kRows;

  __device__ __forceinline__ TileCursor start(int unit) const {
    TileCursor c{0, unit % parts.all, unit / parts.all};
    while (c.tile >= parts.tiles[c.item]) c.tile -= parts.tiles[c.item], ++c.item;
    return c;
  }
  __device__ __forceinline__ bool next(TileCursor& c) const {
    if (++c.tile < parts.tiles[c.item]) return true;
    c.tile = 0;
    if (++c.item == parts.count) c.item = 0, ++c.tokens;
    return false;
  }
  __device__ __forceinline__ RowsFrom rows(const TileCursor& c, int r) const {
    const Matrix& m = parts.part[c.item].weight;
    const int row = c.tile * kStep + r;
    const int64_t stride = m.stride * (kFp8 ? 1 : 2);
    return {static_cast<const char*>(m.values) + row * stride, stride, m.rows - row};
  }
  __device__ __forceinline__ const float* scales(const TileCursor& c, int r) const {
    const Matrix& m = parts.part[c.item].weight;
    if (m.scales == nullptr) return nullptr;
    return m.scales + (min(c.tile * kStep + r, m.rows - 1) + m.row_offset) / kClusterScaleBlock * m.scale_stride + m.col_offset / kClusterScaleBlock;
  }
  __device__ __forceinline__ int x_number(const TileCursor& c) const { return c.tokens; }
  __device__ __forceinline__ ClusterX x(const TileCursor& c) const {
    const ProductArgs& p = parts.part[0];
    const int token = c.tokens * kTokens;
    return {.x = p.x, .stride = p.x_stride, .index = nullptr, .divisor = 1, .first = token, .count = p.tokens - token};
  }
  template <class Sum>
  __device__ __forceinline__ void store(const TileCursor& c, int row, int token, int tokens, Sum sum) const {
    const ProductArgs& p = parts.part[c.item];
    const int begin = c.tokens * kTokens + token;
    const int first = c.tile * kStep + row;
    for (int i = static_cast<int>(threadIdx.x); i < 32 * tokens; i += kClusterThreads) {
      const int r = i % 32;
      const int t = i / 32;
      const int at = first + r % 16 + r / 16 * (kStep / 2);
      if (at >= p.weight.rows || begin + t >= p.tokens) continue;
      float value = sum(r, t);
      if (p.bias.data != nullptr) value += element(p.bias, at);
      p.y[(begin + t) * p.y_stride + at] = value;
    }
  }
};

template <bool kFp8, int kTokens, class Shape, bool kTree>
__global__ void __launch_bounds__(kClusterThreads, 1) product(const __grid_constant__ Parts parts) {
  LATHE_DYNAMIC_SHARED(char, shared);
  const int clusters = static_cast<int>(gridDim.x) / Shape::kBlocks;
  const int each = (parts.units + clusters - 1) / clusters;
  const int first = static_cast<int>(blockIdx.x) / Shape::kBlocks * each;
  const ProductWork<kFp8, kTokens, Shape> work{parts};
  cluster_tiles<kFp8, kTokens, Shape, kTree>(work, work.start(first), min(parts.units - first, each), parts.part[0].weight.cols, shared);
}

template <bool kFp8, int kTokens, bool kLong, bool kTree>
void launch_shape(Parts& parts, void* stream) {
  using Shape = ClusterShape<kTokens, kLong>;
  constexpr int kBlocks = Shape::kBlocks;
  const auto kernel = product<kFp8, kTokens, Shape, kTree>;
  const int64_t shared = cluster_shared<kTokens, kLong>(parts.part[0].weight.cols);
  static const int resident = resident_clusters(kernel, kBlocks, kClusterSharedMax);
  parts.all = 0;
  for (int i = 0; i < parts.count; ++i) {
    parts.tiles[i] = static_cast<int>(blocks_for(parts.part[i].rows, Shape::kRows));
    parts.all += parts.tiles[i];
  }
  parts.units = parts.all * static_cast<int>(blocks_for(parts.part[0].tokens, kTokens));
  const int rounds = (parts.units + resident - 1) / resident;
  const int clusters = (parts.units + rounds - 1) / rounds;
  LATHE_LAUNCH_CLUSTER(kernel, kBlocks, dim3(static_cast<unsigned>(clusters * kBlocks)), dim3(kClusterThreads), shared, stream, parts);
}

template <bool kFp8, int kTokens, bool kTree = false>
void launch(Parts& parts, void* stream) {
  static_assert(cluster_shared<kTokens, false>(kClusterLong) <= kClusterSharedMax &&
                (kTokens == 32 || cluster_shared<kTokens, true>(kClusterColsMax) <= kClusterSharedMax));
  constexpr bool kSame = kTokens == 8 || kTokens == 32;  // one shape for all numbers of channels, or for few only
  if (kSame || parts.part[0].weight.cols <= kClusterLong) return launch_shape<kFp8, kTokens, false, kTree>(parts, stream);
  launch_shape<kFp8, kTokens, !kSame, kTree>(parts, stream);
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
  if (parts.part[0].leaf_channels > 0) {  // registers for the nodes of more than 16 tokens are not there
    if (tokens <= 8) return fp8 ? launch<true, 8, true>(parts, stream) : launch<false, 8, true>(parts, stream);
    return fp8 ? launch<true, 16, true>(parts, stream) : launch<false, 16, true>(parts, stream);
  }
  if (tokens <= 8) return fp8 ? launch<true, 8>(parts, stream) : launch<false, 8>(parts, stream);
  // Beyond 4096 channels x of 32 tokens has no room beside two blocks: twice 16 is faster than 64.
  if (tokens <= (parts.part[0].weight.cols > kClusterLong ? 32 : 16)) return fp8 ? launch<true, 16>(parts, stream) : launch<false, 16>(parts, stream);
  if (tokens <= 32 && parts.part[0].weight.cols <= kClusterLong) return fp8 ? launch<true, 32>(parts, stream) : launch<false, 32>(parts, stream);
  fp8 ? launch<true, 64>(parts, stream) : launch<false, 64>(parts, stream);
}

}  // namespace lathe::kernels::cuda
