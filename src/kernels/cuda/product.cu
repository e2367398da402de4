// Matrix products (matmul, the heads of mla_unabsorb): one launch for all parts, tiles of weight rows times tokens (product_tile.h).

#include "kernels/cuda/product_tile.h"

namespace lathe::kernels::cuda {
namespace {

struct Parts {
  ProductArgs part[kProductPartsMax];
  int first_tile[kProductPartsMax + 1];
  int count;
};

/// grid: row tiles of all parts (and heads), token tiles.
template <bool kMma, int kRowTiles, int kTokenTiles>
__global__ void __launch_bounds__(kTileThreads, kMma&& kRowTiles == 1 ? 2 : 1) product(const __grid_constant__ Parts parts) {
  LATHE_DYNAMIC_SHARED(float, part_sums);
  constexpr int kRows = 16 * kRowTiles;
  constexpr int kTokens = 8 * kTokenTiles;
  int which = 0;
  while (which + 1 < parts.count && parts.first_tile[which + 1] <= static_cast<int>(blockIdx.x)) ++which;
  const ProductArgs& p = parts.part[which];
  const int tile = static_cast<int>(blockIdx.x) - parts.first_tile[which];
  const int tiles_per_head = (p.rows + kRows - 1) / kRows;
  const int head = tile / tiles_per_head;
  const int row = tile % tiles_per_head * kRows;
  const int token = static_cast<int>(blockIdx.y) * kTokens;
  const bool leaves = p.leaf_channels > 0;
  const int cols = p.weight.cols;
  const int channels = leaves ? p.leaf_channels : (kMma ? mma_segment_channels(cols) : max(cols, 1));
  const TileIn in{.m = &p.weight,
                  .values = p.weight.values,
                  .scales = p.weight.scales,
                  .row = head * p.head_rows + p.first_row + row,
                  .rows = min(kRows, p.rows - row),
                  .x = p.x + head * p.x_head,
                  .x_stride = p.x_stride,
                  .index = nullptr,
                  .divisor = 1,
                  .first = token,
                  .tokens = min(kTokens, p.tokens - token),
                  .segment_channels = channels,
                  .segments = leaves ? (cols + channels - 1) / channels : (kMma ? kMmaSegments : 1),
                  .fast = p.fast};
  char* const ring = reinterpret_cast<char*>(part_sums + (leaves || kMma ? in.segments : 1) * kRows * kTokens);
  run_tile<kMma, kRowTiles, kTokenTiles>(in, part_sums, ring);
  __syncthreads();
  constexpr int64_t kStride = kRows * kTokens;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kTokens; i += kTileThreads) {
    const int r = i % kRows;  // neighbours write neighbouring outputs
    const int t = i / kRows;
    if (r >= in.rows || t >= in.tokens) continue;
    const float* const sums = part_sums + r * kTokens + t;
    float* const y = p.y + head * p.y_head + (token + t) * p.y_stride + row + r;
    if (p.partial) {
      const int end = p.leaf_begin + in.segments;
      int64_t node = 0;
      for (int a = p.leaf_begin; a < end; ++node) {
        const int b = cover_end(p.leaf_total, a, end);
        y[node * p.y_node] = sum_tree(sums + (a - p.leaf_begin) * kStride, kStride, a, b);
        a = b;
      }
      continue;
    }
    float value = 0;
    if (in.segments > 0) value = leaves ? sum_tree(sums, kStride, 0, in.segments) : sum_segments(sums, kStride, in.segments);
    if (p.bias.data != nullptr) value += element(p.bias, row + r);
    *y = value;
  }
}

template <bool kMma, int kRowTiles, int kTokenTiles>
void launch(const ProductArgs* args, int count, void* stream) {
  constexpr int kRows = 16 * kRowTiles;
  constexpr int kTokens = 8 * kTokenTiles;
  Parts parts{};
  int64_t segments = 1;
  int tiles = 0;
  for (int i = 0; i < count; ++i) {
    if (args[i].rows == 0 || args[i].heads == 0) continue;
    parts.first_tile[parts.count] = tiles;
    parts.part[parts.count++] = args[i];
    tiles += (args[i].rows + kRows - 1) / kRows * args[i].heads;
    const int leaf = args[i].leaf_channels;
    const int64_t needed = leaf > 0 ? (args[i].weight.cols + leaf - 1) / leaf : (kMma ? kTileWarps : 1);
    segments = segments > needed ? segments : needed;
  }
  if (tiles == 0 || args[0].tokens == 0) return;
  const dim3 grid(static_cast<unsigned>(tiles), blocks_for(args[0].tokens, kTokens));
  const int64_t shared = segments * kRows * kTokens * 4 + (kMma && kRowTiles == 1 ? kRingBytes : 0);
  const auto kernel = product<kMma, kRowTiles, kTokenTiles>;
  LATHE_LAUNCH(kernel, grid, dim3(kTileThreads), shared, stream, parts);
}

}  // namespace

void launch_product_plain(const ProductArgs* args, int count, void* stream) { launch<false, 1, 1>(args, count, stream); }

void launch_product_mma(const ProductArgs* args, int count, void* stream) {
  bool leaves = false;
  for (int i = 0; i < count; ++i) leaves = leaves || args[i].leaf_channels > 0;
  const int tokens = args[0].tokens;
  if (tokens <= 8) return launch<true, 1, 1>(args, count, stream);
  if (tokens <= 16 || leaves) return launch<true, 1, 2>(args, count, stream);
  launch<true, 2, 4>(args, count, stream);
}

}  // namespace lathe::kernels::cuda
