#pragma once
// The family's part of quantize.h: which tensors a checkpoint in another format holds, and where their bytes come from.

#include <string>
#include <vector>

#include "models/glm5_next_tensors.h"
#include "models/quantize.h"
#include "weights/safetensors.h"

namespace lathe::models {

/// A matrix of the checkpoint that is written, or any other tensor, which is copied.
struct QuantizedTensor {
  TensorSpec spec;
  MatrixView matrix;  ///< absent of what is no matrix
  View vector;        ///< absent of a matrix
  DType to = DType::kBF16;
  bool converted = false;               ///< else the stored bytes are copied, scales included
  const ChannelStats* stats = nullptr;  ///< of its input; null: not calibrated
};

struct QuantizePlan {
  std::vector<QuantizedTensor> tensors;
  int64_t kept = 0;  ///< matrices that a pattern of `keep` named
  std::vector<OutlierMatrix> outliers;
};

/// Errors: invalid_argument (a pattern that names no matrix which would be converted).
Result<QuantizePlan> plan_glm5_next_quantize(const Glm5NextConfig& config, const Glm5NextWeights& bound, const QuantizeOptions& options);

/// quantization_config of what the plan writes.
QuantizationConfig quantization_of(const Glm5NextConfig& config, const QuantizePlan& plan, const QuantizeOptions& options);

Result<Calibration> calibrate_glm5_next(const std::string& directory, std::span<const TokenId> ids, const CalibrateOptions& options,
                                        CalibrateProgress progress);
Result<QuantizeReport> quantize_glm5_next(const std::string& model, const std::string& path, const QuantizeOptions& options,
                                          QuantizeProgress progress);

}  // namespace lathe::models
