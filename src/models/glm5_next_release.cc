#include "models/glm5_next_release.h"

#include <fmt/format.h>

#include "base/check.h"

namespace lathe::models {
namespace {

using config::Json;

constexpr std::string_view kText = R"({
 "model_type": "glm5_next_text", "dtype": "bfloat16", "vocab_size": 154880, "hidden_size": 4096, "intermediate_size": 12288,
 "moe_intermediate_size": 2048, "num_hidden_layers": 45, "num_attention_heads": 64, "num_key_value_heads": 64, "head_dim": 0, "qk_head_dim": 256,
 "qk_nope_head_dim": 256, "qk_rope_head_dim": 0, "v_head_dim": 256, "q_lora_rank": 1536, "kv_lora_rank": 512, "mla_use_nope": true,
 "attention_bias": false, "hidden_act": "silu", "swiglu_limit": 10.0, "rms_norm_eps": 1e-5, "max_position_embeddings": 1048576,
 "n_routed_experts": 288, "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 1, "topk_group": 1, "norm_topk_prob": true,
 "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_router_dtype": "float32", "first_k_dense_replace": 3,
 "index_n_heads": 32, "index_head_dim": 128, "index_topk": 2048, "index_kpool": 4, "index_kpool_compress": true,
 "index_kpool_always_select_tail": true, "index_share_for_mtp_iteration": true, "indexer_rope_interleave": true, "mhc": true, "hc_mult": 4,
 "hc_eps": 1e-6, "hc_sinkhorn_iters": 20, "num_nextn_predict_layers": 1, "eos_token_id": [154820, 154827, 154829], "pad_token_id": 154820,
 "linear_attn_config": {"num_heads": 64, "head_dim": 128, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0}})";

constexpr std::string_view kTop = R"({
 "architectures": ["Glm5NextForConditionalGeneration"], "model_type": "glm5_next", "tie_word_embeddings": false, "image_token_id": 154854,
 "video_token_id": 154855, "image_start_token_id": 154830, "image_end_token_id": 154831, "video_start_token_id": 154832, "video_end_token_id": 154833,
 "transformers_version": "5.16.0",
 "vision_config": {"model_type": "glm5_next_vision", "depth": 24, "hidden_size": 1024, "num_heads": 16, "intermediate_size": 4096,
  "out_hidden_size": 4096, "projection_intermediate_size": 10240, "patch_size": 14, "temporal_patch_size": 2, "spatial_merge_size": 2, "image_size": 448,
  "in_channels": 3, "attention_bias": true, "hidden_act": "silu", "swiglu_limit": 10.0, "rms_norm_eps": 1e-5},
 "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}})";

Json parse(std::string_view text) {
  auto json = config::parse_json(text);
  LATHE_CHECK(json.has_value(), "{}", json.error().message);
  return *json;
}

/// Names of what stays BF16, without `language_model.`, as the release spells them.
Json::Array excluded_modules() {
  Json::Array out = {Json("lm_head"), Json("model.embed_tokens"), Json("model.visual.patch_embed.proj"), Json("model.layers.45.eh_proj")};
  for (int layer = 0; layer <= 45; ++layer) {
    const bool sparse = layer % 4 == 3 || layer == 45;
    for (const char* name : {"kv_b_proj", "indexer.wq_b", "indexer.wk", "indexer.weights_proj"}) {
      if (sparse) out.emplace_back(fmt::format("model.layers.{}.self_attn.{}", layer, name));
    }
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj", "b_proj", "f_a_proj", "f_b_proj", "g_a_proj", "g_b_proj"}) {
      if (!sparse) out.emplace_back(fmt::format("model.layers.{}.self_attn.{}", layer, name));
    }
    if (layer >= 3) out.emplace_back(fmt::format("model.layers.{}.mlp.gate", layer));
  }
  return out;
}

}  // namespace

Json glm5_next_release() {
  Json config = parse(kTop);
  Json text = parse(kText);
  Json::Array layers;
  Json::Array mlps;
  Json::Array indexers;
  Json::Array kda;
  Json::Array full;
  for (int layer = 0; layer < 45; ++layer) {
    const bool sparse = layer % 4 == 3;
    layers.emplace_back(sparse ? "deepseek_sparse_attention" : "linear_attention");
    mlps.emplace_back(layer < 3 ? "dense" : "sparse");
    indexers.emplace_back("full");
    (sparse ? full : kda).emplace_back(layer);
  }
  text.set("layer_types", std::move(layers));
  text.set("mlp_layer_types", std::move(mlps));
  text.set("indexer_types", std::move(indexers));
  Json linear = *text.find("linear_attn_config");
  linear.set("kda_layers", std::move(kda));
  linear.set("full_attn_layers", std::move(full));
  text.set("linear_attn_config", std::move(linear));
  config.set("text_config", std::move(text));
  Json quantization = *config.find("quantization_config");
  quantization.set("modules_to_not_convert", excluded_modules());
  config.set("quantization_config", std::move(quantization));
  return config;
}

}  // namespace lathe::models
