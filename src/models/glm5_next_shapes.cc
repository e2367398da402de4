#include "models/glm5_next_shapes.h"

#include <algorithm>
#include <string>
#include <unordered_set>

#include "models/glm5_next_table.h"

namespace lathe::models {
namespace {

/// The modules that stay unquantised, looked up by tensor name.
class Exclusions {
 public:
  explicit Exclusions(const std::vector<std::string>& modules) : modules_(modules.begin(), modules.end()) {}

  bool covers(std::string name) const {
    if (name.ends_with(".weight")) name.resize(name.size() - std::string_view(".weight").size());
    if (subtree_listed(name)) return true;
    constexpr std::string_view kPart = "language_model.";
    const size_t at = name.find(kPart);
    return at != std::string::npos && subtree_listed(name.substr(0, at) + name.substr(at + kPart.size()));
  }

 private:
  /// The module itself or one that contains it.
  bool subtree_listed(std::string name) const {
    while (true) {
      if (modules_.contains(name)) return true;
      const size_t dot = name.rfind('.');
      if (dot == std::string::npos) return false;
      name.resize(dot);
    }
  }
  std::unordered_set<std::string> modules_;
};

class Shaper : public TensorVisitor {
 public:
  Shaper(const Glm5NextConfig& config, void* data) : config_(config), exclusions_(config.quantization.modules_to_not_convert), data_(data) {}

  void matrix(TensorSpec spec, MatrixView& place) override {
    const bool covered = exclusions_.covers(spec.name);
    const bool fp8 = spec.fp8_in_release && config_.quantization.fp8 && !covered;
    const bool int8 = spec.fp8_allowed && config_.quantization.int8 && !covered;
    const int64_t rows = spec.shape[0];
    const int64_t cols = spec.elements() / rows;
    place = {.values = view(fp8 ? DType::kF8E4M3 : int8 ? DType::kI8 : plain(spec), {rows, cols}), .scales = {}};
    if (int8) {
      place.scales = view(DType::kF32, {rows, 1});
      place.block_rows = 1, place.block_cols = static_cast<int32_t>(cols);
    }
    if (!fp8) return;
    place.scales = view(DType::kF32, {scale_blocks(rows), scale_blocks(cols)});
    place.block_rows = place.block_cols = kScaleBlock;
  }

  void vector(TensorSpec spec, View& place) override {
    std::vector<int64_t> shape = spec.shape;
    if (shape.size() == 3 && shape[1] == 1) shape.erase(shape.begin() + 1);  // a convolution [C, 1, W]
    place = shape.size() == 1 ? view(plain(spec), {shape[0]}) : view(plain(spec), {shape[0], spec.elements() / shape[0]});
  }

  int64_t bytes_max = 0;

 private:
  DType plain(const TensorSpec& spec) const { return spec.f32_in_release ? DType::kF32 : config_.dtype; }
  View view(DType dtype, std::initializer_list<int64_t> shape) {
    const View out = tensor::make_view(data_, dtype, shape);
    bytes_max = std::max(bytes_max, out.extent_bytes());
    return out;
  }

  const Glm5NextConfig& config_;
  Exclusions exclusions_;
  void* data_;
};

}  // namespace

Glm5NextWeights weights_from_config(const Glm5NextConfig& config, void* data) {
  Glm5NextWeights weights;
  Shaper shaper(config, data);
  visit_tensors(config, shaper, weights);
  return weights;
}

Result<ZeroBytes> ZeroBytes::for_config(const Glm5NextConfig& config) {
  Glm5NextWeights weights;
  Shaper shaper(config, nullptr);
  visit_tensors(config, shaper, weights);
  ZeroBytes zeros;
  // calloc, because it takes large blocks from the system untouched.
  zeros.memory_.reset(std::calloc(static_cast<size_t>(std::max<int64_t>(shaper.bytes_max, 64)), 1));
  if (zeros.memory_ == nullptr) return err(Code::kResourceExhausted, "cannot reserve {} bytes, the size of the largest tensor", shaper.bytes_max);
  return zeros;
}

}  // namespace lathe::models
