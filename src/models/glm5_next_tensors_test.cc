#include "models/glm5_next_tensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <set>

#include "base/file.h"
#include "models/glm5_next_test_config.h"
#include "models/glm5_next_totals.h"

namespace lathe::models {
namespace {

namespace fs = std::filesystem;
using config::Json;
using weights::Checkpoint;
using weights::NamedView;

/// Tensors in memory that a test changes before it writes them as a checkpoint.
struct Stored {
  DType dtype = DType::kBF16;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};
using StoredMap = std::map<std::string, Stored>;

Stored make_stored(DType dtype, std::vector<int64_t> shape, uint32_t seed) {
  Stored out{dtype, std::move(shape), {}};
  int64_t elements = 1;
  for (const int64_t size : out.shape) elements *= size;
  out.bytes.resize(static_cast<size_t>(elements) * tensor::dtype_bytes(dtype));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < elements; ++i) tensor::store_from_float(dtype, out.bytes.data(), i, normal(random));
  return out;
}

/// Scales are positive.
Stored make_scales(DType dtype, std::vector<int64_t> shape, uint32_t seed) {
  Stored out = make_stored(dtype, std::move(shape), seed);
  const auto count = static_cast<int64_t>(out.bytes.size() / tensor::dtype_bytes(dtype));
  for (int64_t i = 0; i < count; ++i) {
    tensor::store_from_float(dtype, out.bytes.data(), i, std::abs(tensor::load_as_float(dtype, out.bytes.data(), i)) + 0.125f);
  }
  return out;
}

/// Layers K D D K with an FP8 matrix of odd size in the dense layer, every part present.
Glm5NextConfig small_config() {
  Json json = release_config();
  Json& text = section(json, "text_config");
  const std::pair<const char*, int> sizes[] = {{"vocab_size", 40},           {"hidden_size", 20},        {"intermediate_size", 130},
                                               {"moe_intermediate_size", 6}, {"num_hidden_layers", 4},   {"num_attention_heads", 2},
                                               {"num_key_value_heads", 2},   {"q_lora_rank", 10},        {"kv_lora_rank", 8},
                                               {"qk_nope_head_dim", 6},      {"qk_head_dim", 6},         {"v_head_dim", 4},
                                               {"n_routed_experts", 3},      {"num_experts_per_tok", 2}, {"index_n_heads", 2},
                                               {"index_head_dim", 5},        {"index_topk", 8},          {"pad_token_id", 1},
                                               {"linear_num_heads", 3},      {"linear_head_dim", 4},     {"linear_conv_kernel_dim", 3},
                                               {"first_k_dense_replace", 1}};
  for (const auto& [key, value] : sizes) text.set(key, value);
  text.set("linear_lower_bound", -5.0);
  text.set("eos_token_id", 2);
  for (const char* key : {"linear_attn_config", "mlp_layer_types"}) erase(text, key);
  text.set("layer_types", Json::Array{Json("linear_attention"), Json("full_attention"), Json("full_attention"), Json("linear_attention")});
  text.set("indexer_types", Json::Array{Json("full"), Json("full"), Json("shared"), Json("full")});
  Json& vision = section(json, "vision_config");
  const std::pair<const char*, int> vision_sizes[] = {
      {"depth", 1},     {"hidden_size", 8}, {"num_heads", 2}, {"intermediate_size", 12}, {"out_hidden_size", 20}, {"projection_intermediate_size", 7},
      {"patch_size", 3}};
  for (const auto& [key, value] : vision_sizes) vision.set(key, value);
  for (const char* key :
       {"image_token_id", "image_start_token_id", "image_end_token_id", "video_token_id", "video_start_token_id", "video_end_token_id"}) {
    json.set(key, 3);
  }
  auto parsed = parse_glm5_next_config(json);
  EXPECT_TRUE(parsed.has_value()) << parsed.error().message;
  return parsed->config;
}

class BindTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        fs::temp_directory_path() / fmt::format("lathe_bind_{}_{}", ::getpid(), ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
    config_ = small_config();
    uint32_t seed = 0;
    for (const TensorSpec& spec : glm5_next_inventory(config_)) {
      stored_[spec.name] = make_stored(spec.f32_in_release ? DType::kF32 : DType::kBF16, spec.shape, ++seed);
    }
  }
  void TearDown() override { fs::remove_all(folder_); }

  Result<Glm5NextWeights> bind() {
    std::vector<NamedView> views;
    for (auto& [name, tensor] : stored_) {
      View view;
      view.data = tensor.bytes.data();
      view.dtype = tensor.dtype;
      view.rank = static_cast<int>(tensor.shape.size());
      int64_t step = 1;
      for (size_t axis = tensor.shape.size(); axis-- > 0;) {
        view.shape[axis] = tensor.shape[axis];
        view.stride[axis] = step;
        step *= tensor.shape[axis];
      }
      views.push_back({name, view});
    }
    EXPECT_TRUE(write_safetensors(folder_ / "model.safetensors", views).has_value());
    auto opened = Checkpoint::open(folder_);
    EXPECT_TRUE(opened.has_value()) << opened.error().message;
    checkpoint_ = std::make_unique<Checkpoint>(std::move(*opened));
    return bind_glm5_next(config_, *checkpoint_);
  }
  std::string refused() {
    const auto result = bind();
    EXPECT_FALSE(result.has_value());
    return result ? "" : result.error().message;
  }
  void rename(const std::string& from, const std::string& to) {
    auto node = stored_.extract(from);
    ASSERT_FALSE(node.empty()) << from;
    node.key() = to;
    stored_.insert(std::move(node));
  }

  fs::path folder_;
  Glm5NextConfig config_;
  StoredMap stored_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

void expect_parts(const std::string& message, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
}

/// Every value of a model as floats, in the order of the inventory's structure, to compare two spellings of one model.
std::vector<std::vector<float>> values_of(const Glm5NextWeights& w) {
  std::vector<std::vector<float>> out;
  const auto matrix = [&](const MatrixView& m) {
    if (m.present()) out.push_back(to_float32(m.values));
  };
  const auto mlp = [&](const MlpWeights& m) {
    for (const MatrixView* part : {&m.gate, &m.up, &m.down}) matrix(*part);
  };
  const auto layer = [&](const LayerWeights& l) {
    for (const MhcWeights* site : {&l.attn_mhc, &l.ffn_mhc}) {
      if (!site->fn.present()) continue;
      matrix(site->fn);
      out.push_back(to_float32(site->base));
      out.push_back(to_float32(site->scale));
    }
    if (l.kda) {
      for (const MatrixView* m : {&l.kda->q, &l.kda->k, &l.kda->v, &l.kda->f_a, &l.kda->f_b, &l.kda->g_a, &l.kda->g_b, &l.kda->b, &l.kda->o})
        matrix(*m);
      for (const View* v : {&l.kda->q_conv, &l.kda->k_conv, &l.kda->v_conv, &l.kda->a_log, &l.kda->dt_bias, &l.kda->o_norm}) {
        out.push_back(to_float32(*v));
      }
    }
    if (l.dense) mlp(*l.dense);
    if (l.moe) {
      matrix(l.moe->router);
      for (const MlpWeights& expert : l.moe->experts) mlp(expert);
      mlp(l.moe->shared);
    }
  };
  matrix(w.embedding);
  matrix(w.head);
  for (const LayerWeights& l : w.layers) layer(l);
  layer(w.mtp->layer);
  return out;
}

TEST_F(BindTest, ReleasedNames) {
  const auto w = bind();
  ASSERT_TRUE(w.has_value()) << w.error().message;
  EXPECT_EQ(w->layers.size(), 4u);
  const LayerWeights& first = w->layers[0];
  ASSERT_TRUE(first.kda && first.dense && !first.dsa && !first.moe);
  EXPECT_EQ(describe(first.kda->q_conv), "bf16[12, 3]");
  EXPECT_EQ(describe(first.kda->a_log), "f32[3]");
  EXPECT_EQ(describe(first.attn_mhc.fn.values), "bf16[24, 80]");
  ASSERT_TRUE(w->layers[1].dsa && w->layers[2].dsa);
  EXPECT_TRUE(w->layers[1].dsa->indexer.has_value());
  EXPECT_FALSE(w->layers[2].dsa->indexer.has_value());
  EXPECT_EQ(describe(w->layers[1].dsa->indexer->ape), "bf16[4, 5]");
  EXPECT_EQ(w->layers[1].moe->experts.size(), 3u);
  EXPECT_EQ(w->layers[1].dsa->kv_b.rows(), 2 * (6 + 4));
  ASSERT_TRUE(w->mtp.has_value());
  EXPECT_FALSE(w->mtp->layer.attn_mhc.fn.present());
  EXPECT_EQ(w->mtp->eh_proj.cols(), 40);
  ASSERT_TRUE(w->vision.has_value());
  EXPECT_EQ(w->vision->patch_embed.weight.cols(), 3 * 2 * 3 * 3);
  EXPECT_EQ(w->vision->downsample.weight.cols(), 8 * 2 * 2);
  EXPECT_EQ(to_float32(w->norm)[7], tensor::load_as_float(DType::kBF16, stored_["model.language_model.norm.weight"].bytes.data(), 7));
}

TEST_F(BindTest, NamesWithoutLanguageModel) {
  const auto before = values_of(*bind());
  StoredMap renamed;
  for (auto& [name, tensor] : stored_) {
    std::string shorter = name;
    if (const size_t at = shorter.find("language_model."); at != std::string::npos) shorter.erase(at, std::strlen("language_model."));
    renamed[shorter] = tensor;
  }
  stored_ = renamed;
  const auto w = bind();
  ASSERT_TRUE(w.has_value()) << w.error().message;
  EXPECT_EQ(values_of(*w), before);
}

/// Appends the bytes of `parts` under one name with the given shape.
void join(StoredMap& map, const std::vector<std::string>& parts, const std::string& name, std::vector<int64_t> shape) {
  Stored whole{map.at(parts[0]).dtype, std::move(shape), {}};
  for (const std::string& part : parts) {
    const Stored& tensor = map.at(part);
    whole.bytes.insert(whole.bytes.end(), tensor.bytes.begin(), tensor.bytes.end());
    map.erase(part);
  }
  map[name] = whole;
}

TEST_F(BindTest, InMemoryNames) {
  const auto before = values_of(*bind());
  for (int layer = 0; layer <= 4; ++layer) {
    const std::string prefix = fmt::format("model.language_model.layers.{}.", layer);
    for (const char* part : {"fn", "base", "scale"}) {
      if (layer == 4) break;
      rename(fmt::format("{}hc_attn_{}", prefix, part), fmt::format("{}attn_hc.{}", prefix, part));
      rename(fmt::format("{}hc_ffn_{}", prefix, part), fmt::format("{}ffn_hc.{}", prefix, part));
    }
    if (layer == 0 || layer == 3) {
      for (const char* part : {"f_a_proj.weight", "f_b_proj.weight", "dt_bias", "A_log"}) {
        rename(prefix + "self_attn." + part, prefix + "self_attn.forget_gate." + part);
      }
      const std::string attention = prefix + "self_attn.";
      join(stored_, {attention + "q_conv1d.weight", attention + "k_conv1d.weight", attention + "v_conv1d.weight"}, attention + "conv1d.weight",
           {36, 1, 3});
    }
    if (layer >= 1) {
      std::vector<std::string> gate_up;
      std::vector<std::string> down;
      for (int expert = 0; expert < 3; ++expert) {
        const std::string base = fmt::format("{}mlp.experts.{}.", prefix, expert);
        gate_up.push_back(base + "gate_proj.weight");
        gate_up.push_back(base + "up_proj.weight");
        down.push_back(base + "down_proj.weight");
      }
      join(stored_, gate_up, prefix + "mlp.experts.gate_up_proj", {3, 12, 20});
      join(stored_, down, prefix + "mlp.experts.down_proj", {3, 20, 6});
    }
  }
  const auto w = bind();
  ASSERT_TRUE(w.has_value()) << w.error().message;
  EXPECT_EQ(values_of(*w), before);
}

TEST_F(BindTest, AnyRankOfALogAndUnitDimensions) {
  const auto before = values_of(*bind());
  stored_["model.language_model.layers.0.self_attn.A_log"].shape = {1, 1, 3, 1};
  stored_["model.language_model.layers.0.self_attn.q_conv1d.weight"].shape = {12, 3};
  stored_["model.language_model.norm.weight"].shape = {1, 20};
  const auto w = bind();
  ASSERT_TRUE(w.has_value()) << w.error().message;
  EXPECT_EQ(values_of(*w), before);
  EXPECT_EQ(w->norm.rank, 1);
  stored_["model.language_model.norm.weight"].shape = {4, 5};
  expect_parts(refused(), {"model.language_model.norm.weight", "model.safetensors", "bf16[4, 5]", "[20]"});
}

TEST_F(BindTest, MissingExtraMisshapedAndOtherDtypes) {
  const std::string name = "model.language_model.layers.1.mlp.experts.2.up_proj.weight";
  const Stored good = stored_[name];
  stored_.erase(name);
  expect_parts(refused(), {name, "lacks", "6, 20", folder_.string()});
  EXPECT_EQ(bind().error().code, Code::kNotFound);
  stored_[name] = make_stored(DType::kBF16, {20, 6}, 1);
  expect_parts(refused(), {name, "bf16[20, 6]", "[6, 20]", "model.safetensors"});
  stored_[name] = good;
  stored_[name].dtype = DType::kU8;
  stored_[name].shape = {12, 20};
  expect_parts(refused(), {name, "u8", "bf16", "f8_e4m3", "i8 with scales"});
  stored_[name] = make_stored(DType::kF16, {6, 20}, 1);
  EXPECT_TRUE(bind().has_value());
  stored_["model.language_model.layers.9.extra.weight"] = good;
  expect_parts(refused(), {"1 of", "model.language_model.layers.9.extra.weight", "bf16[6, 20]"});
  stored_.erase("model.language_model.layers.9.extra.weight");
  // The same tensor under both spellings is one too many.
  stored_["model.layers.1.mlp.experts.2.up_proj.weight"] = good;
  expect_parts(refused(), {"'model.layers.1.mlp.experts.2.up_proj.weight'"});
}

TEST_F(BindTest, Fp8NeedsItsScales) {
  const std::string name = "model.language_model.layers.0.mlp.gate_proj.weight";
  const std::string scale = name + "_scale_inv";
  stored_[name] = make_stored(DType::kF8E4M3, {130, 20}, 1);
  expect_parts(refused(), {name, "f8_e4m3", "has no", scale});
  stored_[scale] = make_scales(DType::kF32, {1, 1}, 2);
  expect_parts(refused(), {scale, "f32[1, 1]", "[2, 1]"});
  stored_[scale] = make_scales(DType::kBF16, {2, 1}, 2);
  expect_parts(refused(), {scale, "bf16", "f32"});
  stored_[scale] = make_scales(DType::kF32, {2, 1}, 2);
  const auto w = bind();
  ASSERT_TRUE(w.has_value()) << w.error().message;
  EXPECT_TRUE(w->layers[0].dense->gate.scaled());
  EXPECT_EQ(w->layers[0].dense->gate.block_rows, 128);
  EXPECT_FALSE(w->layers[0].dense->up.scaled());
  stored_[name] = make_stored(DType::kBF16, {130, 20}, 1);
  expect_parts(refused(), {name, "bf16", scale});
  stored_.erase(scale);
  // The embedding is no linear layer: nothing defines an FP8 table.
  stored_["model.language_model.embed_tokens.weight"] = make_stored(DType::kF8E4M3, {40, 20}, 1);
  expect_parts(refused(), {"embed_tokens", "f8_e4m3", "bf16, f16 or f32"});
}

TEST_F(BindTest, StackedFp8ExpertsBeginInsideScaleBlocks) {
  config_.moe.intermediate = 70;  // the up rows of an expert begin at row 70 of 140: inside the first block
  stored_.clear();
  uint32_t seed = 0;
  for (const TensorSpec& spec : glm5_next_inventory(config_)) {
    if (spec.kind == TensorKind::kExpert) continue;
    stored_[spec.name] = make_stored(spec.f32_in_release ? DType::kF32 : DType::kBF16, spec.shape, ++seed);
  }
  for (const int layer : {1, 2, 3, 4}) {
    const std::string prefix = fmt::format("model.language_model.layers.{}.mlp.experts.", layer);
    stored_[prefix + "gate_up_proj"] = make_stored(DType::kF8E4M3, {3, 140, 20}, ++seed);
    stored_[prefix + "gate_up_proj_scale_inv"] = make_scales(DType::kF32, {3, 2, 1}, ++seed);
    stored_[prefix + "down_proj"] = make_stored(DType::kF8E4M3, {3, 20, 70}, ++seed);
    stored_[prefix + "down_proj_scale_inv"] = make_scales(DType::kF32, {3, 1, 1}, ++seed);
  }
  const auto w = bind();
  ASSERT_TRUE(w.has_value()) << w.error().message;
  const MatrixView& up = w->layers[1].moe->experts[2].up;
  EXPECT_EQ(up.rows(), 70);
  EXPECT_EQ(up.row_offset, 70);
  const auto scales = to_float32(w->layers[1].moe->experts[2].gate.scales);
  EXPECT_EQ(scales.size(), 1u);
  EXPECT_EQ(up.scales.dim(0), 2);
  EXPECT_EQ(up.scales.f32()[0], scales[0]);
}

/// Element of a matrix with its scale: what every kernel must compute.
float element(const MatrixView& m, int64_t row, int64_t col) {
  const float value = tensor::load_as_float(m.values.dtype, m.values.data, row * m.values.step(0) + col);
  return value * m.scales.f32()[(row + m.row_offset) / m.block_rows * m.scales.step(0) + (col + m.col_offset) / m.block_cols];
}

TEST_F(BindTest, Fp8ScalesOfA130x200Matrix) {
  // Rows 0-127 and 128-129, columns 0-127 and 128-199: a 2 x 2 grid of scales.
  config_.intermediate = 130;
  config_.hidden = 200;
  config_.vision.reset();
  stored_.clear();
  uint32_t seed = 0;
  for (const TensorSpec& spec : glm5_next_inventory(config_)) {
    stored_[spec.name] = make_stored(spec.f32_in_release ? DType::kF32 : DType::kBF16, spec.shape, ++seed);
  }
  const std::string name = "model.language_model.layers.0.mlp.up_proj.weight";
  ASSERT_EQ(stored_[name].shape, (std::vector<int64_t>{130, 200}));
  stored_[name] = make_stored(DType::kF8E4M3, {130, 200}, 7);
  stored_[name + "_scale_inv"] = make_scales(DType::kF32, {2, 2}, 8);
  const auto w = bind();
  ASSERT_TRUE(w.has_value()) << w.error().message;
  const MatrixView& up = w->layers[0].dense->up;
  const Stored& values = stored_[name];
  const Stored& scales = stored_[name + "_scale_inv"];
  const auto expected = [&](int64_t row, int64_t col) {
    return tensor::load_as_float(DType::kF8E4M3, values.bytes.data(), row * 200 + col) *
           tensor::load_as_float(DType::kF32, scales.bytes.data(), row / 128 * 2 + col / 128);
  };
  for (const int64_t row : {0, 127, 128, 129}) {
    for (const int64_t col : {0, 127, 128, 199}) EXPECT_EQ(element(up, row, col), expected(row, col)) << row << " " << col;
  }
  const MatrixView part = slice_matrix(up, {100, 130}, {127, 200});
  for (const int64_t row : {100, 127, 128, 129}) {
    for (const int64_t col : {127, 128, 199}) EXPECT_EQ(element(part, row - 100, col - 127), expected(row, col)) << row << " " << col;
  }
  EXPECT_EQ(up.bytes(), 130 * 200 + 4 * 4);
}

TEST_F(BindTest, Int8RowsWithAScaleEachIfTheConfigAnnouncesThem) {
  config_.intermediate = 130;
  config_.hidden = 200;
  config_.vision.reset();
  stored_.clear();
  uint32_t seed = 0;
  for (const TensorSpec& spec : glm5_next_inventory(config_)) {
    stored_[spec.name] = make_stored(spec.f32_in_release ? DType::kF32 : DType::kBF16, spec.shape, ++seed);
  }
  const std::string name = "model.language_model.layers.0.mlp.up_proj.weight", scale_name = name + "_scale";
  Stored values = make_stored(DType::kF8E4M3, {130, 200}, 7);  // any bytes
  values.dtype = DType::kI8;
  Stored scales = make_stored(DType::kF32, {130, 1}, 8);
  for (int64_t i = 0; i < 130; ++i) tensor::store_from_float(DType::kF32, scales.bytes.data(), i, 0.25f + static_cast<float>(i));
  stored_[name] = values, stored_[scale_name] = scales;
  const auto message = [&] {
    const auto bound = bind();
    return bound ? std::string() : bound.error().message;
  };
  EXPECT_NE(message().find("nothing announces INT8 weights"), std::string::npos) << message();
  config_.quantization.weights = WeightFormat::kInt8;
  const auto w = bind();
  ASSERT_TRUE(w.has_value()) << w.error().message;
  const MatrixView& up = w->layers[0].dense->up;
  EXPECT_EQ(up.block_rows, 1);
  EXPECT_EQ(up.block_cols, 200);
  EXPECT_EQ(up.scales.f32()[129], 129.25f);
  EXPECT_EQ(element(up, 5, 3), tensor::load_as_float(DType::kI8, values.bytes.data(), 5 * 200 + 3) * 5.25f);
  EXPECT_EQ(up.bytes(), 130 * 200 + 130 * 4);
  stored_[scale_name] = make_stored(DType::kBF16, {130, 1}, 9);
  for (int64_t i = 0; i < 130; ++i) tensor::store_from_float(DType::kBF16, stored_[scale_name].bytes.data(), i, 0.5f);
  const auto narrow = bind();
  ASSERT_TRUE(narrow.has_value()) << narrow.error().message;
  EXPECT_EQ(narrow->layers[0].dense->up.scales.f32()[7], 0.5f);
  tensor::store_from_float(DType::kBF16, stored_[scale_name].bytes.data(), 11, 0.0f);
  EXPECT_NE(message().find("has the scale 0 at [11, 0], expected a positive number"), std::string::npos) << message();
  tensor::store_from_float(DType::kBF16, stored_[scale_name].bytes.data(), 11, std::nanf(""));
  EXPECT_NE(message().find("has the scale nan at [11, 0]"), std::string::npos) << message();
  stored_[scale_name] = make_stored(DType::kF32, {131}, 9);
  EXPECT_NE(message().find("[130, 1]"), std::string::npos) << message();
  stored_.erase(scale_name);
  EXPECT_NE(message().find("is i8, but has no '" + scale_name + "'"), std::string::npos) << message();
}

TEST(Glm5NextTensors, NamesAreUniqueAndDescribed) {
  const Glm5NextConfig config = parse_glm5_next_config(release_config())->config;
  std::set<std::string> names;
  for (const TensorSpec& spec : glm5_next_inventory(config)) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    EXPECT_NE(tensor_kind_name(spec.kind), "?");
    EXPECT_FALSE(dtype_allowed(spec, DType::kI64));
    EXPECT_TRUE(spec.fp8_allowed || !spec.fp8_in_release) << spec.name;
  }
  for (const char* name :
       {"lm_head.weight", "model.language_model.layers.45.eh_proj.weight", "model.language_model.layers.45.mlp.experts.287.down_proj.weight",
        "model.language_model.layers.3.self_attn.indexer.index_kpool_compress_ape", "model.language_model.layers.44.self_attn.A_log",
        "model.language_model.layers.45.shared_head.norm.weight", "model.visual.blocks.23.attn.q_norm.weight", "model.visual.downsample.bias"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_FALSE(names.contains("model.language_model.layers.45.hc_attn_fn"));
}

/// Every tensor of a checkpoint used once, and the totals of stored dtypes equal the files' data.
void binds(const std::string& folder) {
  const auto parsed = read_glm5_next_config(folder);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  auto checkpoint = Checkpoint::open(folder);
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  const auto w = bind_glm5_next(parsed->config, *checkpoint);
  ASSERT_TRUE(w.has_value()) << w.error().message;
  const Glm5NextTotals totals = totals_from_weights(parsed->config, *w);
  EXPECT_EQ(static_cast<uint64_t>(totals.all().bytes), checkpoint->data_bytes());
  EXPECT_EQ(static_cast<size_t>(totals.all().tensors), checkpoint->size());
  if (parsed->config.quantization.weights == WeightFormat::kFp8) {
    const Glm5NextTotals announced = totals_from_config(parsed->config);
    EXPECT_EQ(announced.all().bytes, totals.all().bytes);
    EXPECT_EQ(announced.all().fp8_matrices, totals.all().fp8_matrices);
  }
}

TEST(Glm5NextTensors, BindsTheProjectsModels) {
  for (const char* name : {"builtin", "golden/base", "golden/long"}) {
    SCOPED_TRACE(name);
    binds(std::string("data/") + name);
  }
}

TEST(Glm5NextTensors, BindsTheModelsOutside) {
  const char* root = std::getenv("LATHE_TEST_DATA");
  const std::string base = root != nullptr ? root : "../shared";
  for (const char* name : {"golden/real_heads", "tiny/bf16"}) {
    if (!base::is_directory(base + "/" + name)) {
      GTEST_SKIP() << "skipped: LATHE_TEST_DATA (" << base << ") holds no " << name;
    }
    SCOPED_TRACE(name);
    binds(base + "/" + name);
  }
}

}  // namespace
}  // namespace lathe::models
