#include "ops/costing.h"

namespace lathe::ops {

int64_t bytes(const View& view) {
  if (!view.present()) return 0;
  int64_t count = static_cast<int64_t>(tensor::dtype_bytes(view.dtype));
  for (int axis = 0; axis < view.rank; ++axis) {
    if (view.dim(axis) == 0) return 0;
    if (view.step(axis) != 0) count *= view.dim(axis);
  }
  return count;
}

void add_weights(Cost& cost, int64_t total) {
  cost[Counter::kWeightBytes] += total;
  cost[Counter::kBytesRead] += total;
}

void add_product(Cost& cost, int64_t rows, const MatrixView& weight, const View& bias) {
  cost[Counter::kFlops] += 2 * rows * weight.rows() * weight.cols();
  if (bias.present()) cost[Counter::kFlops] += rows * weight.rows();
  if (rows > 0) add_weights(cost, bytes(weight) + bytes(bias));
}

void add_ragged(Cost& cost, const Ragged& batch) { cost[Counter::kBytesRead] += bytes(batch.begin) + bytes(batch.start); }

void each_sequence(const Ragged& batch, int64_t rows, int64_t furthest, base::FunctionRef<void(int64_t start, int64_t rows)> f) {
  const int64_t sequences = batch.sequences();
  for (int64_t s = 0; s < sequences; ++s) {
    if (batch.host_begin != nullptr && batch.host_start != nullptr) {
      f(batch.host_start[s], batch.host_begin[s + 1] - batch.host_begin[s]);
      continue;
    }
    const int64_t share = rows * (s + 1) / sequences - rows * s / sequences;
    f(std::max<int64_t>(0, furthest + 1 - share), share);
  }
}

}  // namespace lathe::ops
