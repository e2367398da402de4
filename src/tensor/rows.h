#pragma once
// Rows of stored matrices as float: for exports, quantisers and tests. Kernels have their own ways.

#include <span>

#include "tensor/view.h"

namespace lathe::tensor {

/// Row `row` of a matrix in host memory, each value times its block's scale in float; out has matrix.cols() values.
/// Numerics  exact without scales; with them one rounding, as every kernel computes the weight.
void row_as_float(const MatrixView& matrix, int64_t row, std::span<float> out);
/// One value of it.
float value_as_float(const MatrixView& matrix, int64_t row, int64_t col);

}  // namespace lathe::tensor
