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

void each_row(const Ragged& batch, int64_t rows, int64_t furthest, base::FunctionRef<void(int64_t position)> f) {
  if (batch.host_begin == nullptr || batch.host_start == nullptr) {
    for (int64_t row = 0; row < rows; ++row) f(furthest);
    return;
  }
  for (int64_t s = 0; s < batch.sequences(); ++s) {
    for (int64_t row = batch.host_begin[s]; row < batch.host_begin[s + 1]; ++row) f(batch.host_start[s] + row - batch.host_begin[s]);
  }
}

}  // namespace lathe::ops
