#include "models/glm5_next_totals.h"

#include <algorithm>

#include "models/glm5_next_cache.h"
#include "models/glm5_next_shapes.h"
#include "models/glm5_next_table.h"
#include "tensor/quantised.h"

namespace lathe::models {
namespace {

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

class WeightsCounter : public Counter {
 public:
  using Counter::Counter;
  void matrix(TensorSpec spec, MatrixView& place) override {
    add(spec, {.tensors = place.scaled() ? 2 : 1,
               .fp8_matrices = place.values.dtype == DType::kF8E4M3 ? 1 : 0,
               .int8_matrices = place.values.dtype == DType::kI8 ? 1 : 0,
               .parameters = spec.elements(),
               .bytes = place.bytes()});
  }
  void vector(TensorSpec spec, View& place) override {
    const int64_t bytes = spec.elements() * static_cast<int64_t>(tensor::dtype_bytes(place.dtype));
    add(spec, {.tensors = 1, .parameters = spec.elements(), .bytes = bytes});
  }
};

int64_t values_bytes(DType dtype, int64_t count) { return count * static_cast<int64_t>(tensor::dtype_bytes(dtype)); }

/// One row of latents or index keys, scales included.
int64_t row_bytes(DType dtype, int64_t width) { return values_bytes(dtype, width) + (tensor::is_code(dtype) ? 4 * tensor::runs_of(width) : 0); }

/// Caches of one sparse layer.
CacheBytes sparse_layer_bytes(const Glm5NextConfig& c, int64_t context, const CacheFormats& formats, IndexerKind indexer) {
  CacheBytes bytes;
  bytes.latent = context * row_bytes(formats.latent, c.mla.kv_lora_rank);
  if (indexer == IndexerKind::kFull) {
    bytes.index = context / c.indexer.kpool * row_bytes(formats.index, c.indexer.head_dim);
    // Raw key and gate rows of one pool; with pools of one token nothing ever waits.
    const int64_t slots = c.indexer.kpool > 1 ? c.indexer.kpool : 0;
    bytes.tail = values_bytes(formats.conv, slots * 2 * c.indexer.head_dim);
  }
  return bytes;
}

/// Most keys that a token can attend to with `context` tokens in sight.
int64_t keys_at(const IndexerConfig& indexer, int64_t context) { return std::min(context, indexer.topk_tokens + indexer.kpool - 1); }

}  // namespace

TensorTotals& TensorTotals::operator+=(const TensorTotals& other) {
  tensors += other.tensors;
  fp8_matrices += other.fp8_matrices;
  int8_matrices += other.int8_matrices;
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

Glm5NextTotals totals_from_config(const Glm5NextConfig& config) { return totals_from_weights(config, weights_from_config(config)); }

Glm5NextTotals totals_from_weights(const Glm5NextConfig& config, const Glm5NextWeights& weights) {
  WeightsCounter counter(config);
  Glm5NextWeights views = weights;  // the walk wants places it could write to
  visit_tensors(config, counter, views);
  return std::move(counter.totals);
}

int64_t glm5_next_int8_matrices(const Glm5NextConfig& config, const Glm5NextWeights& weights) {
  return totals_from_weights(config, weights).all().int8_matrices;
}

CacheBytes cache_bytes(const Glm5NextConfig& c, int64_t context, const CacheFormats& formats) {
  CacheBytes bytes;
  const int64_t kda_layers = c.count(MixerKind::kKda);
  bytes.kda_state = values_bytes(formats.state, kda_layers * c.kda.channels() * c.kda.head_dim);
  if (tensor::is_code(formats.state)) bytes.kda_state += values_bytes(DType::kF32, kda_layers * c.kda.channels());
  bytes.conv = values_bytes(formats.conv, kda_layers * 3 * c.kda.channels() * (c.kda.conv_width - 1));
  for (const IndexerKind kind : c.indexers) {
    if (kind == IndexerKind::kNone) continue;
    const CacheBytes layer = sparse_layer_bytes(c, context, formats, kind);
    bytes.latent += layer.latent;
    bytes.index += layer.index;
    bytes.tail += layer.tail;
  }
  return bytes;
}

CacheBytes draft_cache_bytes(const Glm5NextConfig& c, int64_t context, const CacheFormats& formats) {
  return c.draft_layer ? sparse_layer_bytes(c, context, formats, IndexerKind::kFull) : CacheBytes{};
}

double distinct_experts(const MoeConfig& moe, int64_t tokens) {
  return expected_experts(static_cast<double>(moe.experts), static_cast<double>(moe.experts_per_token), static_cast<double>(tokens));
}

StepBytes decode_step_bytes(const Glm5NextConfig& c, const Glm5NextTotals& totals, const StepPoint& point) {
  const int64_t experts = at(totals.text, TensorKind::kExpert).bytes;
  const auto batch = static_cast<double>(point.batch);
  StepBytes out;
  out.fixed_weights = static_cast<double>(sum(totals.text).bytes - experts - at(totals.text, TensorKind::kEmbedding).bytes);
  out.expert_weights = static_cast<double>(experts) / static_cast<double>(c.moe.experts) * distinct_experts(c.moe, point.batch);
  const CacheBytes fixed = cache_bytes(c, 0, point.formats);
  out.kda_state = 2 * batch * static_cast<double>(fixed.kda_state);
  if (point.replay_period > 0) {
    const auto heads = static_cast<double>(c.count(MixerKind::kKda) * c.kda.heads);
    out.kda_state = batch * heads * replay_token_bytes(glm5_next_replay_bytes(c, point.formats), point.replay_period);
  }
  out.conv = 2 * batch * static_cast<double>(fixed.conv);
  out.attention = batch * static_cast<double>(cache_bytes(c, keys_at(c.indexer, point.context), point.formats).latent +
                                              cache_bytes(c, point.context, point.formats).index);
  return out;
}

PrefillBytes prefill_token_bytes(const Glm5NextConfig& c, const Glm5NextTotals& totals, const PrefillPoint& point) {
  const int64_t tokens = std::max<int64_t>(point.context, 1);
  const int64_t chunk = std::clamp<int64_t>(point.chunk, 1, tokens);
  const StepBytes step = decode_step_bytes(c, totals, {.batch = 1, .context = 0, .formats = point.formats});
  const auto latent_row = static_cast<double>(cache_bytes(c, 1, point.formats).latent);
  const auto pool_row = static_cast<double>(cache_bytes(c, c.indexer.kpool, point.formats).index);
  const auto expert_bytes = static_cast<double>(at(totals.text, TensorKind::kExpert).bytes) / static_cast<double>(c.moe.experts);
  const auto head = static_cast<double>(at(totals.text, TensorKind::kHead).bytes);
  const double whole_chunk_experts = distinct_experts(c.moe, chunk);
  PrefillBytes out;
  for (int64_t begin = 0; begin < tokens; begin += chunk) {
    const int64_t end = std::min(begin + chunk, tokens);
    const bool whole = end - begin == chunk;
    out.fixed_weights += step.fixed_weights - head;
    out.expert_weights += expert_bytes * (whole ? whole_chunk_experts : distinct_experts(c.moe, end - begin));
    out.kda_state += step.kda_state;
    out.conv += step.conv;
    // A latent is read when a token of the chunk attends to it: together they choose at most so many.
    const double chosen = static_cast<double>(end - begin) * static_cast<double>(keys_at(c.indexer, end));
    const int64_t pools = end / c.indexer.kpool;
    out.attention += latent_row * std::min(static_cast<double>(end), chosen) + pool_row * static_cast<double>(pools);
  }
  out.head = head;
  const int64_t all_pools = tokens / c.indexer.kpool;
  out.written = latent_row * static_cast<double>(tokens) + pool_row * static_cast<double>(all_pools);
  for (double* part : {&out.fixed_weights, &out.head, &out.expert_weights, &out.kda_state, &out.conv, &out.attention, &out.written}) {
    *part /= static_cast<double>(tokens);
  }
  return out;
}

double draft_step_weight_bytes(const Glm5NextConfig& c, const Glm5NextTotals& totals, int64_t batch) {
  const int64_t experts = at(totals.draft, TensorKind::kExpert).bytes;
  const double touched = static_cast<double>(experts) / static_cast<double>(c.moe.experts) * distinct_experts(c.moe, batch);
  return static_cast<double>(sum(totals.draft).bytes - experts + at(totals.text, TensorKind::kHead).bytes) + touched;
}

DecodeBytes decode_bytes(const Glm5NextConfig& c, const Glm5NextTotals& totals, const CacheFormats& formats) {
  const StepBytes none = decode_step_bytes(c, totals, {.batch = 0, .context = 0, .formats = formats});
  const StepBytes one = decode_step_bytes(c, totals, {.batch = 1, .context = 0, .formats = formats});
  const auto experts = static_cast<double>(c.moe.experts);
  return {.fixed = none.fixed_weights,
          .expert = static_cast<double>(at(totals.text, TensorKind::kExpert).bytes) / experts,
          .experts = experts,
          .experts_per_token = static_cast<double>(c.moe.experts_per_token),
          .state = (one.kda_state + one.conv) / 2,
          .draft_fixed = draft_step_weight_bytes(c, totals, 0),
          .draft_expert = static_cast<double>(at(totals.draft, TensorKind::kExpert).bytes) / experts};
}

}  // namespace lathe::models
