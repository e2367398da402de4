#include "tensor/rows.h"

#include <algorithm>
#include <array>

namespace lathe::tensor {
namespace {

std::array<float, 256> f8_values() {
  std::array<float, 256> out{};
  for (size_t code = 0; code < out.size(); ++code) out[code] = f8e4m3_to_float(static_cast<uint8_t>(code));
  return out;
}

void values_as_float(const View& row, std::span<float> out) {
  static const std::array<float, 256> kF8 = f8_values();
  if (row.dtype == DType::kF8E4M3) {
    const auto* const codes = static_cast<const uint8_t*>(row.data);
    for (size_t i = 0; i < out.size(); ++i) out[i] = kF8[codes[i]];
  } else if (row.dtype == DType::kBF16) {
    const auto* const bits = static_cast<const uint16_t*>(row.data);
    for (size_t i = 0; i < out.size(); ++i) out[i] = bf16_to_float(bits[i]);
  } else {
    for (size_t i = 0; i < out.size(); ++i) out[i] = load_as_float(row.dtype, row.data, static_cast<int64_t>(i));
  }
}

}  // namespace

void row_as_float(const MatrixView& matrix, int64_t row, std::span<float> out) {
  const View values = matrix.values.at(row);
  LATHE_CHECK(static_cast<int64_t>(out.size()) == matrix.cols() && values.step(0) == 1, "row of {} values for {}", out.size(),
              describe(matrix.values));
  values_as_float(values, out);
  if (!matrix.scaled()) return;
  const View scales = matrix.scales.at((row + matrix.row_offset) / matrix.block_rows);
  for (int64_t begin = 0; begin < matrix.cols();) {
    const int64_t block = (begin + matrix.col_offset) / matrix.block_cols;
    const int64_t end = std::min(matrix.cols(), (block + 1) * matrix.block_cols - matrix.col_offset);
    const float scale = scales.f32()[block];
    for (int64_t i = begin; i < end; ++i) out[static_cast<size_t>(i)] *= scale;
    begin = end;
  }
}

float value_as_float(const MatrixView& matrix, int64_t row, int64_t col) {
  const float value = load_as_float(matrix.values.dtype, matrix.values.data, row * matrix.values.step(0) + col);
  if (!matrix.scaled()) return value;
  const int64_t block = (row + matrix.row_offset) / matrix.block_rows * matrix.scales.step(0) + (col + matrix.col_offset) / matrix.block_cols;
  return value * matrix.scales.f32()[block];
}

}  // namespace lathe::tensor
