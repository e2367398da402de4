#pragma once
// glm5_next as GGUF arch `glm5next`: keys, and which GGUF tensor holds what. Internal to the export.
// Source: spec/gguf_glm5next.md.

#include <string>
#include <vector>

#include "models/glm5_next_tensors.h"
#include "weights/gguf.h"

namespace lathe::models {

/// How the rows of a GGUF tensor come from stored ones.
enum class GgufForm : uint8_t {
  kMatrix,     ///< row by row; several matrices lie one behind the other (experts)
  kVector,     ///< a small tensor, row-major
  kNegExp,     ///< −exp of each value
  kKeysOfKv,   ///< [heads, kv_lora, nope]: the key rows of each head of kv_b, transposed
  kValuesOfKv  ///< [heads, v, kv_lora]: the value rows of each head of kv_b
};

struct GgufSource {
  weights::GgufTensor tensor;  ///< of type f32, or kF32 replaced by the chosen type if `matrix`
  GgufForm form = GgufForm::kVector;
  bool chosen_type = false;  ///< takes the type of the file
  std::vector<MatrixView> matrices;
  View vector;
  int64_t nope = 0, value = 0;  ///< rows of a head of kv_b

  /// Row `row` as float; out has tensor.row_values().
  void read_row(int64_t row, std::span<float> out) const;
};

/// Every tensor of the text model and of the draft layer.
std::vector<GgufSource> gguf_sources(const Glm5NextConfig& config, const Glm5NextWeights& weights);

/// Keys of the model. Errors: unimplemented for what readers of this arch do not compute.
Result<std::vector<weights::GgufKey>> gguf_keys(const Glm5NextConfig& config, const std::string& name, weights::GgufType type);

}  // namespace lathe::models
