#include "models/glm5_next_describe.h"

#include <algorithm>

#include "base/file.h"
#include "models/glm5_next_cache.h"
#include "models/glm5_next_totals.h"

namespace lathe::models {
namespace {

using config::Json;

Json dimensions_json(const Glm5NextConfig& c) {
  Json::Object out{{"model_type", c.model_type},
                   {"vocabulary", c.vocab},
                   {"hidden", c.hidden},
                   {"layers", c.layers},
                   {"dense_width", c.intermediate},
                   {"max_positions", c.max_positions},
                   {"streams", c.mhc.streams},
                   {"kda_heads", c.kda.heads},
                   {"kda_head_dim", c.kda.head_dim},
                   {"conv_width", c.kda.conv_width},
                   {"mla_heads", c.mla.heads},
                   {"q_lora", c.mla.q_lora_rank},
                   {"kv_lora", c.mla.kv_lora_rank},
                   {"nope", c.mla.nope_dim},
                   {"value", c.mla.v_dim},
                   {"index_heads", c.indexer.heads},
                   {"index_head_dim", c.indexer.head_dim},
                   {"index_topk", c.indexer.topk_tokens},
                   {"kpool", c.indexer.kpool},
                   {"experts", c.moe.experts},
                   {"experts_per_token", c.moe.experts_per_token},
                   {"shared_experts", c.moe.shared_experts},
                   {"expert_width", c.moe.intermediate},
                   {"draft_layer", c.draft_layer},
                   {"vision_blocks", c.vision ? Json(c.vision->depth) : Json()}};
  return out;
}

Json totals_json(const TensorTotals& totals) {
  return Json::Object{{"tensors", totals.tensors},
                      {"fp8_matrices", totals.fp8_matrices},
                      {"int8_matrices", totals.int8_matrices},
                      {"parameters", totals.parameters},
                      {"bytes", totals.bytes}};
}

Json kinds_json(const Glm5NextTotals& totals) {
  Json::Object out;
  for (int kind = 0; kind < kTensorKinds; ++kind) {
    const auto which = static_cast<TensorKind>(kind);
    out.emplace_back(std::string(tensor_kind_name(which)), totals_json(totals.kind(which)));
  }
  return out;
}

Json layers_json(const Glm5NextConfig& c, const Glm5NextTotals& totals, const std::vector<FlopRow>& decode) {
  Json::Array out;
  for (size_t layer = 0; layer < totals.layers.size(); ++layer) {
    const bool draft = layer == static_cast<size_t>(c.layers);
    const TensorTotals all = sum(totals.layers[layer]);
    out.push_back(Json::Object{{"layer", static_cast<int64_t>(layer)},
                               {"mixer", std::string(draft ? "dsa (draft)" : mixer_name(c.mixers[layer]))},
                               {"ffn", std::string(draft ? "moe" : ffn_name(c.ffns[layer]))},
                               {"indexer", std::string(draft ? "full" : indexer_name(c.indexers[layer]))},
                               {"parameters", all.parameters},
                               {"bytes", all.bytes},
                               {"decode_flops", flops_of_layer(c, decode, static_cast<int64_t>(layer))}});
  }
  return out;
}

double total_flops(const std::vector<FlopRow>& rows) {
  double sum = 0;
  for (const FlopRow& row : rows) sum += row.per_layer * static_cast<double>(row.layers);
  return sum;
}

Json flops_json(const std::vector<FlopRow>& rows) {
  Json::Array parts;
  for (const FlopRow& row : rows) {
    parts.push_back(Json::Object{{"part", std::string(row.part)}, {"per_layer", row.per_layer}, {"layers", row.layers}});
  }
  return Json::Object{{"per_token", total_flops(rows)}, {"parts", std::move(parts)}};
}

Json step_json(const StepBytes& step, int64_t batch) {
  return Json::Object{{"batch", batch},
                      {"fixed_weights", step.fixed_weights},
                      {"expert_weights", step.expert_weights},
                      {"kda_state", step.kda_state},
                      {"conv", step.conv},
                      {"attention", step.attention},
                      {"total", step.total()}};
}

Json prefill_json(const PrefillBytes& bytes, int64_t chunk) {
  return Json::Object{{"chunk", chunk},
                      {"fixed_weights", bytes.fixed_weights},
                      {"head", bytes.head},
                      {"expert_weights", bytes.expert_weights},
                      {"kda_state", bytes.kda_state},
                      {"conv", bytes.conv},
                      {"attention", bytes.attention},
                      {"written", bytes.written},
                      {"total", bytes.total()}};
}

Json facts(const Glm5NextConfig& c, const Glm5NextTotals& totals, const DescribeOptions& options, int64_t context) {
  const CacheFormats formats = options.model.cache_formats();
  const bool expanded = options.model.prefill_mla == MlaPath::kExpanded;
  const int64_t chunk = std::min(options.chunk_tokens, context);
  const auto decode = flop_rows(c, {.context = context});
  const auto prefill = flop_rows(c, {.context = context, .prefill = true, .expanded = expanded});
  Json out = Json::Object{{"dimensions", dimensions_json(c)},
                          {"quantisation", quantization_text(c.quantization)},
                          {"cache_formats", cache_formats_text(formats)},
                          {"total", totals_json(totals.all())},
                          {"kinds", kinds_json(totals)}};
  out.set("layers", layers_json(c, totals, decode));
  out.set("flops_decode", flops_json(decode));
  out.set("flops_prefill", flops_json(prefill));
  out.set("decode_step_bytes",
          step_json(decode_step_bytes(
                        c, totals,
                        {.batch = options.batch, .context = context, .formats = formats, .replay_period = glm5_next_replay(c, options.model).period}),
                    options.batch));
  out.set("prefill_token_bytes", prefill_json(prefill_token_bytes(c, totals, {.context = context, .chunk = chunk, .formats = formats}), chunk));
  return out;
}

Result<Glm5NextTotals> stored_totals(const Glm5NextConfig& config, const std::string& directory) {
  LATHE_TRY(weights::Checkpoint checkpoint, base::file_content(weights::Checkpoint::open(directory)));
  LATHE_TRY(const Glm5NextWeights weights, base::file_content(bind_glm5_next(config, checkpoint)));
  return totals_from_weights(config, weights);
}

}  // namespace

Result<ModelDescription> describe_glm5_next(const std::string& path, const DescribeOptions& options) {
  LATHE_TRY_VOID(check_glm5_next_caches(options.model));
  LATHE_TRY(const ParsedConfig parsed, read_glm5_next_config(path));
  const Glm5NextConfig& c = parsed.config;
  LATHE_TRY_VOID(check_glm5_next_replay(c, options.model));
  ModelDescription out;
  out.context = options.context == 0 || (options.context_at_most && options.context > c.max_positions) ? c.max_positions : options.context;
  if (out.context < 1 || out.context > c.max_positions) {
    return err(Code::kInvalidArgument, "context is {} tokens, the model takes 1 to {}", out.context, c.max_positions);
  }
  out.warnings = parsed.warnings;
  out.info = {.family = "glm5_next",
              .layers = c.layers,
              .hidden = c.hidden,
              .vocabulary = c.vocab,
              .max_positions = c.max_positions,
              .block_tokens_multiple = c.indexer.kpool,
              .has_draft = options.model.draft && c.draft_layer,
              .has_vision = options.model.vision && c.vision.has_value(),
              .image_token = c.tokens.image,
              .stop_tokens = c.tokens.eos};
  LATHE_TRY(const Glm5NextShards shards, resolve_shards(c, {}, {}));
  out.cache_families = glm5_next_cache_families(c, shards, options.model);
  out.weights =
      base::is_directory(path) && (base::file_exists(path + "/model.safetensors") || base::file_exists(path + "/model.safetensors.index.json"));
  Glm5NextTotals totals;
  if (out.weights) {
    LATHE_TRY(totals, stored_totals(c, path));
  } else {
    totals = totals_from_config(c);
  }
  out.facts = facts(c, totals, options, out.context);
  return out;
}

}  // namespace lathe::models
