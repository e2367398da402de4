#include "tensor/view.h"

#include <fmt/format.h>

namespace lathe::tensor {

int64_t View::elements() const {
  int64_t count = rank > 0 ? 1 : 0;
  for (int axis = 0; axis < rank; ++axis) count *= dim(axis);
  return count;
}

bool View::contiguous() const {
  int64_t expected = 1;
  for (int axis = rank - 1; axis >= 0; --axis) {
    if (dim(axis) != 1 && step(axis) != expected) return false;
    expected *= dim(axis);
  }
  return true;
}

int64_t View::extent_bytes() const {
  if (elements() == 0) return 0;
  int64_t last = 0;
  for (int axis = 0; axis < rank; ++axis) last += (dim(axis) - 1) * step(axis);
  return (last + 1) * static_cast<int64_t>(dtype_bytes(dtype));
}

View View::slice(int axis, int64_t begin, int64_t end) const {
  LATHE_CHECK(0 <= begin && begin <= end && end <= dim(axis), "slice [{}, {}) of {}", begin, end, describe(*this));
  View out = *this;
  out.shape[static_cast<size_t>(axis < 0 ? axis + rank : axis)] = end - begin;
  out.data = static_cast<char*>(data) + begin * step(axis) * static_cast<int64_t>(dtype_bytes(dtype));
  return out;
}

View View::rows(int64_t begin, int64_t end) const { return slice(0, begin, end); }

View View::at(int64_t index) const {
  LATHE_CHECK(rank > 1, "at() of {}", describe(*this));
  View out = slice(0, index, index + 1);
  for (int axis = 1; axis < rank; ++axis) {
    out.shape[static_cast<size_t>(axis - 1)] = shape[static_cast<size_t>(axis)];
    out.stride[static_cast<size_t>(axis - 1)] = stride[static_cast<size_t>(axis)];
  }
  out.rank = rank - 1;
  return out;
}

View View::reshape(std::initializer_list<int64_t> new_shape) const {
  LATHE_CHECK(contiguous(), "reshape of strided {}", describe(*this));
  View out = make_view(data, dtype, new_shape);
  LATHE_CHECK(out.elements() == elements(), "reshape of {} to {}", describe(*this), describe(out));
  return out;
}

View make_view(void* data, DType dtype, std::initializer_list<int64_t> shape) {
  LATHE_CHECK(shape.size() >= 1 && shape.size() <= kMaxRank, "rank {}", shape.size());
  View view;
  view.data = data;
  view.dtype = dtype;
  view.rank = static_cast<int>(shape.size());
  size_t axis = 0;
  for (const int64_t size : shape) view.shape[axis++] = size;
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    view.stride[i] = stride;
    stride *= view.shape[i];
  }
  return view;
}

std::string describe(const View& view) {
  if (!view.present()) return "absent";
  std::string text = fmt::format("{}[", dtype_name(view.dtype));
  for (int axis = 0; axis < view.rank; ++axis) text += fmt::format("{}{}", axis > 0 ? ", " : "", view.dim(axis));
  return text + "]";
}

int64_t MatrixView::bytes() const {
  int64_t total = values.elements() * static_cast<int64_t>(dtype_bytes(values.dtype));
  if (scaled()) total += scales.elements() * static_cast<int64_t>(dtype_bytes(scales.dtype));
  return total;
}

MatrixView slice_matrix(const MatrixView& matrix, Range rows, Range cols) {
  MatrixView out = matrix;
  out.values = matrix.values.slice(0, rows.begin, rows.end).slice(1, cols.begin, cols.end);
  if (!matrix.scaled()) return out;
  const int64_t br = matrix.block_rows;
  const int64_t bc = matrix.block_cols;
  const int64_t first_row = rows.begin + matrix.row_offset;
  const int64_t first_col = cols.begin + matrix.col_offset;
  const auto end_block = [](int64_t first, int64_t count, int64_t block) { return count == 0 ? first / block : (first + count - 1) / block + 1; };
  out.scales = matrix.scales.slice(0, first_row / br, end_block(first_row, rows.end - rows.begin, br))
                   .slice(1, first_col / bc, end_block(first_col, cols.end - cols.begin, bc));
  out.row_offset = static_cast<int32_t>(first_row % br);
  out.col_offset = static_cast<int32_t>(first_col % bc);
  return out;
}

}  // namespace lathe::tensor
