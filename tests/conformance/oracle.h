#pragma once
// Helpers of the tests that compare the reference with formulas written a second time, in double and without its code.

#include <cmath>
#include <vector>

#include "harness.h"
#include "kernels/ref/reference.h"

namespace lathe::conformance {

using Values = std::vector<double>;

inline void run_reference(Problem& problem) {
  for (const Variant& variant : kernels::ref::reference_variants()) {
    if (variant.op == problem.op()) variant.run(problem.params(), {});
  }
}

/// Elements of a float view, in order.
inline Values values(const View& view) {
  Values out;
  ops::cases::each_element(view, [&](int64_t at) { out.push_back(static_cast<double>(tensor::load_as_float(view.dtype, view.data, at))); });
  return out;
}

/// Largest |a − b| over largest |b|.
inline double distance(const Values& a, const Values& b) {
  EXPECT_EQ(a.size(), b.size());
  double error = 0;
  double largest = 1e-300;
  for (size_t i = 0; i < b.size(); ++i) error = std::max(error, std::abs(a[i] - b[i])), largest = std::max(largest, std::abs(b[i]));
  return error / largest;
}

/// Dequantised matrix, row-major; scale blocks counted from the parent's first row and column.
inline Values dense(const MatrixView& m) {
  Values out;
  for (int64_t r = 0; r < m.rows(); ++r) {
    for (int64_t c = 0; c < m.cols(); ++c) {
      const auto value = static_cast<double>(tensor::load_as_float(m.values.dtype, m.values.data, r * m.values.step(0) + c));
      double scale = 1;
      if (m.scaled()) {
        const int64_t br = (m.row_offset + r) / m.block_rows;
        const int64_t bc = (m.col_offset + c) / m.block_cols;
        scale = static_cast<double>(m.scales.f32()[br * m.scales.step(0) + bc]);
      }
      out.push_back(value * scale);
    }
  }
  return out;
}

/// [rows, inner] × [inner, cols]; transposed: the second is [cols, inner].
inline Values multiply(const Values& a, const Values& b, size_t rows, size_t inner, size_t cols, bool transposed = false) {
  Values out(rows * cols);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < cols; ++j) {
      for (size_t k = 0; k < inner; ++k) out[i * cols + j] += a[i * inner + k] * (transposed ? b[j * inner + k] : b[k * cols + j]);
    }
  }
  return out;
}

inline double logistic(double x) { return 1 / (1 + std::exp(-x)); }

/// A case of the table, built; null if there is none of that name.
inline std::unique_ptr<Problem> named(ops::OpId op, const std::string& name) {
  for (const Case& item : ops::cases::all_cases()) {
    if (item.op == op && item.name == name) return build(item);
  }
  ADD_FAILURE() << "no case " << name;
  return nullptr;
}

}  // namespace lathe::conformance
