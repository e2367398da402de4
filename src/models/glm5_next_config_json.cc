// A config written from its values: what the reader in glm5_next_config.cc takes, under the released names.

#include <fmt/format.h>

#include <charconv>

#include "models/glm5_next_config.h"

namespace lathe::models {
namespace {

using config::Json;

/// The shortest decimals that give the same float: 1e-05, not 9.999999747378752e-06.
Json number(float value) {
  const std::string text = fmt::format("{}", value);
  double out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

Json ids(const std::vector<TokenId>& tokens) {
  Json::Array out;
  for (const TokenId id : tokens) out.emplace_back(static_cast<int64_t>(id));
  return out;
}

/// One name for each element of a list.
template <class T, class Name>
Json names(const std::vector<T>& list, Name name) {
  Json::Array out;
  for (const T& element : list) out.emplace_back(name(element));
  return out;
}

Json linear_attention(const Glm5NextConfig& c) {
  Json::Array kda;
  Json::Array full;
  for (size_t layer = 0; layer < c.mixers.size(); ++layer)
    (c.mixers[layer] == MixerKind::kKda ? kda : full).emplace_back(static_cast<int64_t>(layer));
  Json out = Json::Object{{"num_heads", c.kda.heads}, {"head_dim", c.kda.head_dim}, {"short_conv_kernel_size", c.kda.conv_width}};
  out.set("gate_lower_bound", c.kda.gate_lower_bound ? number(*c.kda.gate_lower_bound) : Json(nullptr));
  if (!c.kda.gate_lower_bound) out.set("safe_gate", false);
  out.set("kda_layers", std::move(kda));
  out.set("full_attn_layers", std::move(full));
  return out;
}

void set_attention(const Glm5NextConfig& c, Json& text) {
  text.set("num_attention_heads", c.mla.heads);
  text.set("num_key_value_heads", c.mla.heads);
  text.set("head_dim", 0);
  text.set("qk_head_dim", c.mla.nope_dim);
  text.set("qk_nope_head_dim", c.mla.nope_dim);
  text.set("qk_rope_head_dim", 0);
  text.set("v_head_dim", c.mla.v_dim);
  text.set("q_lora_rank", c.mla.q_lora_rank);
  text.set("kv_lora_rank", c.mla.kv_lora_rank);
  text.set("mla_use_nope", true);
  text.set("attention_bias", false);
  text.set("layer_types", names(c.mixers, [](MixerKind kind) { return kind == MixerKind::kKda ? "linear_attention" : "deepseek_sparse_attention"; }));
  text.set("linear_attn_config", linear_attention(c));
  text.set("indexer_types", names(c.indexers, [](IndexerKind kind) { return kind == IndexerKind::kShared ? "shared" : "full"; }));
  text.set("index_n_heads", c.indexer.heads);
  text.set("index_head_dim", c.indexer.head_dim);
  text.set("index_topk", c.indexer.topk_tokens);
  text.set("index_kpool", c.indexer.kpool);
  text.set("index_kpool_compress", true);
  text.set("index_kpool_always_select_tail", c.indexer.always_select_tail);
  text.set("index_share_for_mtp_iteration", true);
}

void set_ffn(const Glm5NextConfig& c, Json& text) {
  text.set("intermediate_size", c.intermediate);
  text.set("mlp_layer_types", names(c.ffns, [](FfnKind kind) { return kind == FfnKind::kDense ? "dense" : "sparse"; }));
  text.set("moe_intermediate_size", c.moe.intermediate);
  text.set("n_routed_experts", c.moe.experts);
  text.set("n_shared_experts", c.moe.shared_experts);
  text.set("num_experts_per_tok", c.moe.experts_per_token);
  text.set("n_group", c.moe.groups);
  text.set("topk_group", c.moe.groups_kept);
  text.set("norm_topk_prob", c.moe.normalise_topk);
  text.set("routed_scaling_factor", number(c.moe.routed_scale));
  text.set("scoring_func", "sigmoid");
  text.set("topk_method", "noaux_tc");
  text.set("hidden_act", "silu");
  text.set("swiglu_limit", number(c.swiglu_limit));
}

std::string_view dtype_word(DType dtype) { return dtype == DType::kF32 ? "float32" : dtype == DType::kF16 ? "float16" : "bfloat16"; }

Json text_config(const Glm5NextConfig& c) {
  Json text = Json::Object{{"model_type", "glm5_next_text"},
                           {"dtype", dtype_word(c.dtype)},
                           {"vocab_size", c.vocab},
                           {"hidden_size", c.hidden},
                           {"num_hidden_layers", c.layers},
                           {"max_position_embeddings", c.max_positions},
                           {"rms_norm_eps", number(c.rms_norm_eps)},
                           {"num_nextn_predict_layers", c.draft_layer ? 1 : 0}};
  set_attention(c, text);
  set_ffn(c, text);
  text.set("mhc", true);
  text.set("hc_mult", c.mhc.streams);
  text.set("hc_eps", number(c.mhc.eps));
  text.set("hc_sinkhorn_iters", c.mhc.sinkhorn_iterations);
  text.set("eos_token_id", ids(c.tokens.eos));
  if (c.tokens.pad >= 0) text.set("pad_token_id", static_cast<int64_t>(c.tokens.pad));
  return text;
}

Json vision_config(const VisionConfig& v) {
  return Json::Object{{"model_type", "glm5_next_vision"},
                      {"depth", v.depth},
                      {"hidden_size", v.hidden},
                      {"num_heads", v.heads},
                      {"intermediate_size", v.intermediate},
                      {"out_hidden_size", v.out_hidden},
                      {"projection_intermediate_size", v.projection_intermediate},
                      {"patch_size", v.patch},
                      {"temporal_patch_size", v.temporal_patch},
                      {"spatial_merge_size", v.merge},
                      {"in_channels", v.channels},
                      {"attention_bias", true},
                      {"hidden_act", "silu"},
                      {"swiglu_limit", number(v.swiglu_limit)},
                      {"rms_norm_eps", number(v.rms_norm_eps)},
                      {"rope_parameters", Json::Object{{"rope_theta", number(v.rope_theta)}}}};
}

}  // namespace

Json glm5_next_config_json(const Glm5NextConfig& c) {
  Json out = Json::Object{{"architectures", Json::Array{Json("Glm5NextForConditionalGeneration")}},
                          {"model_type", "glm5_next"},
                          {"tie_word_embeddings", false},
                          {"dtype", dtype_word(c.dtype)}};
  const std::pair<const char*, TokenId> tokens[] = {{"image_token_id", c.tokens.image},
                                                    {"video_token_id", c.tokens.video},
                                                    {"image_start_token_id", c.tokens.image_start},
                                                    {"image_end_token_id", c.tokens.image_end},
                                                    {"video_start_token_id", c.tokens.video_start},
                                                    {"video_end_token_id", c.tokens.video_end}};
  for (const auto& [name, id] : tokens) {
    if (id >= 0) out.set(name, static_cast<int64_t>(id));
  }
  out.set("text_config", text_config(c));
  if (c.vision) out.set("vision_config", vision_config(*c.vision));
  if (c.quantization.weights != WeightFormat::kPlain) out.set("quantization_config", quantization_config_json(c.quantization));
  return out;
}

}  // namespace lathe::models
