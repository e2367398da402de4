#pragma once
// Rows of activations as they multiply one matrix: as floats, rounded to BF16, or as codes.

#include <span>
#include <vector>

#include "kernels/ref/common.h"
#include "tensor/quantised.h"

namespace lathe::kernels::ref {

/// What a product is taken of.
struct ProductInput {
  std::span<const float* const> rows;  ///< each of as many floats as the matrix has columns
  ops::Compute compute = ops::Compute::kF32;
  int64_t leaf_channels = 0;  ///< runs of FP8 codes begin anew at each leaf; 0: no leaves
  View amax{};                ///< absent, or of each row: INT8 scales come from it
};

class ProductRows {
 public:
  ProductRows(const MatrixView& matrix, const ProductInput& in)
      : matrix_(matrix), compute_(in.compute), width_(matrix.cols()), int8_(ops::int8_product(matrix, in.compute)), values_(size(in.rows) * width()) {
    for (size_t i = 0; i < in.rows.size(); ++i) {
      double* const out = values_.data() + i * width();
      if (int8_) {
        quantise(in.rows[i], in.amax.present() ? in.amax.f32()[static_cast<int64_t>(i)] : tensor::largest_magnitude(in.rows[i], width_), out);
      } else if (ops::fp8_product(matrix, compute_)) {
        const int64_t leaf = in.leaf_channels > 0 ? in.leaf_channels : width_;
        for (int64_t begin = 0; begin < width_; begin += leaf) as_codes(in.rows[i] + begin, std::min(leaf, width_ - begin), out + begin);
      } else {
        for (int64_t c = 0; c < width_; ++c) out[c] = activation(in.rows[i][c], compute_);
      }
    }
  }

  bool int8() const { return int8_; }
  const double* at(int64_t i) const { return values_.data() + static_cast<size_t>(i) * width(); }
  /// Row n of the matrix as it multiplies these rows: INT8 codes without their scale, else the weights.
  void weights(int64_t n, double* out) const {
    if (!int8_) return weight_row(matrix_, n, compute_, out);
    for (int64_t c = 0; c < width_; ++c) {
      out[c] = static_cast<double>(tensor::load_as_float(DType::kI8, matrix_.values.data, n * matrix_.values.step(0) + c));
    }
  }
  /// The product of row i and weight row n from its sum.
  float value(double sum, int64_t i, int64_t n) const {
    if (!int8_) return static_cast<float>(sum);
    return static_cast<float>(sum) * scales_[static_cast<size_t>(i)] * matrix_.scales.f32()[(n + matrix_.row_offset) * matrix_.scales.step(0)];
  }

 private:
  static size_t size(std::span<const float* const> rows) { return rows.size(); }
  size_t width() const { return static_cast<size_t>(width_); }

  void quantise(const float* x, float amax, double* out) {
    const tensor::RunScale scale = tensor::run_scale(amax, DType::kI8);
    std::vector<int8_t> codes(width());
    for (int64_t c = 0; c < width_; ++c) tensor::store_code(DType::kI8, codes.data(), c, x[c], scale);
    std::copy(codes.begin(), codes.end(), out);
    scales_.push_back(scale.scale);
  }
  /// E4M3 codes times their scale: exact in double.
  static void as_codes(const float* x, int64_t n, double* out) {
    std::vector<uint8_t> codes(static_cast<size_t>(n));
    std::vector<float> scales(static_cast<size_t>(tensor::runs_of(n)));
    tensor::quantise_row(x, n, DType::kF8E4M3, codes.data(), scales.data());
    for (int64_t c = 0; c < n; ++c) {
      out[c] = static_cast<double>(tensor::f8e4m3_to_float(codes[static_cast<size_t>(c)])) *
               static_cast<double>(scales[static_cast<size_t>(c / tensor::kRunValues)]);
    }
  }

  const MatrixView& matrix_;
  ops::Compute compute_;
  int64_t width_;
  bool int8_;
  std::vector<double> values_;
  std::vector<float> scales_;  ///< of INT8 rows
};

/// Pointers to the rows of a view.
inline std::vector<const float*> row_pointers(const View& x) {
  std::vector<const float*> rows;
  for (int64_t t = 0; t < x.dim(0); ++t) rows.push_back(row(x, t));
  return rows;
}

}  // namespace lathe::kernels::ref
