#include "models/glm5_next_shapes.h"

#include <algorithm>
#include <string>
#include <unordered_set>

#include "models/glm5_next_table.h"
#include "models/stored_scales.h"

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
  Shaper(const Glm5NextConfig& config, void* data) : config_(config), exclusions_(config.quantization.excluded), data_(data) {}

  void matrix(TensorSpec spec, MatrixView& place) override {
    const int64_t rows = spec.shape[0];
    const int64_t cols = spec.elements() / rows;
    switch (format(spec)) {
      case WeightFormat::kPlain: place = {.values = view(plain(spec), {rows, cols}), .scales = {}}; break;
      case WeightFormat::kFp8:
        place = fp8_matrix(view(DType::kF8E4M3, {rows, cols}), view(DType::kF32, {scale_blocks(rows), scale_blocks(cols)}));
        break;
      case WeightFormat::kInt8: place = int8_matrix(view(DType::kI8, {rows, cols}), view(DType::kF32, {rows, 1})); break;
    }
  }

  void vector(TensorSpec spec, View& place) override {
    std::vector<int64_t> shape = spec.shape;
    if (shape.size() == 3 && shape[1] == 1) shape.erase(shape.begin() + 1);  // a convolution [C, 1, W]
    place = shape.size() == 1 ? view(plain(spec), {shape[0]}) : view(plain(spec), {shape[0], spec.elements() / shape[0]});
  }

  int64_t bytes_max = 0;

 private:
  WeightFormat format(const TensorSpec& spec) const {
    const QuantizationConfig& q = config_.quantization;
    if (q.described) {
      const auto at = q.described->find(spec.name);
      return at != q.described->end() && at->second && spec.int8_allowed ? WeightFormat::kInt8 : WeightFormat::kPlain;
    }
    const bool taken = (q.weights == WeightFormat::kFp8 && spec.fp8_in_release) || (q.weights == WeightFormat::kInt8 && spec.int8_allowed);
    return taken && !exclusions_.covers(spec.name) ? q.weights : WeightFormat::kPlain;
  }
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
