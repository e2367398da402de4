#pragma once
// Where rows of a ragged batch and of paged caches lie. Included in kernel files only; internal linkage.

#include <algorithm>

#include "ops/batch.h"

namespace lathe::kernels::cpu {
namespace {

/// Sequence of row t.
inline int64_t sequence_of(const ops::Ragged& batch, int64_t t) {
  const int32_t* const begin = batch.begin.i32();
  return std::upper_bound(begin, begin + batch.sequences() + 1, static_cast<int32_t>(t)) - begin - 1;
}
/// Absolute position of row t of sequence s.
inline int64_t position_of(const ops::Ragged& batch, int64_t s, int64_t t) { return batch.start.i32()[s] + t - batch.begin.i32()[s]; }

/// Row of the pool where row r of sequence s lies.
inline int64_t paged_row(const ops::Paged& paged, int64_t s, int64_t r) {
  const int64_t block = paged.table.i32()[s * paged.table.step(0) + r / paged.block_rows];
  return block * paged.block_rows + r % paged.block_rows;
}
/// Offset of it, in elements of the pool.
inline int64_t paged_offset(const ops::Paged& paged, int64_t s, int64_t r) { return paged_row(paged, s, r) * paged.pool.step(0); }
/// Bytes of a row, its scales too.
inline int64_t paged_row_bytes(const ops::Paged& paged) {
  return paged.pool.dim(1) * static_cast<int64_t>(tensor::dtype_bytes(paged.pool.dtype)) + (paged.scales.present() ? paged.scales.dim(1) * 4 : 0);
}
/// Scales of a row of codes of the pool.
inline float* paged_scales(const ops::Paged& paged, int64_t row) { return paged.scales.f32() + row * paged.scales.step(0); }

}  // namespace
}  // namespace lathe::kernels::cpu
