#pragma once
// What a model folder announces about its 8-bit matrices: quantization_config of its config.json, or a ModelSlim description beside it.
// The stored tensors decide which matrix is quantised; this says how codes are to be read, and what meets INT8 codes.
// Source: spec glm5_next §1.4 (FP8 release), §4.5 (compressed-tensors W8A8, ModelSlim); docs/formats.md.

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "config/json.h"

namespace lathe::models {

enum class WeightFormat : uint8_t {
  kPlain,
  kFp8,   ///< E4M3 with one f32 scale for each block of 128 x 128
  kInt8,  ///< INT8 with one scale for each output channel
};

struct QuantizationConfig {
  WeightFormat weights = WeightFormat::kPlain;
  bool int8_activations = false;      ///< of INT8 matrices, one scale for each token; else activations stay as they are
  std::vector<std::string> excluded;  ///< modules (with what they contain) that stay, as spelled: with or without `language_model.`
  /// A ModelSlim description: whether a tensor is INT8, by its stored name. Absent: no such file.
  std::optional<std::unordered_map<std::string, bool>> described;
};

/// "int8 weights, int8 activations", "fp8 weights", "no 8-bit weights": for people.
std::string quantization_text(const QuantizationConfig& config);

/// Reads quantization_config: the FP8 release's ("fp8"), or compressed-tensors ("int-quantized": symmetric INT8 channels, with symmetric dynamic INT8
/// activations per token or none). Errors: invalid_argument naming key, value and what is supported.
Result<QuantizationConfig> read_quantization_config(const config::Json& json, std::vector<std::string>& warnings);

/// The same as JSON; weights must not be kPlain.
config::Json quantization_config_json(const QuantizationConfig& config);

inline constexpr const char* kModelSlimFile = "quant_model_description.json";

/// Reads a ModelSlim description: FLOAT and W8A8_DYNAMIC tensors. Errors: invalid_argument (another scheme, a rotated model), naming tensor and scheme.
Result<QuantizationConfig> read_modelslim_description(const config::Json& json);

}  // namespace lathe::models
