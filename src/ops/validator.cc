#include "ops/validator.h"

#include <algorithm>

#include "tensor/quantised.h"

namespace lathe::ops {
namespace {

std::string types_text(Types types) {
  std::string text;
  for (unsigned i = 0; i < 32; ++i) {
    if ((types >> i & 1u) == 0) continue;
    if (!text.empty()) text += " or ";
    text += tensor::dtype_name(static_cast<DType>(i));
  }
  return text;
}

std::string dims_text(std::initializer_list<Dim*> dims) {
  std::string text;
  for (const Dim* dim : dims) {
    if (!text.empty()) text += ", ";
    if (dim->size < 0) {
      text += dim->letter;
    } else if (*dim->letter == '\0') {
      text += fmt::format("{}", dim->size);
    } else {
      text += fmt::format("{} = {}{}{}", dim->letter, dim->size, dim->from.empty() ? "" : " as in ", dim->from);
    }
  }
  return "[" + text + "]";
}

bool layout_ok(const View& view, Layout layout) {
  if (view.elements() == 0) return true;
  const int free_axes = layout == Layout::kRows ? 1 : 2;
  int64_t packed = 1;
  for (int axis = view.rank - 1; axis >= 0; --axis) {
    const int64_t step = view.step(axis);
    const bool last = axis == view.rank - 1;
    if (view.dim(axis) > 1) {
      const bool free = axis < free_axes && !last;
      if (!free && step != packed) return false;
      if (free && step < packed && !(step == 0 && (layout == Layout::kStreams || axis == 0))) return false;
    }
    packed = axis == view.rank - 1 || view.dim(axis) > 1 ? std::max(packed, step * view.dim(axis)) : packed;
  }
  return true;
}

}  // namespace

void Validator::view(const std::string& name, const View& v, Types types, std::initializer_list<Dim*> dims, Layout layout) {
  if (!ok()) return;
  require(v.present(), "{} is absent, expected {} {}", name, types_text(types), dims_text(dims));
  if (!ok()) return;
  require((types & type(v.dtype)) != 0, "{} is {}, expected dtype {}", name, describe(v), types_text(types));
  bool fits = v.rank == static_cast<int>(dims.size());
  int axis = 0;
  for (const Dim* dim : dims) {
    if (!fits) break;
    fits = dim->size < 0 || v.dim(axis) == dim->size;
    ++axis;
  }
  require(fits, "{} is {}, expected {}", name, describe(v), dims_text(dims));
  if (!ok()) return;
  axis = 0;
  for (Dim* dim : dims) {
    if (dim->size < 0) dim->size = v.dim(axis), dim->from = name;
    require(v.dim(axis) >= 0, "{} is {}, sizes must not be negative", name, describe(v));
    require(dim->size == v.dim(axis), "{} is {}, expected {}", name, describe(v), dims_text(dims));  // one letter twice in a view
    ++axis;
  }
  require(layout_ok(v, layout), "{} is {} with strides that its op does not take (inner axes must be packed, rows must not overlap)", name,
          describe(v));
}

void Validator::matrix(const std::string& name, const MatrixView& m, Dim& rows, Dim& cols) {
  view(name, m.values, kMatrixTypes, {&rows, &cols});
  if (!ok()) return;
  const bool codes = m.values.dtype == DType::kI8;
  require(!codes || m.scaled(), "{} is {} without scales, expected one for each row", name, describe(m.values));
  if (!ok() || !m.scaled()) return;
  require(!codes || (m.block_rows == 1 && m.col_offset + m.cols() <= m.block_cols),
          "{} is {} with scale blocks of {} x {} from column {} on, expected one scale for each row", name, describe(m.values), m.block_rows,
          m.block_cols, m.col_offset);
  require(m.block_rows > 0 && m.block_cols > 0, "{} has scale blocks of {} x {}, expected at least 1 x 1", name, m.block_rows, m.block_cols);
  if (!ok()) return;
  require(0 <= m.row_offset && m.row_offset < m.block_rows && 0 <= m.col_offset && m.col_offset < m.block_cols,
          "{} begins at ({}, {}) of its scale block of {} x {}, expected an offset inside the block", name, m.row_offset, m.col_offset, m.block_rows,
          m.block_cols);
  if (m.values.elements() == 0) return;
  Dim row_blocks{"row blocks", (m.row_offset + m.rows() - 1) / m.block_rows + 1};
  Dim col_blocks{"column blocks", (m.col_offset + m.cols() - 1) / m.block_cols + 1};
  view(name + " scales", m.scales, kF32Only, {&row_blocks, &col_blocks});
}

void Validator::unscaled(const std::string& name, const MatrixView& m) {
  require(!m.scaled(), "{} has block scales, expected a matrix without", name);
}

void Validator::int8_channels(const std::string& name, const MatrixView& m, Compute compute) {
  if (!ok() || !int8_product(m, compute)) return;
  require(m.cols() <= kInt8ChannelsMax, "{} has {} channels, an INT8 product takes at most {}", name, m.cols(), kInt8ChannelsMax);
}

void Validator::stack(const std::string& name, const MatrixStack& s, Dim& count, Dim& rows, Dim& cols) {
  require(s.count >= 0 && (s.count == 0 || s.items != nullptr), "{} has {} items but no list", name, s.count);
  require(count.size < 0 || s.count == count.size, "{} has {} items, expected {} as in {}", name, s.count, count.size, count.from);
  if (!ok()) return;
  count.size = s.count, count.from = name;
  for (int32_t i = 0; i < s.count && ok(); ++i) {
    matrix(fmt::format("{} {}", name, i), s.items[i], rows, cols);
  }
}

void Validator::ragged(const Ragged& batch, Dim& sequences) {
  view("start", batch.start, kI32Only, {&sequences});
  if (!ok()) return;
  Dim borders{"S + 1", sequences.size + 1};
  view("begin", batch.begin, kI32Only, {&borders});
  require(batch.longest >= 0, "longest is {}, expected at least 0", batch.longest);
}

void Validator::paged(const std::string& name, const Paged& p, Dim& sequences, Dim& width) {
  Dim rows{"pool rows"};
  Dim blocks{"blocks"};
  view(name, p.pool, kVectorTypes | kCodeTypes, {&rows, &width});
  if (!ok()) return;
  require(p.scales.present() == tensor::is_code(p.pool.dtype), "{} is {}, its scales are {}: expected scales with i8 and f8_e4m3 and only with them",
          name, describe(p.pool), describe(p.scales));
  Dim runs{"runs of 128", tensor::runs_of(width.size)};
  optional(name + " scales", p.scales, kF32Only, {&rows, &runs});
  view(name + " table", p.table, kI32Only, {&sequences, &blocks});
  require(p.block_rows > 0, "{} has {} rows a block, expected at least 1", name, p.block_rows);
}

void Validator::states(const std::string& name, const View& values, const View& scales, const StateDims& dims) {
  view(name, values, kStateTypes, {&dims.rows, &dims.heads, &dims.keys, &dims.values});
  if (!ok()) return;
  require(scales.present() == (values.dtype == DType::kI8), "{} is {}, its scales are {}: expected scales with i8 and only with it", name,
          describe(values), describe(scales));
  optional(name + "_scales", scales, kF32Only, {&dims.rows, &dims.heads, &dims.values});
}

void Validator::distinct(const char* a, const View& va, const char* b, const View& vb) {
  if (va.data == nullptr || va.elements() == 0 || vb.elements() == 0) return;
  require(va.data != vb.data, "{} and {} are the same memory, expected different buffers", a, b);
}

}  // namespace lathe::ops
