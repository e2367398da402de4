// Which matrices of a glm5_next checkpoint change their format.

#include <algorithm>
#include <unordered_set>

#include "models/glm5_next_quantize.h"
#include "models/glm5_next_table.h"
#include "ops/op.h"

namespace lathe::models {
namespace {

/// Does the pattern (* any text, ? any character) fit the whole text?
bool matches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  return std::all_of(pattern.begin() + static_cast<std::ptrdiff_t>(p), pattern.end(), [](char c) { return c == '*'; });
}

/// A matrix whose stored scales fit a tensor of its own: a slice of a larger one may begin inside a block.
bool whole_blocks(const MatrixView& m) { return !m.scaled() || (m.row_offset == 0 && m.col_offset == 0); }

class Planner : public TensorVisitor {
 public:
  explicit Planner(const QuantizeOptions& options) : options_(options), used_(options.keep.size()) {}

  void matrix(TensorSpec spec, MatrixView& place) override {
    const DType stored = place.values.dtype;
    QuantizedTensor tensor{.spec = std::move(spec), .matrix = place, .vector = {}, .to = stored};
    DType wanted = wanted_type(tensor.spec, place);
    if (wanted != stored && keep(tensor.spec.name)) {
      wanted = stored;
      ++plan_.kept;
    }
    const bool int8_alone = stored == DType::kI8 && options_.weights != WeightFormat::kInt8;  // nothing could announce it
    if (wanted == stored && (!whole_blocks(place) || int8_alone)) wanted = DType::kBF16;
    tensor.to = wanted;
    tensor.converted = wanted != stored;
    plan_.tensors.push_back(std::move(tensor));
  }
  void vector(TensorSpec spec, View& place) override {
    plan_.tensors.push_back({.spec = std::move(spec), .matrix = {}, .vector = place, .to = place.dtype});
  }

  Result<QuantizePlan> plan() {
    for (size_t i = 0; i < used_.size(); ++i) {
      if (used_[i]) continue;
      return err(Code::kInvalidArgument,
                 "--keep '{}' names no matrix that would be converted: expected a name like "
                 "model.language_model.layers.3.self_attn.o_proj.weight, * for any text",
                 options_.keep[i]);
    }
    return std::move(plan_);
  }

 private:
  DType wanted_type(const TensorSpec& spec, const MatrixView& m) const {
    const DType stored = m.values.dtype;
    switch (options_.weights) {
      case WeightFormat::kInt8: return spec.int8_default && m.cols() <= ops::kInt8ChannelsMax ? DType::kI8 : stored;
      case WeightFormat::kFp8: return spec.fp8_in_release ? DType::kF8E4M3 : stored;
      case WeightFormat::kPlain: break;
    }
    const bool large = spec.fp8_allowed || spec.kind == TensorKind::kEmbedding || spec.kind == TensorKind::kVision;
    return large ? DType::kBF16 : stored;
  }
  bool keep(const std::string& name) {
    bool any = false;
    for (size_t i = 0; i < used_.size(); ++i) {
      if (!matches(options_.keep[i], name)) continue;
      used_[i] = any = true;
    }
    return any;
  }

  const QuantizeOptions& options_;
  std::vector<bool> used_;
  QuantizePlan plan_;
};

}  // namespace

Result<QuantizePlan> plan_glm5_next_quantize(const Glm5NextConfig& config, const Glm5NextWeights& bound, const QuantizeOptions& options) {
  Planner planner(options);
  Glm5NextWeights views = bound;  // the walk wants places it could write to
  visit_tensors(config, planner, views);
  return planner.plan();
}

QuantizationConfig quantization_of(const Glm5NextConfig& config, const QuantizePlan& plan, const QuantizeOptions& options) {
  QuantizationConfig out;
  out.weights = options.weights;
  out.int8_activations = options.int8_activations;
  const DType code = options.weights == WeightFormat::kInt8 ? DType::kI8 : DType::kF8E4M3;
  std::unordered_set<std::string> quantised;
  for (const QuantizedTensor& tensor : plan.tensors) {
    if (tensor.to == code) quantised.insert(tensor.spec.name);
  }
  out.excluded = modules_without(config, [&](const TensorSpec& spec) { return quantised.contains(spec.name); });
  return out;
}

}  // namespace lathe::models
