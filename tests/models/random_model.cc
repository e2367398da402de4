#include "random_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "base/file.h"
#include "config/json.h"
#include "golden.h"
#include "models/glm5_next_config.h"
#include "models/glm5_next_tensors.h"
#include "weights/safetensors.h"

namespace lathe::models::golden {
namespace {

using config::Json;

Json config_json(const RandomModel& model) {
  std::map<std::string, int64_t> sizes = {{"vocab_size", 150},
                                          {"hidden_size", 40},
                                          {"intermediate_size", 96},
                                          {"moe_intermediate_size", 24},
                                          {"num_attention_heads", 3},
                                          {"q_lora_rank", 20},
                                          {"kv_lora_rank", 16},
                                          {"qk_nope_head_dim", 8},
                                          {"v_head_dim", 8},
                                          {"n_routed_experts", 6},
                                          {"num_experts_per_tok", 2},
                                          {"n_shared_experts", 1},
                                          {"n_group", 1},
                                          {"topk_group", 1},
                                          {"index_n_heads", 3},
                                          {"index_head_dim", 8},
                                          {"index_topk", 12},
                                          {"index_kpool", 4},
                                          {"hc_mult", 4},
                                          {"hc_sinkhorn_iters", 20},
                                          {"linear_num_heads", 3},
                                          {"linear_head_dim", 8},
                                          {"linear_conv_kernel_dim", 4},
                                          {"num_nextn_predict_layers", 1},
                                          {"max_position_embeddings", 4096},
                                          {"pad_token_id", 0},
                                          {"eos_token_id", 1}};
  for (const auto& [key, value] : model.sizes) sizes[key] = value;
  Json json;
  json.set("model_type", "glm5_next_text");
  for (const auto& [key, value] : sizes) json.set(key, value);
  json.set("num_hidden_layers", static_cast<int64_t>(model.layers.size()));
  json.set("num_key_value_heads", sizes["num_attention_heads"]);
  const auto list = [](const std::vector<std::string>& names) {
    Json::Array out;
    for (const std::string& name : names) out.emplace_back(name);
    return out;
  };
  json.set("layer_types", list(model.layers));
  json.set("mlp_layer_types", list(model.mlps));
  json.set("indexer_types", list(model.indexers));
  json.set("index_kpool_always_select_tail", model.tail);
  json.set("norm_topk_prob", model.normalise_topk);
  json.set("linear_lower_bound", model.softplus_gate ? Json(nullptr) : Json(-5.0));
  json.set("routed_scaling_factor", 2.5);
  json.set("rms_norm_eps", 1e-5);
  json.set("hc_eps", 1e-6);
  json.set("swiglu_limit", 1.0);  // low, so that the clamps act
  return json;
}

/// Spread of a tensor's values around a centre: nothing at zero, ones or one sign, so that a swapped axis or a missing bias shows.
struct Spread {
  float centre = 0;
  float width = 0;
};
Spread spread_of(const TensorSpec& spec) {
  const auto ends = [&](std::string_view tail) { return std::string_view(spec.name).ends_with(tail); };
  if (ends("norm.weight") || ends("layernorm.weight")) return {1.0f, 0.1f};
  if (ends("_base") || ends("A_log") || ends("_ape")) return {0.0f, 0.5f};
  if (ends("_scale")) return {1.0f, 0.2f};
  if (ends("dt_bias")) return {-2.0f, 1.0f};
  if (ends("bias")) return {0.0f, 0.1f};
  if (spec.name.find("conv1d") != std::string::npos) return {0.0f, 0.4f};
  return {0.0f, 1.2f / std::sqrt(static_cast<float>(spec.shape.back()))};
}

struct Stored {
  std::vector<std::byte> bytes;
  View view;
};

View shaped(void* data, DType dtype, const std::vector<int64_t>& shape) {
  View view;
  view.data = data;
  view.dtype = dtype;
  view.rank = static_cast<int>(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    view.shape[i] = shape[i];
    view.stride[i] = stride;
    stride *= shape[i];
  }
  return view;
}

Stored store(DType dtype, const std::vector<int64_t>& shape, const std::vector<float>& values) {
  Stored out;
  out.bytes.resize(values.size() * tensor::dtype_bytes(dtype));
  for (size_t i = 0; i < values.size(); ++i) tensor::store_from_float(dtype, out.bytes.data(), static_cast<int64_t>(i), values[i]);
  out.view = shaped(out.bytes.data(), dtype, shape);
  return out;
}

/// Divides each 128 x 128 block by its scale; returns the scales.
std::vector<float> block_scales(std::vector<float>& values, int64_t rows, int64_t cols) {
  constexpr int64_t kBlock = 128;
  const int64_t wide = (cols + kBlock - 1) / kBlock;
  std::vector<float> scales(static_cast<size_t>((rows + kBlock - 1) / kBlock * wide), 1e-9f);
  const auto scale = [&](int64_t i) -> float& { return scales[static_cast<size_t>(i / cols / kBlock * wide + i % cols / kBlock)]; };
  for (int64_t i = 0; i < rows * cols; ++i) scale(i) = std::max(scale(i), std::abs(values[static_cast<size_t>(i)]) / 448.0f);
  for (int64_t i = 0; i < rows * cols; ++i) values[static_cast<size_t>(i)] /= scale(i);
  return scales;
}

}  // namespace

RandomCheckpoint::RandomCheckpoint(const RandomModel& model) {
  static int count = 0;
  directory_ = (std::filesystem::temp_directory_path() / fmt::format("lathe_model_{}_{}", ::getpid(), ++count)).string();
  std::filesystem::create_directories(directory_);
  const Json json = config_json(model);
  must(base::write_file(directory_ + "/config.json", json.dump({.indent = 1})), "config");
  const Glm5NextConfig config = must(parse_glm5_next_config(json), "config").config;
  std::mt19937 random(model.seed);
  std::normal_distribution<float> normal;
  std::vector<std::unique_ptr<Stored>> stored;
  std::vector<weights::NamedView> views;
  const auto add = [&](const std::string& name, Stored tensor) {
    stored.push_back(std::make_unique<Stored>(std::move(tensor)));
    views.push_back({name, stored.back()->view});
  };
  for (const TensorSpec& spec : glm5_next_inventory(config)) {
    const Spread spread = spread_of(spec);
    std::vector<float> values(static_cast<size_t>(spec.elements()));
    for (float& value : values) value = spread.centre + spread.width * normal(random);
    DType dtype = model.f16 ? DType::kF16 : DType::kBF16;
    if (spec.f32_in_release) dtype = DType::kF32;
    if (model.fp8 && spec.fp8_in_release) {
      const std::vector<float> scales = block_scales(values, spec.shape[0], spec.shape[1]);
      add(spec.name + "_scale_inv", store(DType::kF32, {(spec.shape[0] + 127) / 128, (spec.shape[1] + 127) / 128}, scales));
      dtype = DType::kF8E4M3;
    }
    add(spec.name, store(dtype, spec.shape, values));
  }
  must(weights::write_safetensors(directory_ + "/model.safetensors", views), "weights");
}

RandomCheckpoint::~RandomCheckpoint() { std::filesystem::remove_all(directory_); }

}  // namespace lathe::models::golden
