#include "models/stored_scales.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "models/glm5_next_tensors.h"

namespace lathe::models {
namespace {

using weights::describe_shape;
using weights::TensorEntry;

bool widens(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16; }

/// [rows, 1] (or [count, rows, 1]); some exports leave the 1 out.
bool is_column(const TensorEntry& entry, std::vector<int64_t> expected) {
  if (entry.shape == expected) return true;
  expected.pop_back();
  return entry.shape == expected;
}

View with_shape(const View& view, const std::vector<int64_t>& shape) {
  return shape.size() == 2 ? view.reshape({shape[0], shape[1]}) : view.reshape({shape[0], shape[1], shape[2]});
}

/// The sign bit of an E4M3 code says nothing about its size.
uint8_t magnitude_bits(DType dtype) { return dtype == DType::kF8E4M3 ? 0x7f : 0xff; }

struct Block {
  int64_t row_begin, row_end, col_begin, col_end;
};

bool all_zero(const View& codes, const Block& block) {
  const auto* const data = static_cast<const uint8_t*>(codes.data);
  const uint8_t bits = magnitude_bits(codes.dtype);
  for (int64_t row = block.row_begin; row < block.row_end; ++row) {
    const uint8_t* const first = data + row * codes.step(0);
    if (std::any_of(first + block.col_begin, first + block.col_end, [&](uint8_t code) { return (code & bits) != 0; })) return false;
  }
  return true;
}

}  // namespace

MatrixView fp8_matrix(const View& values, const View& scales) {
  MatrixView matrix{.values = values, .scales = scales};
  matrix.block_rows = matrix.block_cols = kScaleBlock;
  return matrix;
}

MatrixView int8_matrix(const View& values, const View& scales) {
  MatrixView matrix{.values = values, .scales = scales};
  matrix.block_rows = 1;
  matrix.block_cols = static_cast<int32_t>(values.dim(1));
  return matrix;
}

Result<void> StoredScales::refuse_others(const std::string& name) const {
  const DType dtype = checkpoint_.find(name)->dtype;
  if (dtype != DType::kF8E4M3) LATHE_TRY_VOID(refuse(name, fp8_scale_name(name), "f8_e4m3"));
  if (dtype != DType::kI8) {
    LATHE_TRY_VOID(refuse(name, int8_scale_name(name), "i8"));
    LATHE_TRY_VOID(refuse(name, int8_offset_name(name), "i8"));
  }
  return {};
}

Result<View> StoredScales::take(const std::string& name, int64_t rows, int64_t cols) {
  LATHE_TRY_VOID(refuse_others(name));
  const DType dtype = checkpoint_.find(name)->dtype;
  if (dtype == DType::kF8E4M3) return take_fp8(name, {scale_blocks(rows), scale_blocks(cols)});
  if (dtype == DType::kI8) return take_int8(name, {rows, 1});
  return View{};
}

Result<View> StoredScales::take_stack(const std::string& name, const std::vector<int64_t>& shape) {
  LATHE_TRY_VOID(refuse_others(name));
  const DType dtype = checkpoint_.find(name)->dtype;
  if (dtype == DType::kF8E4M3) return take_fp8(name, {shape[0], scale_blocks(shape[1]), scale_blocks(shape[2])});
  if (dtype == DType::kI8) return take_int8(name, {shape[0], shape[1], 1});
  return View{};
}

/// Scales whose matrix is of another kind.
Result<void> StoredScales::refuse(const std::string& name, const std::string& scale_name, const char* format) const {
  if (!checkpoint_.has(scale_name)) return {};
  return err(Code::kInvalidArgument, "tensor '{}' in {} is {}, but has scales '{}' (only {} does)", name, checkpoint_.file_of(name),
             tensor::dtype_name(checkpoint_.find(name)->dtype), scale_name, format);
}

Result<View> StoredScales::take_fp8(const std::string& name, const std::vector<int64_t>& expected) {
  const std::string scale_name = fp8_scale_name(name);
  const TensorEntry* scale = checkpoint_.find(scale_name);
  if (scale == nullptr) {
    return err(Code::kInvalidArgument, "tensor '{}' in {} is f8_e4m3, but has no '{}'", name, checkpoint_.file_of(name), scale_name);
  }
  if (scale->dtype != DType::kF32) {
    return err(Code::kInvalidArgument, "tensor '{}' in {} is {}, expected f32", scale_name, checkpoint_.file_of(scale_name),
               tensor::dtype_name(scale->dtype));
  }
  if (scale->shape != expected) {
    return err(Code::kInvalidArgument, "tensor '{}' in {} is {}, expected shape [{}]", scale_name, checkpoint_.file_of(scale_name),
               describe_shape(scale->dtype, scale->shape), fmt::join(expected, ", "));
  }
  return checkpoint_.take(scale_name);
}

Result<View> StoredScales::take_int8(const std::string& name, const std::vector<int64_t>& expected) {
  if (config_.weights != WeightFormat::kInt8) {
    return err(Code::kInvalidArgument,
               "tensor '{}' in {} is i8, but nothing announces INT8 weights: expected a quantization_config of \"compressed-tensors\" in "
               "config.json, or a {}",
               name, checkpoint_.file_of(name), kModelSlimFile);
  }
  const std::string scale_name = int8_scale_name(name);
  const TensorEntry* scale = checkpoint_.find(scale_name);
  if (scale == nullptr) {
    return err(Code::kInvalidArgument, "tensor '{}' in {} is i8, but has no '{}'", name, checkpoint_.file_of(name), scale_name);
  }
  if (!widens(scale->dtype) || !is_column(*scale, expected)) {
    return err(Code::kInvalidArgument, "tensor '{}' in {} is {}, expected f32, bf16 or f16 [{}]: a scale for each row of '{}'", scale_name,
               checkpoint_.file_of(scale_name), describe_shape(scale->dtype, scale->shape), fmt::join(expected, ", "), name);
  }
  LATHE_TRY_VOID(check_offsets(name, expected));
  LATHE_TRY(const View scales, checkpoint_.take_f32(scale_name));
  return with_shape(scales, expected);
}

Result<void> StoredScales::check_offsets(const std::string& name, const std::vector<int64_t>& expected) {
  const std::string offset_name = int8_offset_name(name);
  const TensorEntry* offset = checkpoint_.find(offset_name);
  if (offset == nullptr) return {};
  if (!(widens(offset->dtype) || offset->dtype == DType::kI8) || !is_column(*offset, expected)) {
    return err(Code::kInvalidArgument, "tensor '{}' in {} is {}, expected zeros [{}]", offset_name, checkpoint_.file_of(offset_name),
               describe_shape(offset->dtype, offset->shape), fmt::join(expected, ", "));
  }
  LATHE_TRY(const View offsets, checkpoint_.take(offset_name));
  for (int64_t row = 0; row < offsets.elements(); ++row) {
    const float value = tensor::load_as_float(offsets.dtype, offsets.data, row);
    if (value == 0) continue;
    return err(Code::kInvalidArgument, "tensor '{}' in {} is {} in row {}, expected 0 (only symmetric codes are supported)", offset_name,
               checkpoint_.file_of(offset_name), value, row);
  }
  return {};
}

Result<void> StoredScales::check_values(const std::string& name, const MatrixView& matrix) const {
  if (!matrix.scaled()) return {};
  for (int64_t r = 0; r < matrix.scales.dim(0); ++r) {
    for (int64_t c = 0; c < matrix.scales.dim(1); ++c) {
      const float scale = matrix.scales.f32()[r * matrix.scales.step(0) + c];
      if (std::isfinite(scale) && scale > 0) continue;
      const Block block{r * matrix.block_rows, std::min(matrix.rows(), (r + 1) * matrix.block_rows), c * matrix.block_cols,
                        std::min(matrix.cols(), (c + 1) * matrix.block_cols)};
      if (scale == 0 && all_zero(matrix.values, block)) continue;
      return err(Code::kInvalidArgument, "tensor '{}' in {} has the scale {} at [{}, {}], expected a positive number{}", name,
                 checkpoint_.file_of(name), scale, r, c, scale == 0 ? ", as not all its codes are 0" : "");
    }
  }
  return {};
}

Result<void> StoredScales::check_description(const std::string& name) const {
  if (!config_.described) return {};
  const bool int8 = checkpoint_.find(name)->dtype == DType::kI8;
  const auto at = config_.described->find(name);
  if (at == config_.described->end()) {
    if (!int8) return {};
    return err(Code::kInvalidArgument, "tensor '{}' in {} is i8, but {} does not name it", name, checkpoint_.file_of(name), kModelSlimFile);
  }
  if (at->second == int8) return {};
  return err(Code::kInvalidArgument, "tensor '{}' in {} is {}, but {} says {}", name, checkpoint_.file_of(name),
             tensor::dtype_name(checkpoint_.find(name)->dtype), kModelSlimFile, at->second ? "W8A8_DYNAMIC (i8)" : "FLOAT");
}

}  // namespace lathe::models
