#pragma once
// Typed views of memory that somebody else owns. A view may point into device memory: only ops and Device::copy look through it.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/check.h"
#include "tensor/dtype.h"

namespace lathe::tensor {

inline constexpr int kMaxRank = 5;

/// Strided view. Strides count elements; the last dimension is contiguous unless an op says otherwise. A default view is absent (`!present()`).
struct View {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{};
  std::array<int64_t, kMaxRank> stride{};

  bool present() const { return rank > 0; }
  int64_t dim(int axis) const { return shape[static_cast<size_t>(axis < 0 ? axis + rank : axis)]; }
  int64_t step(int axis) const { return stride[static_cast<size_t>(axis < 0 ? axis + rank : axis)]; }
  int64_t elements() const;
  bool contiguous() const;
  /// Bytes from the first to one past the last element; 0 if empty.
  int64_t extent_bytes() const;

  /// Typed pointer; the dtype must fit (DCHECK).
  float* f32() const { return typed<float>(DType::kF32); }
  uint16_t* bf16() const { return typed<uint16_t>(DType::kBF16); }
  int32_t* i32() const { return typed<int32_t>(DType::kI32); }
  int64_t* i64() const { return typed<int64_t>(DType::kI64); }

  /// Rows [begin, end) of the first axis.
  View rows(int64_t begin, int64_t end) const;
  /// Elements [begin, end) of any axis.
  View slice(int axis, int64_t begin, int64_t end) const;
  /// Index `at` of the first axis, one rank less.
  View at(int64_t at) const;
  /// Same elements, new shape; must be contiguous and of equal size.
  View reshape(std::initializer_list<int64_t> new_shape) const;

 private:
  template <class T>
  T* typed([[maybe_unused]] DType want) const {
    LATHE_DCHECK(dtype == want, "view is {}, not {}", dtype_name(dtype), dtype_name(want));
    return static_cast<T*>(data);
  }
};

/// Contiguous view of `data`.
View make_view(void* data, DType dtype, std::initializer_list<int64_t> shape);

/// "f32[3, 4]": for messages.
std::string describe(const View& view);

/// A weight matrix [rows, cols] as stored: y = W x. Optional block scales: element (i, j) is value · scale[(i + row_offset) / block_rows, (j + col_offset) / block_cols].
/// A shard may begin inside a scale block: row_offset and col_offset are its distance from the block's start (0 ≤ offset < block).
struct MatrixView {
  View values;             ///< [rows, cols], cols contiguous; f32, bf16, f16, f8_e4m3, or i8 with one scale a row
  View scales;             ///< absent, or f32 [row blocks, col blocks], cols contiguous
  int32_t block_rows = 0;  ///< 128 for the released FP8 format, 1 for i8
  int32_t block_cols =
      0;  ///< 128 for the released FP8 format; for i8 the columns of the whole matrix, so that every column shard has the row's scale
  int32_t row_offset = 0;
  int32_t col_offset = 0;

  bool present() const { return values.present(); }
  int64_t rows() const { return values.dim(0); }
  int64_t cols() const { return values.dim(1); }
  bool scaled() const { return scales.present(); }
  /// Bytes of values and scales.
  int64_t bytes() const;
};

/// [begin, end) along one axis.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

/// Some rows and columns of a matrix, with the right scales and offsets.
MatrixView slice_matrix(const MatrixView& matrix, Range rows, Range cols);

}  // namespace lathe::tensor

namespace lathe {
using tensor::MatrixView;
using tensor::View;
}  // namespace lathe
