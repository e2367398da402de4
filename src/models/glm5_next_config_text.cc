// The text part of a glm5_next config.

#include <fmt/format.h>

#include "base/limits.h"
#include "models/glm5_next_config_parts.h"
#include "models/glm5_next_schedule.h"

namespace lathe::models {
namespace {

using base::kLimits;
using config::Json;

constexpr int64_t kDefaultPositions = 1 << 20;
constexpr double kDefaultGateBound = -5.0;

/// −5, another bound, or nothing for the softplus gate. Nothing at all is an error: a null means softplus as linear_lower_bound,
/// but as linear_attn_config.gate_lower_bound it means softplus only where safe_gate is false, else −5.
void read_gate_bound(ConfigReader& text, ConfigReader* dict, KdaConfig& kda) {
  const Json* flat = text.find_raw({"linear_lower_bound"});
  const Json* nested = dict != nullptr ? dict->find_raw({"gate_lower_bound", "lower_bound"}) : nullptr;
  if (flat == nullptr && dict == nullptr) text.fail("linear_lower_bound is missing and has no safe default");
  const auto bound_of = [&](const Json* value, std::string_view name) -> std::optional<float> {
    if (value->is_null()) return std::nullopt;
    if (!value->is_number() || !(value->as_double() < 0 && value->as_double() >= -100)) {
      text.fail("{} is {}, expected a number from -100 to below 0, or null", name, value->dump());
      return std::nullopt;
    }
    return static_cast<float>(value->as_double());
  };
  std::optional<float> from_dict;
  if (dict != nullptr) {
    if (nested != nullptr) from_dict = bound_of(nested, "linear_attn_config.gate_lower_bound");
    const Json* safe = dict->find({"safe_gate"});
    const bool safe_gate = safe == nullptr || dict->required_bool({"safe_gate"});
    if (!from_dict && safe_gate) from_dict = static_cast<float>(kDefaultGateBound);
    kda.gate_lower_bound = from_dict;
  }
  if (flat != nullptr) {
    kda.gate_lower_bound = bound_of(flat, "linear_lower_bound");
    if (dict != nullptr && nested != nullptr && kda.gate_lower_bound != from_dict) {
      text.fail("linear_lower_bound is {}, but linear_attn_config.gate_lower_bound is {}", flat->dump(), nested->dump());
    }
    if (dict != nullptr && nested == nullptr && kda.gate_lower_bound != from_dict) text.warn("linear_lower_bound wins over linear_attn_config");
  }
}

/// What the size of a linear layer is called on its own and in linear_attn_config.
struct LinearName {
  std::string_view flat_name, dict_name;
};

/// One size that the flat names or the dict give; both must agree.
int64_t linear_size(ConfigReader& text, ConfigReader* dict, const LinearName& name, IntRange range) {
  const auto [flat_name, dict_name] = name;
  const Json* flat = text.find({flat_name});
  const Json* nested = dict != nullptr ? dict->find({dict_name}) : nullptr;
  if (flat == nullptr && dict != nullptr) return dict->required_int({dict_name}, range);
  const int64_t value = text.required_int({flat_name}, range);
  if (nested != nullptr && dict->required_int({dict_name}, range) != value) {
    text.fail("{} is {}, but linear_attn_config.{} is {}", flat_name, value, dict_name, nested->dump());
  }
  return value;
}

/// Sizes and gate of the linear layers; the layer lists that the dict may hold.
Result<LayerLists> read_kda(ConfigReader& text, Glm5NextConfig& config, std::vector<std::string>& warnings) {
  LayerLists lists;
  const Json* json = text.find({"linear_attn_config"});
  if (json != nullptr && !json->is_object())
    return err(Code::kInvalidArgument, "text_config.linear_attn_config is {}, expected an object", json->dump());
  std::optional<ConfigReader> dict;
  if (json != nullptr) dict.emplace(*json, "text_config.linear_attn_config.", warnings);
  ConfigReader* inner = dict ? &*dict : nullptr;
  config.kda.heads = linear_size(text, inner, {"linear_num_heads", "num_heads"}, {1, kLimits.model_heads});
  config.kda.head_dim = linear_size(text, inner, {"linear_head_dim", "head_dim"}, {1, kLimits.model_head_dim});
  config.kda.conv_width = linear_size(text, inner, {"linear_conv_kernel_dim", "short_conv_kernel_size"}, {1, kLimits.model_conv_width});
  read_gate_bound(text, inner, config.kda);
  if (dict) {
    lists.kda_layers = dict->optional_ints({"kda_layers"}, {0, kLimits.model_layers});
    lists.full_layers = dict->optional_ints({"full_attn_layers"}, {0, kLimits.model_layers});
    dict->warn_about_unknown_keys();
    LATHE_TRY_VOID(dict->status());
  }
  return lists;
}

void read_mla_and_indexer(ConfigReader& text, Glm5NextConfig& config) {
  config.mla.heads = text.required_int({"num_attention_heads"}, {1, kLimits.model_heads});
  config.mla.q_lora_rank = text.required_int({"q_lora_rank"}, {1, kLimits.model_width});
  config.mla.kv_lora_rank = text.required_int({"kv_lora_rank"}, {1, kLimits.model_width});
  config.mla.nope_dim = text.required_int({"qk_nope_head_dim"}, {1, kLimits.model_head_dim});
  config.mla.v_dim = text.required_int({"v_head_dim"}, {1, kLimits.model_head_dim});
  text.only("num_key_value_heads", config.mla.heads);
  text.only("qk_head_dim", config.mla.nope_dim);
  text.only("qk_rope_head_dim", 0);
  for (const std::string_view name : {"mla_use_nope", "mla_nope"}) text.only(name, true);
  text.only("attention_bias", false);

  config.indexer.heads = text.required_int({"index_n_heads"}, {1, kLimits.model_heads});
  config.indexer.head_dim = text.required_int({"index_head_dim"}, {1, kLimits.model_head_dim});
  config.indexer.topk_tokens = text.required_int({"index_topk"}, {1, kLimits.model_topk});
  config.indexer.kpool = text.required_int({"index_kpool"}, {1, kLimits.model_pool});
  config.indexer.always_select_tail = text.bool_or({"index_kpool_always_select_tail"}, true);
  text.only("index_kpool_compress", true);
  if (config.indexer.topk_tokens % config.indexer.kpool != 0) {
    text.fail("index_topk is {}, expected a multiple of index_kpool {}", config.indexer.topk_tokens, config.indexer.kpool);
  }
}

void read_moe(ConfigReader& text, Glm5NextConfig& config) {
  MoeConfig& moe = config.moe;
  moe.experts = text.required_int({"n_routed_experts", "num_local_experts", "num_experts"}, {1, kLimits.model_experts});
  moe.experts_per_token = text.required_int({"num_experts_per_tok", "num_experts_per_token"}, {1, moe.experts});
  moe.intermediate = text.required_int({"moe_intermediate_size"}, {1, kLimits.model_width});
  moe.routed_scale = static_cast<float>(text.required_number({"routed_scaling_factor"}, {1e-6, 1e6}));
  moe.normalise_topk = text.required_bool({"norm_topk_prob", "moe_renormalize"});
  moe.shared_experts = text.int_or({"n_shared_experts"}, 1, {1, kLimits.model_shared_experts});
  moe.groups = text.int_or({"n_group"}, 1, {1, moe.experts});
  moe.groups_kept = text.int_or({"topk_group"}, 1, {1, moe.groups});
  text.only("scoring_func", "sigmoid");
  text.only("topk_method", "noaux_tc");
  const int64_t group_size = moe.experts / moe.groups;
  if (moe.experts % moe.groups != 0) text.fail("n_routed_experts is {}, expected a multiple of n_group {}", moe.experts, moe.groups);
  if (moe.groups > 1 && group_size < 2) text.fail("n_group is {}, a group score needs at least 2 of the {} experts", moe.groups, moe.experts);
  if (moe.experts_per_token > moe.groups_kept * group_size) {
    text.fail("num_experts_per_tok is {}, but topk_group {} of n_group {} keeps only {} of {} experts", moe.experts_per_token, moe.groups_kept,
              moe.groups, moe.groups_kept * group_size, moe.experts);
  }
}

void read_mhc(ConfigReader& text, Glm5NextConfig& config) {
  config.mhc.streams = text.required_int({"hc_mult", "mhc_num_residual_streams"}, {1, kLimits.model_small});
  config.mhc.sinkhorn_iterations = text.required_int({"hc_sinkhorn_iters", "mhc_sinkhorn_iterations"}, {1, kLimits.model_iterations});
  config.mhc.eps = static_cast<float>(text.required_number({"hc_eps"}, {0, 0.1}));
  text.only("mhc", true);
  text.only("mhc_post_mult_value", 2.0);
}

/// Keys of the text part that say nothing about inference, or repeat what other keys say.
void ignore_text_keys(ConfigReader& text) {
  text.ignore({"model_type",
               "architectures",
               "transformers_version",
               "_name_or_path",
               "head_dim",
               "attention_dropout",
               "initializer_range",
               "use_cache",
               "output_router_logits",
               "router_aux_loss_coef",
               "bos_token_id",
               "indexer_rope_interleave",
               "rope_parameters",
               "rope_scaling",
               "rope_theta",
               "mhc_tau",
               "mhc_no_norm_weight",
               "hres_vwnstyle",
               "pretraining_tp",
               "ep_size",
               "moe_layer_freq"});
  text.only("moe_router_dtype", "float32");
  text.only("tie_word_embeddings", false);
  text.only("hidden_act", "silu");
}

}  // namespace

DType read_dtype(ConfigReader& reader, DType fallback) {
  const std::optional<std::string> name = reader.optional_string({"dtype", "torch_dtype"});
  if (!name) return fallback;
  if (*name == "bfloat16") return DType::kBF16;
  if (*name == "float16") return DType::kF16;
  if (*name == "float32") return DType::kF32;
  reader.warn("dtype '{}' is not known, the stored tensors decide", *name);
  return fallback;
}

Result<void> read_text_config(const Json& json, const std::string& section, ParsedConfig& out) {
  Glm5NextConfig& config = out.config;
  ConfigReader text(json, section, out.warnings);
  ignore_text_keys(text);
  config.vocab = text.required_int({"vocab_size"}, {1, kLimits.model_vocabulary});
  config.hidden = text.required_int({"hidden_size"}, {1, kLimits.model_width});
  config.intermediate = text.required_int({"intermediate_size"}, {1, kLimits.model_width});
  config.layers = text.required_int({"num_hidden_layers"}, {1, kLimits.model_layers});
  config.max_positions = text.int_or({"max_position_embeddings"}, kDefaultPositions, {1, kLimits.model_positions});
  config.rms_norm_eps = static_cast<float>(text.required_number({"rms_norm_eps"}, kEpsRange));
  config.swiglu_limit = static_cast<float>(text.required_number({"swiglu_limit"}, kLimitRange));
  config.dtype = read_dtype(text, DType::kBF16);
  read_mla_and_indexer(text, config);
  read_moe(text, config);
  read_mhc(text, config);
  config.draft_layer = text.int_or({"num_nextn_predict_layers"}, 0, {0, 1}) == 1;
  if (const Json* share = text.find({"index_share_for_mtp_iteration"}); share != nullptr && *share != Json(true)) {
    text.fail("index_share_for_mtp_iteration is {}, only true is implemented: later steps of a drafting round keep the keys chosen by its first step",
              share->dump());
  }
  const IntRange ids = {0, config.vocab - 1};
  for (const int64_t id : text.int_or_list({"eos_token_id"}, ids)) config.tokens.eos.push_back(static_cast<TokenId>(id));
  if (text.find({"pad_token_id"}) != nullptr) config.tokens.pad = static_cast<TokenId>(text.required_int({"pad_token_id"}, ids));
  const auto lists = read_kda(text, config, out.warnings);
  LATHE_TRY_VOID(text.status());  // the schedule needs valid sizes
  if (!lists) return base::forward_error(lists);
  read_schedule(text, *lists, config);
  text.ignore({"vision_config", "quantization_config"});  // of a text-only config: read by the caller
  text.warn_about_unknown_keys();
  return text.status();
}

}  // namespace lathe::models
