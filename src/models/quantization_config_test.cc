#include "models/quantization_config.h"

#include <gtest/gtest.h>

#include <random>

#include "models/glm5_next_config.h"
#include "models/glm5_next_test_config.h"
#include "models/glm5_next_totals.h"

namespace lathe::models {
namespace {

using config::Json;

Json int8_json(bool activations = true) {
  QuantizationConfig config;
  config.weights = WeightFormat::kInt8;
  config.int8_activations = activations;
  config.excluded = {"lm_head", "model.layers.3.self_attn.kv_b_proj"};
  return quantization_config_json(config);
}

/// A member of a member …, to be changed.
Json& member(Json& json, std::initializer_list<const char*> path) {
  Json* at = &json;
  for (const char* key : path) at = const_cast<Json*>(at->find(key));
  return *at;
}

std::string refused(const Json& json) {
  std::vector<std::string> warnings;
  const auto result = read_quantization_config(json, warnings);
  EXPECT_FALSE(result.has_value()) << json.dump();
  return result ? "" : result.error().message;
}

void expect_parts(const std::string& message, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
}

TEST(QuantizationConfig, Int8IsReadAsWritten) {
  for (const bool activations : {true, false}) {
    std::vector<std::string> warnings;
    const auto read = read_quantization_config(int8_json(activations), warnings);
    ASSERT_TRUE(read.has_value()) << read.error().message;
    EXPECT_EQ(read->weights, WeightFormat::kInt8);
    EXPECT_EQ(read->int8_activations, activations);
    EXPECT_EQ(read->excluded.size(), 2u);
    EXPECT_TRUE(warnings.empty()) << warnings[0];
  }
}

/// As compressed-tensors writes it, with every key that says nothing to us.
TEST(QuantizationConfig, CompressedTensorsAsOthersWriteIt) {
  const auto json = config::parse_json(R"({"quant_method": "compressed-tensors", "format": "int-quantized", "quantization_status": "compressed",
    "global_compression_ratio": 1.4, "version": "0.9", "kv_cache_scheme": null, "sparsity_config": {}, "transform_config": {},
    "ignore": ["model.language_model.layers.0.mlp.gate", "re:.*kv_b_proj"],
    "config_groups": {"group_0": {"targets": ["Linear"], "format": "int-quantized",
      "weights": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel", "dynamic": false, "group_size": null, "actorder": null,
                  "block_structure": null, "observer": "minmax", "observer_kwargs": {}},
      "input_activations": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "token", "dynamic": true, "observer": null, "group_size": null},
      "output_activations": null}}})");
  ASSERT_TRUE(json.has_value());
  std::vector<std::string> warnings;
  const auto read = read_quantization_config(*json, warnings);
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_TRUE(read->int8_activations);
  EXPECT_EQ(quantization_text(*read), "int8 weights, int8 activations");
  ASSERT_EQ(warnings.size(), 1u);
  expect_parts(warnings[0], {"ignore", "re:"});
}

TEST(QuantizationConfig, WhatIsNotSupportedIsNamed) {
  expect_parts(refused(Json::Object{}), {"quant_method is missing", "fp8", "compressed-tensors"});
  expect_parts(refused(Json::Object{{"quant_method", "ascend"}}), {"ascend", "fp8", "compressed-tensors"});
  const struct {
    std::vector<const char*> path;
    const char* key;
    Json value;
  } changes[] = {{{}, "format", "pack-quantized"},
                 {{}, "format", nullptr},
                 {{}, "kv_cache_scheme", Json::Object{{"num_bits", 8}}},
                 {{}, "transform_config", Json::Object{{"r1", 1}}},
                 {{}, "config_groups", Json::Object{}},
                 {{}, "ignore", "lm_head"},
                 {{"config_groups", "group_0"}, "output_activations", Json::Object{{"num_bits", 8}}},
                 {{"config_groups", "group_0"}, "weights", nullptr},
                 {{"config_groups", "group_0", "weights"}, "num_bits", 4},
                 {{"config_groups", "group_0", "weights"}, "strategy", "group"},
                 {{"config_groups", "group_0", "weights"}, "symmetric", false},
                 {{"config_groups", "group_0", "weights"}, "type", "float"},
                 {{"config_groups", "group_0", "weights"}, "group_size", 128},
                 {{"config_groups", "group_0", "input_activations"}, "strategy", "tensor"},
                 {{"config_groups", "group_0", "input_activations"}, "dynamic", false}};
  for (const auto& change : changes) {
    Json json = int8_json();
    Json* at = &json;
    for (const char* key : change.path) at = const_cast<Json*>(at->find(key));
    at->set(change.key, change.value);
    expect_parts(refused(json), {"quantization_config.", change.key});
  }
}

TEST(QuantizationConfig, GroupsAgreeOnActivations) {
  Json json = int8_json();
  const Json other = int8_json(false);
  member(json, {"config_groups"}).set("group_1", *other.find("config_groups")->find("group_0"));
  expect_parts(refused(json), {"group_0", "group_1", "input_activations"});
}

TEST(QuantizationConfig, ModelSlimNamesItsTensors) {
  const auto read = [](const char* text) { return read_modelslim_description(*config::parse_json(text)); };
  const auto good = read(R"({"model_quant_type": "W8A8_DYNAMIC", "version": "1.0.0", "group_size": 0,
    "model.layers.0.mlp.up_proj.weight": "W8A8_DYNAMIC", "model.layers.0.mlp.up_proj.weight_scale": "W8A8_DYNAMIC",
    "model.layers.0.mlp.up_proj.weight_offset": "W8A8_DYNAMIC", "model.norm.weight": "FLOAT"})");
  ASSERT_TRUE(good.has_value()) << good.error().message;
  EXPECT_TRUE(good->int8_activations);
  EXPECT_TRUE(good->described->at("model.layers.0.mlp.up_proj.weight"));
  EXPECT_FALSE(good->described->at("model.norm.weight"));
  expect_parts(read(R"({"a.weight": "W8A8"})").error().message, {"a.weight", "\"W8A8\"", "W8A8_DYNAMIC"});
  expect_parts(read(R"({"a.weight": "W4A8_DYNAMIC"})").error().message, {"a.weight", "W4A8_DYNAMIC", "FLOAT"});
  expect_parts(read(R"({"a.weight": "FLOAT", "optional": {"quarot": {"global_rotation": "r"}}})").error().message, {"optional", "rotated"});
  expect_parts(read(R"({"version": "1"})").error().message, {"no tensor"});
  expect_parts(read(R"([1])").error().message, {"an array"});
}

/// What a config alone says of sizes: the default matrices are INT8, those of the list are not, spelled with or without `language_model.`.
TEST(QuantizationConfig, AnnouncedMatricesCount) {
  const auto int8_matrices = [](std::vector<std::string> excluded) {
    QuantizationConfig q;
    q.weights = WeightFormat::kInt8;
    q.excluded = std::move(excluded);
    Json json = release_config();
    json.set("quantization_config", quantization_config_json(q));
    const auto parsed = parse_glm5_next_config(json);
    EXPECT_TRUE(parsed.has_value());
    return totals_from_config(parsed->config).all().int8_matrices;
  };
  // The FP8 release's 37,338; q, k, v, o, f_a, f_b, g_a, g_b, b of 34 linear layers; wq_b, wk, weights_proj of 12 indexers; head and draft join. No kv_b.
  const int64_t all = 37'338 + 34 * 9 + 12 * 3 + 2;
  EXPECT_EQ(int8_matrices({}), all);
  EXPECT_EQ(int8_matrices({"model.layers.0.mlp.up_proj"}), all - 1);
  EXPECT_EQ(int8_matrices({"model.language_model.layers.0.mlp.up_proj"}), all - 1);
  EXPECT_EQ(int8_matrices({"model.layers.0"}), all - 12);
}

TEST(QuantizationConfig, SurvivesRandomDamage) {
  const std::string good = int8_json().dump();
  std::mt19937 random(20261130);
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    text[random() % text.size()] = static_cast<char>(32 + random() % 95);
    const auto json = config::parse_json(text);
    if (!json) continue;
    std::vector<std::string> warnings;
    const auto read = read_quantization_config(*json, warnings);
    EXPECT_TRUE(read.has_value() || !read.error().message.empty());
  }
}

}  // namespace
}  // namespace lathe::models
