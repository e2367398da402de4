#pragma once
// The scales of 8-bit matrices in a checkpoint: found by name, checked, and put beside their codes.

#include <cstdint>
#include <string>

#include "base/result.h"
#include "models/quantization_config.h"
#include "tensor/view.h"
#include "weights/checkpoint.h"

namespace lathe::models {

/// The names of a matrix's scales: of E4M3 blocks, and of INT8 channels with their zero points.
inline std::string fp8_scale_name(const std::string& matrix) { return matrix + "_scale_inv"; }
inline std::string int8_scale_name(const std::string& matrix) { return matrix + "_scale"; }
inline std::string int8_offset_name(const std::string& matrix) { return matrix + "_offset"; }

/// One scale for each block of 128 x 128, of each row.
MatrixView fp8_matrix(const View& values, const View& scales);
MatrixView int8_matrix(const View& values, const View& scales);

class StoredScales {
 public:
  StoredScales(const QuantizationConfig& config, weights::Checkpoint& checkpoint) : config_(config), checkpoint_(checkpoint) {}

  /// Scales of the matrix `name` of `rows` x `cols` values, or an absent view of a matrix that has none: f32 [row blocks, column blocks] of E4M3, f32
  /// [rows, 1] of INT8. Scales that do not belong to the stored dtype, or are missing, are errors.
  Result<View> take(const std::string& name, int64_t rows, int64_t cols);
  /// The same of a stack of matrices [count, rows, cols] in one tensor: a stack of scales.
  Result<View> take_stack(const std::string& name, const std::vector<int64_t>& shape);

  /// Every scale is finite and positive, or 0 where all codes of its block are 0.
  Result<void> check_values(const std::string& name, const MatrixView& matrix) const;
  /// A tensor is INT8 where a ModelSlim description says so, and nowhere else.
  Result<void> check_description(const std::string& name) const;

 private:
  Result<View> take_fp8(const std::string& name, const std::vector<int64_t>& expected);
  Result<View> take_int8(const std::string& name, const std::vector<int64_t>& expected);
  Result<void> check_offsets(const std::string& name, const std::vector<int64_t>& expected);
  Result<void> refuse_others(const std::string& name) const;
  Result<void> refuse(const std::string& name, const std::string& scale_name, const char* format) const;

  const QuantizationConfig& config_;
  weights::Checkpoint& checkpoint_;
};

}  // namespace lathe::models
