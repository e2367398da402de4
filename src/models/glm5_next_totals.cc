#include "models/glm5_next_totals.h"

#include <cmath>
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

/// Adds tensors to the parts they belong to.
class Counter : public TensorVisitor {
 public:
  explicit Counter(const Glm5NextConfig& config) : config_(config) {
    totals.layers.resize(static_cast<size_t>(config.layers + (config.draft_layer ? 1 : 0)));
  }
  Glm5NextTotals totals;

 protected:
  void add(const TensorSpec& spec, const TensorTotals& tensor) {
    const size_t kind = static_cast<size_t>(spec.kind);
    if (spec.kind == TensorKind::kVision) {
      totals.vision[kind] += tensor;
      return;
    }
    (spec.layer == config_.layers ? totals.draft : totals.text)[kind] += tensor;
    if (spec.layer >= 0) totals.layers[static_cast<size_t>(spec.layer)][kind] += tensor;
  }
  const Glm5NextConfig& config_;
};

class ConfigCounter : public Counter {
 public:
  explicit ConfigCounter(const Glm5NextConfig& config) : Counter(config), exclusions_(config.quantization.modules_to_not_convert) {}
  void matrix(TensorSpec spec, MatrixView&) override { count(spec); }
  void vector(TensorSpec spec, View&) override { count(spec); }

 private:
  void count(const TensorSpec& spec) {
    TensorTotals tensor{1, 0, spec.elements(), 0};
    if (spec.fp8_in_release && config_.quantization.fp8 && !exclusions_.covers(spec.name)) {
      tensor.tensors = 2;
      tensor.fp8_matrices = 1;
      tensor.bytes = tensor.parameters + 4 * scale_blocks(spec.shape[0]) * scale_blocks(spec.shape[1]);
    } else {
      const DType dtype = spec.f32_in_release ? DType::kF32 : config_.dtype;
      tensor.bytes = tensor.parameters * static_cast<int64_t>(tensor::dtype_bytes(dtype));
    }
    add(spec, tensor);
  }
  Exclusions exclusions_;
};

class WeightsCounter : public Counter {
 public:
  using Counter::Counter;
  void matrix(TensorSpec spec, MatrixView& place) override {
    add(spec, {place.scaled() ? 2 : 1, place.values.dtype == DType::kF8E4M3 ? 1 : 0, spec.elements(), place.bytes()});
  }
  void vector(TensorSpec spec, View& place) override {
    add(spec, {1, 0, spec.elements(), spec.elements() * static_cast<int64_t>(tensor::dtype_bytes(place.dtype))});
  }
};

int64_t row_bytes(RowFormat format, int64_t width) {
  switch (format) {
    case RowFormat::kF32: return 4 * width;
    case RowFormat::kBF16: return 2 * width;
    case RowFormat::kFp8Scaled: return width + 4 * scale_blocks(width);
  }
  return 0;
}

/// Caches of one sparse layer.
CacheBytes sparse_layer_bytes(const Glm5NextConfig& c, int64_t context, const CacheFormat& format, bool with_index) {
  CacheBytes bytes;
  bytes.latent = context * row_bytes(format.latent, c.mla.kv_lora_rank);
  if (with_index) {
    bytes.index = context / c.indexer.kpool * row_bytes(format.index, c.indexer.head_dim);
    // Raw key and gate rows of one pool; with pools of one token nothing ever waits.
    const int64_t slots = c.indexer.kpool > 1 ? c.indexer.kpool : 0;
    bytes.tail = slots * 2 * c.indexer.head_dim * static_cast<int64_t>(tensor::dtype_bytes(format.raw));
  }
  return bytes;
}

/// Most keys that a token can attend to with `context` tokens in sight.
int64_t keys_at(const IndexerConfig& indexer, int64_t context) { return std::min(context, indexer.topk_tokens + indexer.kpool - 1); }

}  // namespace

TensorTotals& TensorTotals::operator+=(const TensorTotals& other) {
  tensors += other.tensors;
  fp8_matrices += other.fp8_matrices;
  parameters += other.parameters;
  bytes += other.bytes;
  return *this;
}

TensorTotals sum(const KindTotals& kinds) {
  TensorTotals out;
  for (const TensorTotals& kind : kinds) out += kind;
  return out;
}

TensorTotals Glm5NextTotals::all() const {
  TensorTotals out = sum(text);
  out += sum(draft);
  out += sum(vision);
  return out;
}

TensorTotals Glm5NextTotals::kind(TensorKind which) const {
  TensorTotals out = at(text, which);
  out += at(draft, which);
  out += at(vision, which);
  return out;
}

Glm5NextTotals totals_from_config(const Glm5NextConfig& config) {
  ConfigCounter counter(config);
  Glm5NextWeights shape_only;
  visit_tensors(config, counter, shape_only);
  return std::move(counter.totals);
}

Glm5NextTotals totals_from_weights(const Glm5NextConfig& config, const Glm5NextWeights& weights) {
  WeightsCounter counter(config);
  Glm5NextWeights views = weights;  // the walk wants places it could write to
  visit_tensors(config, counter, views);
  return std::move(counter.totals);
}

CacheBytes cache_bytes(const Glm5NextConfig& c, int64_t context, const CacheFormat& format) {
  CacheBytes bytes;
  const int64_t kda_layers = c.count(MixerKind::kKda);
  bytes.kda_state = kda_layers * c.kda.channels() * c.kda.head_dim * 4;
  bytes.conv = kda_layers * 3 * c.kda.channels() * (c.kda.conv_width - 1) * static_cast<int64_t>(tensor::dtype_bytes(format.raw));
  for (const IndexerKind kind : c.indexers) {
    if (kind == IndexerKind::kNone) continue;
    const CacheBytes layer = sparse_layer_bytes(c, context, format, kind == IndexerKind::kFull);
    bytes.latent += layer.latent;
    bytes.index += layer.index;
    bytes.tail += layer.tail;
  }
  return bytes;
}

CacheBytes draft_cache_bytes(const Glm5NextConfig& c, int64_t context, const CacheFormat& format) {
  return c.draft_layer ? sparse_layer_bytes(c, context, format, true) : CacheBytes{};
}

double distinct_experts(const MoeConfig& moe, int64_t tokens) {
  const auto experts = static_cast<double>(moe.experts);
  return experts * (1 - std::pow(1 - static_cast<double>(moe.experts_per_token) / experts, static_cast<double>(tokens)));
}

StepBytes decode_step_bytes(const Glm5NextConfig& c, const Glm5NextTotals& totals, const StepPoint& point) {
  const int64_t experts = at(totals.text, TensorKind::kExpert).bytes;
  const auto batch = static_cast<double>(point.batch);
  StepBytes out;
  out.fixed_weights = static_cast<double>(sum(totals.text).bytes - experts - at(totals.text, TensorKind::kEmbedding).bytes);
  out.expert_weights = static_cast<double>(experts) / static_cast<double>(c.moe.experts) * distinct_experts(c.moe, point.batch);
  const CacheBytes fixed = cache_bytes(c, 0, point.format);
  out.kda_state = 2 * batch * static_cast<double>(fixed.kda_state);
  out.conv = 2 * batch * static_cast<double>(fixed.conv);
  out.attention = batch * static_cast<double>(cache_bytes(c, keys_at(c.indexer, point.context), point.format).latent +
                                              cache_bytes(c, point.context, point.format).index);
  return out;
}

double draft_step_weight_bytes(const Glm5NextConfig& c, const Glm5NextTotals& totals, int64_t batch) {
  const int64_t experts = at(totals.draft, TensorKind::kExpert).bytes;
  const double touched = static_cast<double>(experts) / static_cast<double>(c.moe.experts) * distinct_experts(c.moe, batch);
  return static_cast<double>(sum(totals.draft).bytes - experts + at(totals.text, TensorKind::kHead).bytes) + touched;
}

}  // namespace lathe::models
