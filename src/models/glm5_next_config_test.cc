#include "models/glm5_next_config.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "models/generation_config.h"
#include "models/glm5_next_test_config.h"

namespace lathe::models {
namespace {

using config::Json;

Json& text_of(Json& config) { return section(config, "text_config"); }

Glm5NextConfig parsed(const Json& json) {
  auto result = parse_glm5_next_config(json);
  EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
  return result ? result->config : Glm5NextConfig{};
}

std::string refused(const Json& json) {
  const auto result = parse_glm5_next_config(json);
  EXPECT_FALSE(result.has_value());
  return result ? "" : result.error().message;
}

void expect_parts(const std::string& message, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
}

bool warns(const Json& json, std::string_view part) {
  const auto result = parse_glm5_next_config(json);
  EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
  if (!result) return false;
  for (const std::string& warning : result->warnings) {
    if (warning.find(part) != std::string::npos) return true;
  }
  return false;
}

/// The release with one key of text_config set.
Json with(std::string_view key, Json value) {
  Json config = release_config();
  text_of(config).set(key, std::move(value));
  return config;
}

Json without(std::initializer_list<std::string_view> keys) {
  Json config = release_config();
  for (const std::string_view key : keys) EXPECT_TRUE(erase(text_of(config), key)) << key;
  return config;
}

TEST(Glm5NextConfig, LaterDraftStepsShareTheSelection) {
  expect_parts(refused(with("index_share_for_mtp_iteration", false)),
               {"text_config.index_share_for_mtp_iteration", "false", "only true is implemented"});
  expect_parts(refused(with("index_share_for_mtp_iteration", 1)), {"index_share_for_mtp_iteration is 1"});
  parsed(without({"index_share_for_mtp_iteration"}));
}

TEST(Glm5NextConfig, ReadsTheRelease) {
  const auto result = parse_glm5_next_config(release_config());
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_TRUE(result->warnings.empty()) << result->warnings.front();
  const Glm5NextConfig& c = result->config;
  EXPECT_EQ(c.vocab, 154880);
  EXPECT_EQ(c.count(MixerKind::kDsa), 11);
  EXPECT_EQ(c.count(MixerKind::kKda), 34);
  EXPECT_EQ(c.mixers[44], MixerKind::kKda);
  EXPECT_EQ(c.count(FfnKind::kDense), 3);
  EXPECT_EQ(c.indexers[3], IndexerKind::kFull);
  EXPECT_EQ(c.indexers[4], IndexerKind::kNone);
  EXPECT_EQ(c.indexer.topk_pools(), 512);
  EXPECT_EQ(c.kda.gate_lower_bound, -5.0f);
  EXPECT_EQ(c.mhc.mix_rows(), 24);
  EXPECT_TRUE(c.draft_layer);
  EXPECT_EQ(c.vision->patch_values(), 1176);
  EXPECT_EQ(c.vision->head_dim(), 64);
  EXPECT_EQ(c.tokens.eos, (std::vector<TokenId>{154820, 154827, 154829}));
  EXPECT_EQ(c.tokens.image, 154854);
  EXPECT_EQ(c.quantization.weights, WeightFormat::kFp8);
}

TEST(Glm5NextConfig, WhatIsWrittenIsReadAgain) {
  Json softplus = release_config();
  section(text_of(softplus), "linear_attn_config").set("gate_lower_bound", nullptr);
  section(text_of(softplus), "linear_attn_config").set("safe_gate", false);
  Json plain = release_config();
  EXPECT_TRUE(erase(plain, "quantization_config"));
  EXPECT_TRUE(erase(plain, "vision_config"));
  text_of(plain).set("num_nextn_predict_layers", 0);
  text_of(plain).set("index_kpool_always_select_tail", false);
  for (const Json& json : {release_config(), softplus, plain}) {
    const Glm5NextConfig config = parsed(json);
    const Json written = glm5_next_config_json(config);
    const auto again = parse_glm5_next_config(written);
    ASSERT_TRUE(again.has_value()) << again.error().message;
    EXPECT_EQ(again->warnings.size(), config.vision ? 0u : 1u);
    EXPECT_EQ(glm5_next_config_json(again->config), written);
    // Every value of the release that decides something stands in what is written.
    for (const auto& [key, value] : json.find("text_config")->as_object()) {
      if (key == "linear_attn_config") continue;  // its keys may stand in another order
      const Json* const found = written.find("text_config")->find(key);
      EXPECT_TRUE(found == nullptr || *found == value) << key;
    }
  }
}

TEST(Glm5NextConfig, EveryRequiredKeyIsNamedWhenMissing) {
  for (const char* key : {"vocab_size",
                          "hidden_size",
                          "intermediate_size",
                          "num_hidden_layers",
                          "num_attention_heads",
                          "q_lora_rank",
                          "kv_lora_rank",
                          "qk_nope_head_dim",
                          "v_head_dim",
                          "n_routed_experts",
                          "num_experts_per_tok",
                          "moe_intermediate_size",
                          "routed_scaling_factor",
                          "norm_topk_prob",
                          "rms_norm_eps",
                          "swiglu_limit",
                          "index_n_heads",
                          "index_head_dim",
                          "index_topk",
                          "index_kpool",
                          "hc_mult",
                          "hc_eps",
                          "hc_sinkhorn_iters"}) {
    expect_parts(refused(without({key})), {std::string("text_config.") + key, "missing"});
    expect_parts(refused(with(key, Json())), {key, "missing"});
    expect_parts(refused(with(key, "x")), {key, "\"x\"", "expected"});
  }
  for (const char* key : {"num_heads", "head_dim", "short_conv_kernel_size"}) {
    Json config = release_config();
    erase(section(text_of(config), "linear_attn_config"), key);
    expect_parts(refused(config), {key, "missing"});
  }
  expect_parts(refused(without({"linear_attn_config"})), {"linear_num_heads", "missing"});
  for (const char* key :
       {"image_token_id", "image_start_token_id", "image_end_token_id", "video_token_id", "video_start_token_id", "video_end_token_id"}) {
    Json config = release_config();
    erase(config, key);
    expect_parts(refused(config), {key, "missing"});
  }
  for (const char* key : {"depth", "hidden_size", "num_heads", "intermediate_size", "out_hidden_size", "projection_intermediate_size", "patch_size",
                          "temporal_patch_size", "spatial_merge_size", "in_channels", "swiglu_limit", "rms_norm_eps"}) {
    Json config = release_config();
    erase(section(config, "vision_config"), key);
    expect_parts(refused(config), {std::string("vision_config.") + key, "missing"});
  }
}

TEST(Glm5NextConfig, DerivesWithAWarning) {
  const Glm5NextConfig release = parsed(release_config());
  const auto derives = [&](const Json& json, std::string_view key) {
    EXPECT_TRUE(warns(json, key)) << key;
    const Glm5NextConfig c = parsed(json);
    EXPECT_EQ(c.mixers, release.mixers) << key;
    EXPECT_EQ(c.ffns, release.ffns) << key;
    EXPECT_EQ(c.indexers, release.indexers) << key;
    EXPECT_EQ(c.moe.shared_experts, 1);
    EXPECT_TRUE(c.indexer.always_select_tail);
  };
  derives(without({"layer_types"}), "layer_types is missing, taken from the layer lists");
  Json bare = without({"layer_types"});
  erase(section(text_of(bare), "linear_attn_config"), "kda_layers");
  derives(bare, "layer lists");
  erase(section(text_of(bare), "linear_attn_config"), "full_attn_layers");
  derives(bare, "every fourth");
  derives(without({"mlp_layer_types"}), "mlp_layer_types");
  parsed(without({"first_k_dense_replace"}));
  derives(without({"indexer_types"}), "indexer_types");
  derives(without({"n_shared_experts"}), "n_shared_experts");
  derives(without({"n_group", "topk_group"}), "n_group");
  derives(without({"index_kpool_always_select_tail"}), "index_kpool_always_select_tail");
  EXPECT_FALSE(parsed(without({"num_nextn_predict_layers"})).draft_layer);
  EXPECT_TRUE(warns(with("some_new_key", 1), "text_config.some_new_key"));
  expect_parts(refused(without({"mlp_layer_types", "first_k_dense_replace"})), {"mlp_layer_types", "first_k_dense_replace"});
}

TEST(Glm5NextConfig, SingleValuedKeys) {
  const std::pair<const char*, Json> others[] = {{"hidden_act", "gelu"},        {"qk_rope_head_dim", 64},     {"mla_use_nope", false},
                                                 {"mla_nope", false},           {"attention_bias", true},     {"mhc", false},
                                                 {"topk_method", "greedy"},     {"scoring_func", "softmax"},  {"index_kpool_compress", false},
                                                 {"tie_word_embeddings", true}, {"mhc_post_mult_value", 1.5}, {"num_key_value_heads", 8},
                                                 {"qk_head_dim", 320}};
  for (const auto& [key, value] : others) {
    expect_parts(refused(with(key, value)), {key, value.dump(), "supported"});
    Json config = release_config();
    erase(text_of(config), key);
    parsed(config);
  }
  parsed(with("mhc_post_mult_value", 2));
  Json config = release_config();
  config.set("tie_word_embeddings", true);
  expect_parts(refused(config), {"tie_word_embeddings", "true"});
}

TEST(Glm5NextConfig, Aliases) {
  const std::pair<const char*, const char*> aliases[] = {{"num_experts_per_tok", "num_experts_per_token"},
                                                         {"n_routed_experts", "num_local_experts"},
                                                         {"n_routed_experts", "num_experts"},
                                                         {"norm_topk_prob", "moe_renormalize"},
                                                         {"mla_use_nope", "mla_nope"},
                                                         {"hc_mult", "mhc_num_residual_streams"},
                                                         {"hc_sinkhorn_iters", "mhc_sinkhorn_iterations"}};
  const Glm5NextConfig release = parsed(release_config());
  for (const auto& [key, alias] : aliases) {
    Json config = release_config();
    const Json value = *text_of(config).find(key);
    erase(text_of(config), key);
    text_of(config).set(alias, value);
    const Glm5NextConfig c = parsed(config);
    EXPECT_EQ(c.moe.experts, release.moe.experts);
    EXPECT_EQ(c.moe.experts_per_token, release.moe.experts_per_token);
    EXPECT_EQ(c.mhc.streams, 4);
    EXPECT_FALSE(warns(config, alias));
  }
  expect_parts(refused(with("num_experts", 16)), {"n_routed_experts is 288", "num_experts", "16"});
  Json types = release_config();
  for (Json& type : section(text_of(types), "layer_types").as_array()) {
    if (type.as_string() == "deepseek_sparse_attention") type = Json("full_attention");
  }
  EXPECT_EQ(parsed(types).mixers, release.mixers);
}

TEST(Glm5NextConfig, LinearSizesFlatOrNested) {
  Json flat = without({"linear_attn_config"});
  text_of(flat).set("linear_num_heads", 64);
  text_of(flat).set("linear_head_dim", 128);
  text_of(flat).set("linear_conv_kernel_dim", 4);
  expect_parts(refused(flat), {"linear_lower_bound", "missing"});
  text_of(flat).set("linear_lower_bound", -5.0);
  EXPECT_EQ(parsed(flat).kda.channels(), 8192);
  EXPECT_EQ(parsed(flat).kda.gate_lower_bound, -5.0f);
  text_of(flat).set("linear_lower_bound", Json());
  EXPECT_EQ(parsed(flat).kda.gate_lower_bound, std::nullopt);
  text_of(flat).set("linear_lower_bound", 1.0);
  expect_parts(refused(flat), {"linear_lower_bound", "1.0"});

  Json nested = release_config();
  Json& dict = section(text_of(nested), "linear_attn_config");
  dict.set("gate_lower_bound", Json());
  EXPECT_EQ(parsed(nested).kda.gate_lower_bound, -5.0f);
  dict.set("safe_gate", false);
  EXPECT_EQ(parsed(nested).kda.gate_lower_bound, std::nullopt);
  dict.set("safe_gate", true);
  EXPECT_EQ(parsed(nested).kda.gate_lower_bound, -5.0f);
  erase(dict, "gate_lower_bound");
  dict.set("lower_bound", -4.0);
  EXPECT_EQ(parsed(nested).kda.gate_lower_bound, -4.0f);
  text_of(nested).set("linear_lower_bound", -3.0);
  expect_parts(refused(nested), {"linear_lower_bound", "-3", "-4"});
  expect_parts(refused(with("linear_num_heads", 32)), {"linear_num_heads", "32", "64"});
}

TEST(Glm5NextConfig, LayerSchedules) {
  expect_parts(refused(with("layer_types", Json::Array{Json("linear_attention")})), {"layer_types", "1 entries", "45"});
  Json odd = release_config();
  section(text_of(odd), "layer_types").as_array()[7] = Json("sliding_attention");
  expect_parts(refused(odd), {"layer_types[7]", "sliding_attention"});
  expect_parts(refused(with("mlp_layer_types", Json::Array{Json("dense")})), {"mlp_layer_types", "1 entries", "45"});
  expect_parts(refused(with("indexer_types", Json::Array{Json("full")})), {"indexer_types", "1 entries", "45"});
  EXPECT_TRUE(warns(with("first_k_dense_replace", 1), "mlp_layer_types wins"));
  Json lists = release_config();
  section(section(text_of(lists), "linear_attn_config"), "kda_layers").as_array()[0] = Json(3);
  EXPECT_TRUE(warns(lists, "layer_types wins"));
  erase(text_of(lists), "layer_types");
  expect_parts(refused(lists), {"layer 0", "0 times"});
  section(section(text_of(lists), "linear_attn_config"), "kda_layers").as_array()[0] = Json(45);
  expect_parts(refused(lists), {"layer 45", "num_hidden_layers is 45"});
}

/// Four layers K D D D; `forms` are set on top.
Json small_with(std::initializer_list<std::pair<const char*, Json>> forms) {
  Json config = without({"indexer_types", "first_k_dense_replace"});
  Json& text = text_of(config);
  text.set("num_hidden_layers", 4);
  text.set("mlp_layer_types", Json::Array{Json("dense"), Json("sparse"), Json("sparse"), Json("sparse")});
  text.set("layer_types", Json::Array{Json("linear_attention"), Json("full_attention"), Json("full_attention"), Json("full_attention")});
  erase(section(text, "linear_attn_config"), "kda_layers");
  erase(section(text, "linear_attn_config"), "full_attn_layers");
  for (const auto& [key, value] : forms) text.set(key, value);
  return config;
}

TEST(Glm5NextConfig, SharedSelections) {
  constexpr auto kNone = IndexerKind::kNone;
  constexpr auto kFull = IndexerKind::kFull;
  constexpr auto kShared = IndexerKind::kShared;
  using Kinds = std::vector<IndexerKind>;
  EXPECT_EQ(parsed(small_with({{"index_topk_pattern", "FFSF"}})).indexers, (Kinds{kNone, kFull, kShared, kFull}));
  EXPECT_EQ(parsed(small_with({{"indexer_types", Json::Array{Json("full"), Json("full"), Json("shared"), Json("full")}}})).indexers,
            (Kinds{kNone, kFull, kShared, kFull}));
  // Shared where max(layer - offset + 1, 0) mod freq != 0. Default offset 2: layer 2 with freq 2.
  EXPECT_EQ(parsed(small_with({{"index_topk_freq", 2}})).indexers, (Kinds{kNone, kFull, kShared, kFull}));
  EXPECT_EQ(parsed(small_with({{"index_topk_freq", 2}, {"index_skip_topk_offset", 3}})).indexers, (Kinds{kNone, kFull, kFull, kShared}));
  expect_parts(refused(small_with({{"index_topk_pattern", "FSFF"}})), {"layer 1", "index_topk_pattern"});
  expect_parts(refused(small_with({{"index_topk_pattern", "FFSS"}})), {"layer 3"});
  expect_parts(refused(small_with({{"index_topk_pattern", "FFX"}})), {"FFX", "4 letters"});
  expect_parts(refused(small_with({{"index_topk_pattern", "FFSF"}, {"index_topk_freq", 1}})), {"index_topk_pattern", "index_topk_freq", "layer 2"});
}

Json int8_config() {
  Json weights =
      Json::Object{{"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"strategy", "channel"}, {"dynamic", false}, {"observer", "minmax"}};
  Json inputs =
      Json::Object{{"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"strategy", "token"}, {"dynamic", true}, {"group_size", nullptr}};
  Json group =
      Json::Object{{"targets", Json::Array{Json("Linear")}}, {"weights", weights}, {"input_activations", inputs}, {"output_activations", nullptr}};
  Json config = release_config();
  config.set("quantization_config", Json::Object{{"quant_method", "compressed-tensors"},
                                                 {"format", "int-quantized"},
                                                 {"quantization_status", "compressed"},
                                                 {"config_groups", Json::Object{{"group_0", group}}},
                                                 {"ignore", Json::Array{Json("lm_head")}},
                                                 {"kv_cache_scheme", nullptr}});
  return config;
}

TEST(Glm5NextConfig, Int8OfCompressedTensors) {
  const Glm5NextConfig config = parsed(int8_config());
  EXPECT_EQ(config.quantization.weights, WeightFormat::kInt8);
  EXPECT_TRUE(config.quantization.int8_activations);
  EXPECT_EQ(config.quantization.excluded, std::vector<std::string>{"lm_head"});
  const auto group = [](Json& json) -> Json& { return section(section(section(json, "quantization_config"), "config_groups"), "group_0"); };
  Json weights_only = int8_config();
  group(weights_only).set("input_activations", nullptr);
  EXPECT_EQ(parsed(weights_only).quantization.weights, WeightFormat::kInt8);
  EXPECT_FALSE(parsed(weights_only).quantization.int8_activations);
  Json bits = int8_config();
  section(group(bits), "weights").set("num_bits", 4);
  expect_parts(refused(bits), {"quantization_config.config_groups.group_0.weights.num_bits", "4"});
  Json uneven = int8_config();
  section(group(uneven), "weights").set("symmetric", false);
  expect_parts(refused(uneven), {"weights.symmetric", "false"});
  Json fixed = int8_config();
  section(group(fixed), "input_activations").set("dynamic", false);
  expect_parts(refused(fixed), {"input_activations.dynamic"});
  Json packed = int8_config();
  section(packed, "quantization_config").set("format", "pack-quantized");
  expect_parts(refused(packed), {"quantization_config.format", "pack-quantized"});
  Json two = int8_config();
  section(section(two, "quantization_config"), "config_groups").set("group_1", Json::Object{});
  expect_parts(refused(two), {"config_groups.group_1.weights", "missing"});
  Json none = int8_config();
  section(none, "quantization_config").set("config_groups", nullptr);
  expect_parts(refused(none), {"config_groups is missing"});
  Json cache = int8_config();
  section(cache, "quantization_config").set("kv_cache_scheme", Json::Object{});
  expect_parts(refused(cache), {"kv_cache_scheme"});
}

TEST(Glm5NextConfig, ConsistencyAndLimits) {
  expect_parts(refused(with("index_topk", 2047)), {"index_topk is 2047", "index_kpool 4"});
  expect_parts(refused(with("num_experts_per_tok", 289)), {"num_experts_per_tok", "289", "288"});
  expect_parts(refused(with("n_group", 7)), {"n_routed_experts", "n_group 7"});
  expect_parts(refused(with("n_group", 288)), {"n_group"});
  Json grouped = with("n_group", 144);
  expect_parts(refused(grouped), {"num_experts_per_tok", "topk_group 1"});
  text_of(grouped).set("topk_group", 4);
  EXPECT_EQ(parsed(grouped).moe.groups_kept, 4);
  expect_parts(refused(with("hidden_size", 0)), {"hidden_size", "0"});
  expect_parts(refused(with("hidden_size", -4096)), {"hidden_size", "-4096"});
  expect_parts(refused(with("hidden_size", 4096.5)), {"hidden_size", "4096.5"});
  expect_parts(refused(with("hidden_size", int64_t{1} << 60)), {"hidden_size"});
  expect_parts(refused(with("rms_norm_eps", 0)), {"rms_norm_eps"});
  expect_parts(refused(with("num_nextn_predict_layers", 2)), {"num_nextn_predict_layers", "2"});
  expect_parts(refused(with("eos_token_id", 154880)), {"eos_token_id", "154880"});
  Json vision = release_config();
  section(vision, "vision_config").set("out_hidden_size", 2048);
  expect_parts(refused(vision), {"out_hidden_size", "2048", "4096"});
  section(vision, "vision_config").set("out_hidden_size", 4096);
  section(vision, "vision_config").set("num_heads", 3);
  expect_parts(refused(vision), {"vision_config.hidden_size", "3"});
  Json huge = with("moe_intermediate_size", 1 << 20);
  text_of(huge).set("n_routed_experts", 1 << 14);
  text_of(huge).set("hidden_size", 1 << 20);
  section(huge, "vision_config").set("out_hidden_size", 1 << 20);
  expect_parts(refused(huge), {"parameters"});
  Json many = with("n_routed_experts", 1 << 14);
  text_of(many).set("num_hidden_layers", 1000);
  for (const char* key : {"layer_types", "indexer_types", "mlp_layer_types", "linear_attn_config"}) erase(text_of(many), key);
  for (const char* key : {"linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"}) text_of(many).set(key, 4);
  text_of(many).set("linear_lower_bound", -5);
  text_of(many).set("moe_intermediate_size", 8);
  expect_parts(refused(many), {"tensors"});
  Json quantised = release_config();
  section(quantised, "quantization_config").set("quant_method", "awq");
  expect_parts(refused(quantised), {"quant_method", "awq", "fp8"});
  section(quantised, "quantization_config").set("quant_method", "fp8");
  section(quantised, "quantization_config").set("weight_block_size", Json::Array{Json(64), Json(64)});
  expect_parts(refused(quantised), {"weight_block_size", "64"});
}

TEST(Glm5NextConfig, ModelTypes) {
  Json config = release_config();
  config.set("model_type", "llama");
  expect_parts(refused(config), {"llama", "glm5_next, glm5_next_vl, glm5_next_text"});
  EXPECT_EQ(parse_glm5_next_config(config).error().code, Code::kUnimplemented);
  config.set("model_type", "glm5_next_vl");
  text_of(config).set("model_type", "glm5_next_vl_text");
  parsed(config);
  text_of(config).set("model_type", "llama");
  expect_parts(refused(config), {"text_config.model_type", "llama"});
  erase(config, "model_type");
  expect_parts(refused(config), {"model_type", "missing"});
  refused(Json::Array{});

  Json text = text_of(config);
  text.set("model_type", "glm5_next_text");
  const Glm5NextConfig c = parsed(text);
  EXPECT_EQ(c.layers, 45);
  EXPECT_FALSE(c.vision.has_value());
  EXPECT_EQ(c.tokens.image, -1);
  Json no_vision = release_config();
  erase(no_vision, "vision_config");
  EXPECT_TRUE(warns(no_vision, "no images"));
}

TEST(Glm5NextConfig, ReadsTheProjectsModels) {
  for (const char* name : {"builtin", "golden/base", "golden/long"}) {
    const auto result = read_glm5_next_config(std::string("data/") + name);
    ASSERT_TRUE(result.has_value()) << result.error().message;
    for (const std::string& warning : result->warnings) {
      EXPECT_NE(warning.find("num_nextn_predict_layers"), std::string::npos) << name << ": " << warning;
    }
  }
  const Glm5NextConfig builtin = read_glm5_next_config("data/builtin/config.json")->config;
  EXPECT_EQ(builtin.layers, 8);
  EXPECT_TRUE(builtin.draft_layer);
  const auto missing = read_glm5_next_config("data/none");
  EXPECT_EQ(missing.error().code, Code::kNotFound);
}

TEST(Glm5NextConfig, SurvivesRandomDamage) {
  const std::string good = release_config().dump();
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    std::string bad = good;
    for (int i = 0; i < 3; ++i) bad[random() % bad.size()] = static_cast<char>('0' + random() % 10);
    const auto json = config::parse_json(bad);
    if (json) (void)parse_glm5_next_config(*json);
  }
}

TEST(GenerationConfig, ReadsDefaults) {
  const auto builtin = read_generation_config("data/builtin");
  ASSERT_TRUE(builtin.has_value()) << builtin.error().message;
  EXPECT_EQ(builtin->temperature, 0.7);
  EXPECT_EQ(builtin->top_p, 0.95);
  EXPECT_FALSE(builtin->top_k.has_value());
  EXPECT_EQ(builtin->eos, (std::vector<TokenId>{3544, 3551, 3553}));
  EXPECT_FALSE(read_generation_config("data/golden/long")->temperature.has_value());
  EXPECT_EQ(parse_generation_config(*config::parse_json(R"({"eos_token_id":7,"top_k":5})"))->eos, std::vector<TokenId>{7});
  EXPECT_EQ(parse_generation_config(*config::parse_json(R"({"do_sample":false})"))->temperature, 0.0);
  expect_parts(parse_generation_config(*config::parse_json(R"({"temperature":-1})")).error().message, {"temperature", "-1"});
  expect_parts(parse_generation_config(*config::parse_json(R"({"top_p":1.5})")).error().message, {"top_p", "1.5"});
}

TEST(GenerationConfig, KeysThatChangeTheTextAreUsedOrNamed) {
  const auto used = parse_generation_config(*config::parse_json(
      R"({"min_p":0.1,"repetition_penalty":1.2,"presence_penalty":-1,"frequency_penalty":2,"max_new_tokens":7,"num_beams":1,"typical_p":1.0,
          "min_length":null,"suppress_tokens":[]})"));
  ASSERT_TRUE(used.has_value()) << used.error().message;
  EXPECT_EQ(used->min_p, 0.1);
  EXPECT_EQ(used->repetition_penalty, 1.2);
  EXPECT_EQ(used->presence_penalty, -1.0);
  EXPECT_EQ(used->frequency_penalty, 2.0);
  EXPECT_EQ(used->max_tokens, 7);
  EXPECT_TRUE(used->warnings.empty());
  const auto named = parse_generation_config(*config::parse_json(R"({"num_beams":4,"suppress_tokens":[1],"typical_p":0.5})"));
  ASSERT_TRUE(named.has_value()) << named.error().message;
  ASSERT_EQ(named->warnings.size(), 3u);
  for (size_t i = 0; i < 3; ++i) expect_parts(named->warnings[i], {std::array{"typical_p is 0.5", "num_beams is 4", "suppress_tokens is [1]"}[i]});
  expect_parts(parse_generation_config(*config::parse_json(R"({"max_new_tokens":0})")).error().message, {"max_new_tokens", "0"});
}

}  // namespace
}  // namespace lathe::models
