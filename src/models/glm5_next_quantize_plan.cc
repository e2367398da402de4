// Which matrices of a glm5_next checkpoint change their format.

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "models/glm5_next_quantize.h"
#include "models/glm5_next_table.h"
#include "models/matrix_codes.h"
#include "ops/op.h"
#include "tensor/rows.h"

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

constexpr int64_t kSampledRows = 32;

/// Errors of the outputs when weights, and activations too if they are codes, become INT8; channels of the input taken as independent.
OutlierMatrix expected_errors(const MatrixView& m, const ChannelStats& stats, const QuantizeOptions& options) {
  const int64_t step = std::max<int64_t>(1, m.rows() / kSampledRows);
  std::vector<float> row(static_cast<size_t>(m.cols()));
  double error = 0, output = 0, weights = 0;
  for (int64_t r = 0; r < m.rows(); r += step) {
    tensor::row_as_float(m, r, row);
    const RowClip clip = best_clip(row, stats.square);
    error += clip.error, output += clip.square;
    for (const float value : row) weights += static_cast<double>(value) * static_cast<double>(value);
  }
  // Codes of a row are off by up to half a step of amax / 127, evenly: a twelfth of its square.
  const double noise = options.int8_activations ? stats.amax_square / (127.0 * 127.0) / 12 * weights : 0;
  return {.name = "", .weights = output > 0 ? std::sqrt(error / output) : 0, .activations = output > 0 ? std::sqrt(noise / output) : 0};
}

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
    const ChannelStats* const stats =
        options_.calibration != nullptr && wanted == DType::kI8 && stored != wanted ? options_.calibration->find(tensor.spec.name) : nullptr;
    if (stats != nullptr && is_outlier(tensor.spec.name, place, *stats)) {
      wanted = stored;
    } else {
      tensor.stats = stats;
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
  bool is_outlier(const std::string& name, const MatrixView& m, const ChannelStats& stats) {
    OutlierMatrix expected = expected_errors(m, stats, options_);
    if (!(std::hypot(expected.weights, expected.activations) > kKeptAbove)) return false;
    expected.name = name;
    plan_.outliers.push_back(std::move(expected));
    return true;
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
