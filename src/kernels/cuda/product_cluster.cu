// Matrix products by clusters of blocks (cluster_tile.h): one launch for all parts, tiles of weight rows times up to 64 tokens.

#include "kernels/cuda/product_work.h"

namespace lathe::kernels::cuda {
namespace {

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
  count_tiles(parts, Shape::kRows, kTokens);
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

void launch_product_cluster(const ProductArgs* args, int count, void* stream) {
  Parts parts = parts_of(args, count);
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
