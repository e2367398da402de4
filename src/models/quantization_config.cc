#include "models/quantization_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "models/config_reader.h"

namespace lathe::models {
namespace {

using config::Json;

constexpr const char* kSection = "quantization_config.";

Result<QuantizationConfig> read_fp8(const Json& json, std::vector<std::string>& warnings) {
  ConfigReader reader(json, kSection, warnings);
  reader.ignore({"quant_method"});
  for (const std::string_view name : {"fmt", "quant_fmt"}) reader.only(name, "e4m3");
  reader.only("activation_scheme", "dynamic");
  reader.only("weight_block_size", Json::Array{Json(128), Json(128)});
  QuantizationConfig out;
  out.weights = WeightFormat::kFp8;
  if (const auto excluded = reader.optional_strings({"modules_to_not_convert", "ignored_layers"})) out.excluded = *excluded;
  reader.warn_about_unknown_keys();
  LATHE_TRY_VOID(reader.status());
  return out;
}

/// What both kinds of codes in a group must be: symmetric INT8.
void read_codes(ConfigReader& reader) {
  reader.only("num_bits", 8);
  reader.only("type", "int");
  reader.only("symmetric", true);
  reader.ignore({"observer", "observer_kwargs", "actorder", "zp_dtype", "scale_dtype"});
}

/// A required key with one supported value.
void must_be(ConfigReader& reader, std::string_view name, const Json& expected) {
  if (reader.find({name}) == nullptr) reader.fail("{} is missing, expected {}", name, expected.dump());
  reader.only(name, expected);
}

Result<void> read_weights(const Json& json, const std::string& section, std::vector<std::string>& warnings) {
  if (!json.is_object()) return err(Code::kInvalidArgument, "{} is {}, expected an object", section, json.kind_name());
  ConfigReader reader(json, section + ".", warnings);
  must_be(reader, "num_bits", 8);
  must_be(reader, "strategy", "channel");
  read_codes(reader);
  reader.only("dynamic", false);
  for (const char* name : {"group_size", "block_structure"}) reader.only(name, nullptr);
  reader.warn_about_unknown_keys();
  return reader.status();
}

Result<void> read_activations(const Json& json, const std::string& section, std::vector<std::string>& warnings) {
  if (!json.is_object()) return err(Code::kInvalidArgument, "{} is {}, expected an object", section, json.kind_name());
  ConfigReader reader(json, section + ".", warnings);
  must_be(reader, "num_bits", 8);
  must_be(reader, "strategy", "token");
  must_be(reader, "dynamic", true);
  read_codes(reader);
  for (const char* name : {"group_size", "block_structure"}) reader.only(name, nullptr);
  reader.warn_about_unknown_keys();
  return reader.status();
}

/// One of config_groups; tells whether its activations are INT8.
Result<bool> read_group(const Json& json, const std::string& section, std::vector<std::string>& warnings) {
  if (!json.is_object()) return err(Code::kInvalidArgument, "{} is {}, expected an object", section, json.kind_name());
  ConfigReader reader(json, section + ".", warnings);
  const Json* weights = reader.find({"weights"});
  if (weights == nullptr) reader.fail("weights is missing, expected INT8 channels");
  const Json* activations = reader.find({"input_activations"});
  reader.only("output_activations", nullptr);
  reader.only("format", "int-quantized");
  reader.ignore({"targets"});  // the stored tensors say which matrices these are
  reader.warn_about_unknown_keys();
  LATHE_TRY_VOID(reader.status());
  LATHE_TRY_VOID(read_weights(*weights, section + ".weights", warnings));
  if (activations == nullptr) return false;
  LATHE_TRY_VOID(read_activations(*activations, section + ".input_activations", warnings));
  return true;
}

Result<QuantizationConfig> read_compressed_tensors(const Json& json, std::vector<std::string>& warnings) {
  ConfigReader reader(json, kSection, warnings);
  reader.ignore({"quant_method", "global_compression_ratio", "version"});
  must_be(reader, "format", "int-quantized");
  reader.only("quantization_status", "compressed");
  reader.only("kv_cache_scheme", nullptr);
  for (const char* name : {"sparsity_config", "transform_config"}) {
    const Json* value = reader.find({name});
    if (value != nullptr && !(value->is_object() && value->as_object().empty())) reader.fail("{} is {}, expected none", name, value->dump());
  }
  QuantizationConfig out;
  out.weights = WeightFormat::kInt8;
  if (const auto ignored = reader.optional_strings({"ignore"})) out.excluded = *ignored;
  const bool patterns = std::any_of(out.excluded.begin(), out.excluded.end(), [](const std::string& name) { return name.starts_with("re:"); });
  if (patterns) reader.warn("ignore has patterns (re:…), which are not read: the stored tensors say which matrices are INT8");
  const Json* groups = reader.find({"config_groups"});
  if (groups == nullptr || !groups->is_object() || groups->as_object().empty()) {
    reader.fail("config_groups is {}, expected an object with at least one group", groups == nullptr ? "missing" : groups->dump());
  }
  reader.warn_about_unknown_keys();
  LATHE_TRY_VOID(reader.status());
  const std::string* first = nullptr;
  for (const auto& [name, group] : groups->as_object()) {
    LATHE_TRY(const bool int8, read_group(group, fmt::format("{}config_groups.{}", kSection, name), warnings));
    if (first != nullptr && int8 != out.int8_activations) {
      return err(Code::kInvalidArgument, "{}config_groups.{} and .{} differ in input_activations: expected the same in all groups", kSection, *first,
                 name);
    }
    first = &name;
    out.int8_activations = int8;
  }
  return out;
}

/// Codes of weights ("channel") or of activations ("token"), whose scales are made at run time.
Json codes_json(const std::string& strategy) {
  return Json::Object{{"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"strategy", strategy}, {"dynamic", strategy == "token"}};
}

}  // namespace

std::string quantization_text(const QuantizationConfig& config) {
  switch (config.weights) {
    case WeightFormat::kPlain: return "no 8-bit weights";
    case WeightFormat::kFp8: return "fp8 weights";
    case WeightFormat::kInt8: return config.int8_activations ? "int8 weights, int8 activations" : "int8 weights";
  }
  return "?";
}

Result<QuantizationConfig> read_quantization_config(const Json& json, std::vector<std::string>& warnings) {
  if (!json.is_object()) return err(Code::kInvalidArgument, "quantization_config is {}, expected an object", json.dump());
  constexpr const char* kSupported =
      "\"fp8\" (e4m3, 128 x 128 blocks) and \"compressed-tensors\" (int-quantized: INT8 channels, dynamic INT8 tokens)";
  const Json* method = json.find("quant_method");
  if (method != nullptr && method->is_string()) {
    if (method->as_string() == "fp8") return read_fp8(json, warnings);
    if (method->as_string() == "compressed-tensors") return read_compressed_tensors(json, warnings);
  }
  return err(Code::kInvalidArgument, "{}quant_method is {}, supported are {}", kSection, method == nullptr ? "missing" : method->dump(), kSupported);
}

Json quantization_config_json(const QuantizationConfig& config) {
  LATHE_CHECK(config.weights != WeightFormat::kPlain, "there is no quantization_config of plain weights");
  Json::Array excluded(config.excluded.begin(), config.excluded.end());
  if (config.weights == WeightFormat::kFp8) {
    return Json::Object{{"quant_method", "fp8"},
                        {"fmt", "e4m3"},
                        {"activation_scheme", "dynamic"},
                        {"weight_block_size", Json::Array{Json(128), Json(128)}},
                        {"modules_to_not_convert", std::move(excluded)}};
  }
  Json group = Json::Object{{"targets", Json::Array{Json("Linear")}},
                            {"weights", codes_json("channel")},
                            {"input_activations", config.int8_activations ? codes_json("token") : Json(nullptr)},
                            {"output_activations", nullptr}};
  return Json::Object{{"quant_method", "compressed-tensors"},
                      {"format", "int-quantized"},
                      {"quantization_status", "compressed"},
                      {"kv_cache_scheme", nullptr},
                      {"config_groups", Json::Object{{"group_0", std::move(group)}}},
                      {"ignore", std::move(excluded)}};
}

Result<QuantizationConfig> read_modelslim_description(const Json& json) {
  if (!json.is_object()) return err(Code::kInvalidArgument, "the description is {}, expected an object of tensor names", json.kind_name());
  QuantizationConfig out;
  out.weights = WeightFormat::kInt8;
  out.int8_activations = true;
  auto& described = out.described.emplace();
  constexpr std::array<std::string_view, 4> kTensorEnds = {".weight", ".bias", ".weight_scale", ".weight_offset"};
  for (const auto& [name, value] : json.as_object()) {
    const std::string_view scheme = value.is_string() ? std::string_view(value.as_string()) : std::string_view();
    const bool tensor = std::any_of(kTensorEnds.begin(), kTensorEnds.end(), [&](std::string_view end) { return name.ends_with(end); });
    if (name.find("quarot") != std::string::npos || value.dump().find("quarot") != std::string::npos)
      return err(Code::kInvalidArgument, "'{}' says that the model is rotated (QuaRot), which is not supported", name);
    if (scheme == "FLOAT" || scheme == "W8A8_DYNAMIC") {
      described.emplace(name, scheme == "W8A8_DYNAMIC");
    } else if (tensor) {
      return err(Code::kInvalidArgument, "tensor '{}' is {}, supported are \"FLOAT\" and \"W8A8_DYNAMIC\" (activation scales made at run time)", name,
                 value.dump());
    }
  }
  if (described.empty()) return err(Code::kInvalidArgument, "the description names no tensor, expected one entry for each");
  return out;
}

}  // namespace lathe::models
