#include "models/glm5_next_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/file.h"
#include "base/limits.h"
#include "models/config_reader.h"
#include "models/glm5_next_schedule.h"

namespace lathe::models {
namespace {

using config::Json;

// Bounds far beyond every real model, so low that a product of any three of them fits int64.
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxLayers = 1 << 10;
constexpr int64_t kMaxHeads = 1 << 14;
constexpr int64_t kMaxHeadDim = 1 << 14;
constexpr int64_t kMaxExperts = 1 << 14;
constexpr int64_t kMaxSmall = 64;  // streams, patch edges in merge units, channels
constexpr int64_t kMaxTopk = int64_t{1} << 24;
constexpr int64_t kMaxPositions = int64_t{1} << 31;
constexpr int64_t kDefaultPositions = 1 << 20;
constexpr int64_t kMaxTensors = 1 << 22;
constexpr FloatRange kEpsRange = {1e-30, 0.1};
constexpr FloatRange kLimitRange = {1e-6, 1e6};
constexpr double kDefaultGateBound = -5.0;

constexpr std::array<std::string_view, 2> kMultimodalTypes = {"glm5_next", "glm5_next_vl"};
constexpr std::array<std::string_view, 2> kTextTypes = {"glm5_next_text", "glm5_next_vl_text"};

bool contains(std::span<const std::string_view> list, std::string_view text) { return std::find(list.begin(), list.end(), text) != list.end(); }

/// −5, another bound, or nothing for the softplus gate. Nothing at all is an error: the two forms differ in what a null means (spec §2.9).
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

/// One size that the flat names or the dict give; both must agree.
int64_t linear_size(ConfigReader& text, ConfigReader* dict, std::string_view flat_name, std::string_view dict_name, IntRange range) {
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
  config.kda.heads = linear_size(text, inner, "linear_num_heads", "num_heads", {1, kMaxHeads});
  config.kda.head_dim = linear_size(text, inner, "linear_head_dim", "head_dim", {1, kMaxHeadDim});
  config.kda.conv_width = linear_size(text, inner, "linear_conv_kernel_dim", "short_conv_kernel_size", {1, 256});
  read_gate_bound(text, inner, config.kda);
  if (dict) {
    lists.kda_layers = dict->optional_ints({"kda_layers"}, {0, kMaxLayers});
    lists.full_layers = dict->optional_ints({"full_attn_layers"}, {0, kMaxLayers});
    dict->warn_about_unknown_keys();
    LATHE_TRY_VOID(dict->status());
  }
  return lists;
}

void read_mla_and_indexer(ConfigReader& text, Glm5NextConfig& config) {
  config.mla.heads = text.required_int({"num_attention_heads"}, {1, kMaxHeads});
  config.mla.q_lora_rank = text.required_int({"q_lora_rank"}, {1, kMaxWidth});
  config.mla.kv_lora_rank = text.required_int({"kv_lora_rank"}, {1, kMaxWidth});
  config.mla.nope_dim = text.required_int({"qk_nope_head_dim"}, {1, kMaxHeadDim});
  config.mla.v_dim = text.required_int({"v_head_dim"}, {1, kMaxHeadDim});
  text.only("num_key_value_heads", config.mla.heads);
  text.only("qk_head_dim", config.mla.nope_dim);
  text.only("qk_rope_head_dim", 0);
  for (const std::string_view name : {"mla_use_nope", "mla_nope"}) text.only(name, true);
  text.only("attention_bias", false);

  config.indexer.heads = text.required_int({"index_n_heads"}, {1, kMaxHeads});
  config.indexer.head_dim = text.required_int({"index_head_dim"}, {1, kMaxHeadDim});
  config.indexer.topk_tokens = text.required_int({"index_topk"}, {1, kMaxTopk});
  config.indexer.kpool = text.required_int({"index_kpool"}, {1, 1024});
  config.indexer.always_select_tail = text.bool_or({"index_kpool_always_select_tail"}, true);
  text.only("index_kpool_compress", true);
  if (config.indexer.topk_tokens % config.indexer.kpool != 0) {
    text.fail("index_topk is {}, expected a multiple of index_kpool {}", config.indexer.topk_tokens, config.indexer.kpool);
  }
}

void read_moe(ConfigReader& text, Glm5NextConfig& config) {
  MoeConfig& moe = config.moe;
  moe.experts = text.required_int({"n_routed_experts", "num_local_experts", "num_experts"}, {1, kMaxExperts});
  moe.experts_per_token = text.required_int({"num_experts_per_tok", "num_experts_per_token"}, {1, moe.experts});
  moe.intermediate = text.required_int({"moe_intermediate_size"}, {1, kMaxWidth});
  moe.routed_scale = static_cast<float>(text.required_number({"routed_scaling_factor"}, {1e-6, 1e6}));
  moe.normalise_topk = text.required_bool({"norm_topk_prob", "moe_renormalize"});
  moe.shared_experts = text.int_or({"n_shared_experts"}, 1, {1, 1024});
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
  config.mhc.streams = text.required_int({"hc_mult", "mhc_num_residual_streams"}, {1, kMaxSmall});
  config.mhc.sinkhorn_iterations = text.required_int({"hc_sinkhorn_iters", "mhc_sinkhorn_iterations"}, {1, 1000});
  config.mhc.eps = static_cast<float>(text.required_number({"hc_eps"}, {0, 0.1}));
  text.only("mhc", true);
  text.only("mhc_post_mult_value", 2.0);
}

DType read_dtype(ConfigReader& reader, DType fallback) {
  const std::optional<std::string> name = reader.optional_string({"dtype", "torch_dtype"});
  if (!name) return fallback;
  if (*name == "bfloat16") return DType::kBF16;
  if (*name == "float16") return DType::kF16;
  if (*name == "float32") return DType::kF32;
  reader.warn("dtype '{}' is not known, the stored tensors decide", *name);
  return fallback;
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

Result<void> read_text(const Json& json, const std::string& section, ParsedConfig& out) {
  Glm5NextConfig& config = out.config;
  ConfigReader text(json, section, out.warnings);
  ignore_text_keys(text);
  config.vocab = text.required_int({"vocab_size"}, {1, kMaxVocab});
  config.hidden = text.required_int({"hidden_size"}, {1, kMaxWidth});
  config.intermediate = text.required_int({"intermediate_size"}, {1, kMaxWidth});
  config.layers = text.required_int({"num_hidden_layers"}, {1, kMaxLayers});
  config.max_positions = text.int_or({"max_position_embeddings"}, kDefaultPositions, {1, kMaxPositions});
  config.rms_norm_eps = static_cast<float>(text.required_number({"rms_norm_eps"}, kEpsRange));
  config.swiglu_limit = static_cast<float>(text.required_number({"swiglu_limit"}, kLimitRange));
  config.dtype = read_dtype(text, DType::kBF16);
  read_mla_and_indexer(text, config);
  read_moe(text, config);
  read_mhc(text, config);
  config.draft_layer = text.int_or({"num_nextn_predict_layers"}, 0, {0, 1}) == 1;
  if (text.find({"index_share_for_mtp_iteration"}) != nullptr) {
    config.share_draft_selection = text.required_bool({"index_share_for_mtp_iteration"});
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

Result<void> read_vision(const Json& json, ParsedConfig& out) {
  if (!json.is_object()) return err(Code::kInvalidArgument, "vision_config is {}, expected an object", json.dump());
  ConfigReader reader(json, "vision_config.", out.warnings);
  VisionConfig vision;
  vision.depth = reader.required_int({"depth"}, {1, kMaxLayers});
  vision.hidden = reader.required_int({"hidden_size"}, {1, kMaxWidth});
  vision.heads = reader.required_int({"num_heads"}, {1, kMaxHeads});
  vision.intermediate = reader.required_int({"intermediate_size"}, {1, kMaxWidth});
  vision.out_hidden = reader.required_int({"out_hidden_size"}, {1, kMaxWidth});
  vision.projection_intermediate = reader.required_int({"projection_intermediate_size"}, {1, kMaxWidth});
  vision.patch = reader.required_int({"patch_size"}, {1, kMaxSmall});
  vision.temporal_patch = reader.required_int({"temporal_patch_size"}, {1, kMaxSmall});
  vision.merge = reader.required_int({"spatial_merge_size"}, {1, kMaxSmall});
  vision.channels = reader.required_int({"in_channels"}, {1, kMaxSmall});
  vision.swiglu_limit = static_cast<float>(reader.required_number({"swiglu_limit"}, kLimitRange));
  vision.rms_norm_eps = static_cast<float>(reader.required_number({"rms_norm_eps"}, kEpsRange));
  reader.only("attention_bias", true);
  reader.only("hidden_act", "silu");
  reader.ignore({"model_type", "dtype", "torch_dtype", "image_size", "attention_dropout", "initializer_range"});
  if (const Json* rope = reader.find({"rope_parameters"}); rope != nullptr && rope->find("rope_theta") != nullptr) {
    const Json& theta = *rope->find("rope_theta");
    if (theta.is_number() && theta.as_double() > 1 && theta.as_double() < 1e12) {
      vision.rope_theta = static_cast<float>(theta.as_double());
    } else {
      reader.fail("rope_parameters.rope_theta is {}, expected a number above 1", theta.dump());
    }
  }
  if (vision.hidden % vision.heads != 0 || vision.head_dim() % 4 != 0) {
    reader.fail("hidden_size is {} with num_heads {}, expected a head size that is a multiple of 4 (two axes of rotated pairs)", vision.hidden,
                vision.heads);
  }
  if (vision.out_hidden != out.config.hidden) {
    reader.fail("out_hidden_size is {}, expected text_config.hidden_size {}", vision.out_hidden, out.config.hidden);
  }
  reader.warn_about_unknown_keys();
  LATHE_TRY_VOID(reader.status());
  out.config.vision = vision;
  return {};
}

Result<void> read_quantization(const Json& json, ParsedConfig& out) {
  if (!json.is_object()) return err(Code::kInvalidArgument, "quantization_config is {}, expected an object", json.dump());
  ConfigReader reader(json, "quantization_config.", out.warnings);
  if (!reader.optional_string({"quant_method"})) reader.fail("quant_method is missing, expected \"fp8\"");
  reader.only("quant_method", "fp8");
  for (const std::string_view name : {"fmt", "quant_fmt"}) reader.only(name, "e4m3");
  reader.only("activation_scheme", "dynamic");
  reader.only("weight_block_size", Json::Array{Json(128), Json(128)});
  out.config.quantization.fp8 = true;
  const auto excluded = reader.optional_strings({"modules_to_not_convert", "ignored_layers"});
  if (excluded) out.config.quantization.modules_to_not_convert = *excluded;
  reader.warn_about_unknown_keys();
  return reader.status();
}

/// Ids that an image processor inserts or looks for: required where there is a vision tower.
void read_image_tokens(ConfigReader& top, Glm5NextConfig& config) {
  struct Entry {
    const char* key;
    TokenId SpecialTokens::* id;
  };
  constexpr Entry kEntries[] = {{"image_token_id", &SpecialTokens::image},
                                {"video_token_id", &SpecialTokens::video},
                                {"image_start_token_id", &SpecialTokens::image_start},
                                {"image_end_token_id", &SpecialTokens::image_end},
                                {"video_start_token_id", &SpecialTokens::video_start},
                                {"video_end_token_id", &SpecialTokens::video_end}};
  for (const Entry& entry : kEntries) {
    if (config.vision || top.find({entry.key}) != nullptr) {
      config.tokens.*entry.id = static_cast<TokenId>(top.required_int({entry.key}, {0, config.vocab - 1}));
    }
  }
}

/// Bounds of the whole model, in floating point because the exact product may not fit.
Result<void> check_size(const Glm5NextConfig& config) {
  const auto d = [](int64_t value) { return static_cast<double>(value); };
  const double hidden = d(config.hidden);
  const double kda = hidden * d(config.kda.channels()) * 4;
  const double dsa =
      d(config.mla.heads) * (d(config.mla.nope_dim) + d(config.mla.v_dim)) * (d(config.mla.q_lora_rank) + d(config.mla.kv_lora_rank) + hidden);
  const double indexer = d(config.indexer.heads) * d(config.indexer.head_dim) * d(config.mla.q_lora_rank);
  const double moe = d(config.moe.experts + config.moe.shared_experts) * d(config.moe.intermediate) * hidden * 3;
  const double mhc = 2 * d(config.mhc.mix_rows()) * d(config.mhc.streams) * hidden;
  const double layer = kda + dsa + indexer + moe + mhc + hidden * d(config.intermediate) * 3;
  double total = layer * d(config.layers + 1) + 2 * d(config.vocab) * hidden;
  if (config.vision) {
    const VisionConfig& v = *config.vision;
    const double vision_hidden = d(v.hidden);
    const double outputs = d(v.out_hidden) * (vision_hidden * d(v.merge) * d(v.merge) + d(v.out_hidden) + 3 * d(v.projection_intermediate));
    total += d(v.depth) * vision_hidden * (4 * vision_hidden + 3 * d(v.intermediate)) + vision_hidden * d(v.patch_values()) + outputs;
  }
  if (total > d(kMaxParameters))
    return err(Code::kInvalidArgument, "the sizes describe a model of {:.3g} parameters, the limit is {:.3g}", total, d(kMaxParameters));
  const double tensors = d(config.layers + 1) * (d(config.moe.experts) * 3 + 64);
  if (tensors > d(kMaxTensors))
    return err(Code::kInvalidArgument, "the sizes describe a model of {:.3g} tensors, the limit is {}", tensors, kMaxTensors);
  return {};
}

Result<void> check_model_type(const Json& json, std::string_view where, std::span<const std::string_view> supported) {
  const Json* type = json.find("model_type");
  if (type == nullptr || contains(supported, type->is_string() ? type->as_string() : "")) return {};
  return err(Code::kUnimplemented, "{}model_type is {}, supported are {}", where, type->dump(), fmt::join(supported, ", "));
}

Result<void> read_multimodal(const Json& json, ParsedConfig& out) {
  constexpr std::array<std::string_view, 2> kVisionTypes = {"glm5_next_vision", "glm5_next_vl_vision"};
  const Json* text = json.find("text_config");
  if (text == nullptr || !text->is_object()) {
    return err(Code::kInvalidArgument, "text_config is {}, expected an object", text == nullptr ? "missing" : text->kind_name());
  }
  LATHE_TRY_VOID(check_model_type(*text, "text_config.", kTextTypes));
  LATHE_TRY_VOID(read_text(*text, "text_config.", out));
  ConfigReader top(json, "", out.warnings);
  if (const Json* vision = top.find({"vision_config"}); vision != nullptr) {
    LATHE_TRY_VOID(check_model_type(*vision, "vision_config.", kVisionTypes));
    LATHE_TRY_VOID(read_vision(*vision, out));
  } else {
    top.warn("vision_config is missing: the model takes no images");
  }
  read_image_tokens(top, out.config);
  out.config.dtype = read_dtype(top, out.config.dtype);
  if (const Json* quantization = top.find({"quantization_config"})) LATHE_TRY_VOID(read_quantization(*quantization, out));
  const IntRange ids = {0, out.config.vocab - 1};
  if (out.config.tokens.eos.empty()) {
    for (const int64_t id : top.int_or_list({"eos_token_id"}, ids)) out.config.tokens.eos.push_back(static_cast<TokenId>(id));
  }
  if (out.config.tokens.pad < 0 && top.find({"pad_token_id"}) != nullptr) {
    out.config.tokens.pad = static_cast<TokenId>(top.required_int({"pad_token_id"}, ids));
  }
  top.only("tie_word_embeddings", false);
  top.ignore({"model_type", "architectures", "transformers_version", "text_config", "eos_token_id", "pad_token_id", "bos_token_id", "_name_or_path",
              "initializer_range"});
  top.warn_about_unknown_keys();
  return top.status();
}

}  // namespace

std::string_view mixer_name(MixerKind kind) { return kind == MixerKind::kKda ? "kda" : "dsa"; }
std::string_view ffn_name(FfnKind kind) { return kind == FfnKind::kDense ? "dense" : "moe"; }
std::string_view indexer_name(IndexerKind kind) {
  switch (kind) {
    case IndexerKind::kNone: return "none";
    case IndexerKind::kFull: return "full";
    case IndexerKind::kShared: return "shared";
  }
  return "?";
}

int64_t Glm5NextConfig::count(MixerKind kind) const { return std::count(mixers.begin(), mixers.end(), kind); }
int64_t Glm5NextConfig::count(FfnKind kind) const { return std::count(ffns.begin(), ffns.end(), kind); }

Result<ParsedConfig> parse_glm5_next_config(const Json& json) {
  if (!json.is_object()) return err(Code::kInvalidArgument, "the config is {}, expected an object", json.kind_name());
  const Json* type = json.find("model_type");
  if (type == nullptr || !type->is_string()) return err(Code::kInvalidArgument, "model_type is missing, expected a string");
  constexpr std::array<std::string_view, 4> kSupported = {kMultimodalTypes[0], kMultimodalTypes[1], kTextTypes[0], kTextTypes[1]};
  LATHE_TRY_VOID(check_model_type(json, "", kSupported));
  ParsedConfig out;
  out.config.model_type = type->as_string();
  if (contains(kTextTypes, type->as_string())) {
    LATHE_TRY_VOID(read_text(json, "", out));
    if (const Json* quantization = json.find("quantization_config"); quantization != nullptr && !quantization->is_null()) {
      LATHE_TRY_VOID(read_quantization(*quantization, out));
    }
  } else {
    LATHE_TRY_VOID(read_multimodal(json, out));
  }
  LATHE_TRY_VOID(check_size(out.config));
  return out;
}

Result<ParsedConfig> read_glm5_next_config(const std::string& path) {
  const std::string file = base::is_directory(path) ? path + "/config.json" : path;
  LATHE_TRY(const Json json, config::read_json_file(file, base::kLimits.config_bytes));
  auto parsed = parse_glm5_next_config(json);
  if (!parsed) return base::forward_error(parsed, file);
  return parsed;
}

}  // namespace lathe::models
