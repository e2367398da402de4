#pragma once
// What the kernels of products on wgmma go through: row tiles of all parts, times tiles of tokens. Included by .cu files only.

#include "kernels/cuda/cluster_tile.h"

namespace lathe::kernels::cuda {

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
  /// What row `at` of a part is for a token; nothing if there is no such row or token.
  static __device__ __forceinline__ void put(const ProductArgs& p, int at, int token, float value) {
    if (at >= p.weight.rows || token >= p.tokens) return;
    if (p.bias.data != nullptr) value += element(p.bias, at);
    p.y[token * p.y_stride + at] = value;
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
      put(p, at, begin + t, sum(r, t));
    }
  }
};

/// Counts the tiles of `rows` rows and the units.
inline void count_tiles(Parts& parts, int rows, int tokens) {
  parts.all = 0;
  for (int i = 0; i < parts.count; ++i) {
    parts.tiles[i] = static_cast<int>(blocks_for(parts.part[i].rows, rows));
    parts.all += parts.tiles[i];
  }
  parts.units = parts.all * static_cast<int>(blocks_for(parts.part[0].tokens, tokens));
}
/// The parts that have rows.
inline Parts parts_of(const ProductArgs* args, int count) {
  Parts parts{};
  for (int i = 0; i < count; ++i) {
    if (args[i].rows == 0) continue;
    parts.part[parts.count++] = args[i];
  }
  return parts;
}

}  // namespace lathe::kernels::cuda
