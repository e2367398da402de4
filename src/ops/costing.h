#pragma once
// Helpers of cost_*.cc. What one unit of each counter is: README.md.

#include <algorithm>

#include "base/function_ref.h"
#include "ops/batch.h"
#include "ops/op.h"

namespace lathe::ops {

/// Bytes of the different elements of a view; an axis with stride 0 counts once.
int64_t bytes(const View& view);
/// Bytes of matrix `m`, which every launch reads once.
inline int64_t bytes(const MatrixView& m) { return m.present() ? m.bytes() : 0; }

/// Adds `total` bytes of weights: they count as weights and as bytes read.
void add_weights(Cost& cost, int64_t total);
/// y = x Wᵀ for `rows` rows: FLOPs and weight bytes.
void add_product(Cost& cost, int64_t rows, const MatrixView& weight, const View& bias);
void add_ragged(Cost& cost, const Ragged& batch);

/// silu(gate)·up for `elements` numbers.
inline void add_swiglu(Cost& cost, int64_t elements) {
  cost[Counter::kFlops] += 3 * elements;
  cost[Counter::kExponentials] += elements;
  cost[Counter::kDivisions] += elements;
}

/// Calls f(start, rows) for each sequence. Without host copies of the batch the rows are spread evenly over sequences whose last row stands at `furthest`.
void each_sequence(const Ragged& batch, int64_t rows, int64_t furthest, base::FunctionRef<void(int64_t start, int64_t rows)> f);

/// Rows that a sequence's table can hold.
inline int64_t capacity(const Paged& paged) { return paged.table.dim(1) * paged.block_rows; }

}  // namespace lathe::ops
