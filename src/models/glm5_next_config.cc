#include "models/glm5_next_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/file.h"
#include "base/limits.h"
#include "models/config_reader.h"
#include "models/glm5_next_config_parts.h"

namespace lathe::models {
namespace {

using base::kLimits;
using config::Json;

constexpr std::array<std::string_view, 2> kMultimodalTypes = {"glm5_next", "glm5_next_vl"};
constexpr std::array<std::string_view, 2> kTextTypes = {"glm5_next_text", "glm5_next_vl_text"};

bool contains(std::span<const std::string_view> list, std::string_view text) { return std::find(list.begin(), list.end(), text) != list.end(); }

Result<void> read_vision(const Json& json, ParsedConfig& out) {
  if (!json.is_object()) return err(Code::kInvalidArgument, "vision_config is {}, expected an object", json.dump());
  ConfigReader reader(json, "vision_config.", out.warnings);
  VisionConfig vision;
  vision.depth = reader.required_int({"depth"}, {1, kLimits.model_layers});
  vision.hidden = reader.required_int({"hidden_size"}, {1, kLimits.model_width});
  vision.heads = reader.required_int({"num_heads"}, {1, kLimits.model_heads});
  vision.intermediate = reader.required_int({"intermediate_size"}, {1, kLimits.model_width});
  vision.out_hidden = reader.required_int({"out_hidden_size"}, {1, kLimits.model_width});
  vision.projection_intermediate = reader.required_int({"projection_intermediate_size"}, {1, kLimits.model_width});
  vision.patch = reader.required_int({"patch_size"}, {1, kLimits.model_small});
  vision.temporal_patch = reader.required_int({"temporal_patch_size"}, {1, kLimits.model_small});
  vision.merge = reader.required_int({"spatial_merge_size"}, {1, kLimits.model_small});
  vision.channels = reader.required_int({"in_channels"}, {1, kLimits.model_small});
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
  if (total > d(kLimits.model_parameters))
    return err(Code::kInvalidArgument, "the sizes describe a model of {:.3g} parameters, the limit is {:.3g}", total, d(kLimits.model_parameters));
  const double tensors = d(config.layers + 1) * (d(config.moe.experts) * 3 + 64);
  if (tensors > d(kLimits.model_tensors))
    return err(Code::kInvalidArgument, "the sizes describe a model of {:.3g} tensors, the limit is {}", tensors, kLimits.model_tensors);
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
  LATHE_TRY_VOID(read_text_config(*text, "text_config.", out));
  ConfigReader top(json, "", out.warnings);
  if (const Json* vision = top.find({"vision_config"}); vision != nullptr) {
    LATHE_TRY_VOID(check_model_type(*vision, "vision_config.", kVisionTypes));
    LATHE_TRY_VOID(read_vision(*vision, out));
  } else {
    top.warn("vision_config is missing: the model takes no images");
  }
  read_image_tokens(top, out.config);
  out.config.dtype = read_dtype(top, out.config.dtype);
  if (const Json* quantization = top.find({"quantization_config"})) {
    LATHE_TRY(out.config.quantization, read_quantization_config(*quantization, out.warnings));
  }
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
    LATHE_TRY_VOID(read_text_config(json, "", out));
    if (const Json* quantization = json.find("quantization_config"); quantization != nullptr && !quantization->is_null()) {
      LATHE_TRY(out.config.quantization, read_quantization_config(*quantization, out.warnings));
    }
  } else {
    LATHE_TRY_VOID(read_multimodal(json, out));
  }
  LATHE_TRY_VOID(check_size(out.config));
  return out;
}

namespace {

/// The description that a ModelSlim export has beside its config.
Result<void> read_description(const std::string& directory, Glm5NextConfig& config) {
  const std::string file = fmt::format("{}/{}", directory, kModelSlimFile);
  if (!base::file_exists(file)) return {};
  if (config.quantization.weights != WeightFormat::kPlain) {
    return err(Code::kDataLoss, "{} is there as well as quantization_config in config.json: expected one of them", file);
  }
  LATHE_TRY(const Json json, config::read_json_file(file));
  auto described = base::file_content(read_modelslim_description(json));
  if (!described) return base::forward_error(described, file);
  config.quantization = std::move(*described);
  return {};
}

}  // namespace

Result<ParsedConfig> read_glm5_next_config(const std::string& path) {
  const std::string file = base::is_directory(path) ? path + "/config.json" : path;
  LATHE_TRY(const Json json, config::read_json_file(file, base::kLimits.config_bytes));
  auto parsed = parse_glm5_next_config(json);
  if (!parsed) return base::file_content<ParsedConfig>(base::forward_error(parsed, file));
  if (base::is_directory(path)) LATHE_TRY_VOID(read_description(path, parsed->config));
  return parsed;
}

}  // namespace lathe::models
