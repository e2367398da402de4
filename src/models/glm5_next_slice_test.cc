// Goal: a slice is a whole checkpoint with the model's layers in their order; its bytes depend on seed and names alone; no half of one has a name.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "models/glm5_next_config.h"
#include "models/glm5_next_release.h"
#include "models/glm5_next_tensors.h"
#include "models/glm5_next_test_config.h"
#include "models/slice.h"
#include "weights/checkpoint.h"

namespace lathe::models {
namespace {

namespace fs = std::filesystem;
using config::Json;

constexpr uint64_t kSmallShard = 300'000;

class SliceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(base_);
    fs::create_directories(base_ + "/companion");
    // A companion with few ids, and a model of small odd sizes.
    Json json = release_config();
    Json& text = section(json, "text_config");
    text.set("vocab_size", 40);
    text.set("eos_token_id", Json::Array{Json(1), Json(2)});
    text.set("pad_token_id", 0);
    for (const char* name :
         {"image_token_id", "video_token_id", "image_start_token_id", "image_end_token_id", "video_start_token_id", "video_end_token_id"}) {
      json.set(name, 3);
    }
    put("companion/config.json", json.dump());
    put("companion/tokenizer.json", "{}");
    const std::pair<const char*, int> sizes[] = {
        {"vocab_size", 72},         {"hidden_size", 136},     {"intermediate_size", 200}, {"moe_intermediate_size", 40}, {"qk_nope_head_dim", 16},
        {"qk_head_dim", 16},        {"v_head_dim", 8},        {"num_attention_heads", 2}, {"q_lora_rank", 24},           {"kv_lora_rank", 16},
        {"num_key_value_heads", 2}, {"n_routed_experts", 12}, {"index_n_heads", 2},       {"index_head_dim", 16},        {"num_experts_per_tok", 2}};
    for (const auto& [key, value] : sizes) text.set(key, value);
    section(text, "linear_attn_config").set("num_heads", 2);
    section(text, "linear_attn_config").set("head_dim", 16);
    section(json, "vision_config").set("depth", 1);
    section(json, "vision_config").set("hidden_size", 32);
    section(json, "vision_config").set("num_heads", 2);
    section(json, "vision_config").set("intermediate_size", 24);
    section(json, "vision_config").set("out_hidden_size", 136);
    section(json, "vision_config").set("projection_intermediate_size", 24);
    put("model.json", json.dump());
  }
  void TearDown() override { fs::remove_all(base_); }

  void put(const std::string& name, const std::string& text) const { ASSERT_TRUE(base::write_file(base_ + "/" + name, text).has_value()); }
  SliceOptions small() const {
    return {.config = base_ + "/model.json", .companion = base_ + "/companion", .experts = 4, .shard_bytes = kSmallShard};
  }
  Result<SliceReport> make(const std::string& name, const SliceOptions& options) const {
    return make_slice(base_ + "/" + name, options, [](uint64_t) { return true; });
  }
  std::string refused(const SliceOptions& options) const {
    const auto report = plan_slice(options);
    EXPECT_FALSE(report.has_value());
    return report ? "" : report.error().message;
  }
  /// Names and bytes of all files of weights.
  std::map<std::string, std::string> weights_of(const std::string& name) const {
    std::map<std::string, std::string> out;
    for (const auto& entry : fs::directory_iterator(base_ + "/" + name)) {
      if (entry.path().extension() == ".safetensors") out[entry.path().filename()] = base::read_file(entry.path(), 1 << 24).value();
    }
    return out;
  }

  const std::string base_ = testing::TempDir() + "lathe_slice_" + std::to_string(::getpid());
};

TEST_F(SliceTest, HoldsEveryTensorOfItsConfigOnce) {
  for (const bool fp8 : {true, false}) {
    SliceOptions options = small();
    options.fp8 = fp8;
    const std::string name = fp8 ? "fp8" : "bf16";
    const auto report = make(name, options);
    ASSERT_TRUE(report.has_value()) << report.error().message;
    const auto parsed = read_glm5_next_config(base_ + "/" + name);
    ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
    EXPECT_TRUE(parsed->warnings.empty()) << parsed->warnings.front();
    auto checkpoint = weights::Checkpoint::open(base_ + "/" + name);
    ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
    EXPECT_EQ(static_cast<int64_t>(checkpoint->size()), report->tensors);
    EXPECT_EQ(checkpoint->data_bytes(), report->bytes);
    EXPECT_EQ(static_cast<int64_t>(checkpoint->files().size()), report->shards);
    EXPECT_GT(report->shards, 2);
    const auto bound = bind_glm5_next(parsed->config, *checkpoint);
    ASSERT_TRUE(bound.has_value()) << bound.error().message;
    EXPECT_EQ(bound->layers[0].dense->gate.scaled(), fp8);
    EXPECT_EQ(bound->layers[1].moe->experts.size(), 4u);
    EXPECT_FALSE(bound->layers[0].kda->q.scaled());
    EXPECT_TRUE(base::file_exists(base_ + "/" + name + "/tokenizer.json"));
  }
}

TEST_F(SliceTest, KeepsTheScheduleOfTheModel) {
  const auto plan = plan_slice({.config = {}, .companion = base_ + "/companion"});
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  EXPECT_EQ(plan->vocabulary, 154880);
  EXPECT_EQ(plan->kda_layers, 3);
  EXPECT_EQ(plan->dense_layers, 1);
  // Embedding, head, three linear layers, a dense one, the sparse one, three of 32 + 1 experts, the draft layer, the vision tower.
  EXPECT_EQ(plan->parameters, 6'005'595'544);
  const auto twelve = plan_slice({.config = {}, .companion = base_ + "/companion", .layers = 12, .experts = 8, .draft = false, .vision = false});
  EXPECT_EQ(twelve->kda_layers, 9);
  EXPECT_EQ(twelve->dense_layers, 3);
  const auto whole = plan_slice({.config = {}, .companion = base_ + "/companion", .layers = 45, .experts = 288});
  EXPECT_EQ(whole->parameters, 321'323'031'390) << "all layers and experts are the published model";
  EXPECT_EQ(whole->bytes, 328'326'771'576u);
}

TEST_F(SliceTest, TakesTokenIdsFromTheCompanion) {
  ASSERT_TRUE(make("out", small()).has_value());
  const Glm5NextConfig config = read_glm5_next_config(base_ + "/out")->config;
  EXPECT_EQ(config.vocab, 72);
  EXPECT_EQ(config.tokens.eos, (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(config.tokens.image, 3);
}

TEST_F(SliceTest, BytesDependOnTheSeedAlone) {
  SliceOptions options = small();
  ASSERT_TRUE(make("one", options).has_value());
  options.threads = 3;
  ASSERT_TRUE(make("three", options).has_value());
  EXPECT_EQ(weights_of("one"), weights_of("three"));
  options.seed = 2;
  ASSERT_TRUE(make("other", options).has_value());
  EXPECT_NE(weights_of("one"), weights_of("other"));
}

TEST_F(SliceTest, AnInterruptedOneGoesOn) {
  const SliceOptions options = small();
  ASSERT_TRUE(make("whole", options).has_value());
  const auto stopped = make_slice(base_ + "/out", options, [](uint64_t done) { return done < 2 * kSmallShard; });
  ASSERT_FALSE(stopped.has_value());
  EXPECT_EQ(stopped.error().code, Code::kCancelled);
  EXPECT_FALSE(base::file_exists(base_ + "/out"));
  SliceOptions other = options;
  other.seed = 2;
  const auto mixed = make("out", other);
  ASSERT_FALSE(mixed.has_value());
  EXPECT_EQ(mixed.error().code, Code::kAlreadyExists);
  // Nor by another generator: the number behind the first words.
  const std::string file = base_ + "/out.part/work.txt";
  const std::string work = base::read_file(file, 1 << 16).value();
  ASSERT_TRUE(work.starts_with("random weights 1, ")) << work;
  ASSERT_TRUE(base::write_file(file, "random weights 0, " + work.substr(18)).has_value());
  EXPECT_EQ(make("out", options).error().code, Code::kAlreadyExists);
  ASSERT_TRUE(base::write_file(file, work).has_value());
  uint64_t first = 0;
  const auto report = make_slice(base_ + "/out", options, [&](uint64_t done) { return first = first == 0 ? done : first, true; });
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_GE(report->shards_kept, 1);
  EXPECT_LT(report->shards_kept, report->shards);
  EXPECT_GT(first, kSmallShard / 2) << "progress counts what was kept";
  EXPECT_EQ(weights_of("out"), weights_of("whole"));
  EXPECT_EQ(make("out", options).error().code, Code::kAlreadyExists);
}

TEST_F(SliceTest, RefusesWhatDoesNotFitTheModel) {
  const auto with = [&](auto change) {
    SliceOptions options = small();
    change(options);
    return refused(options);
  };
  EXPECT_EQ(with([](auto& o) { o.layers = 46; }), "the slice has 46 layers, expected 1 to 45, as the model");
  EXPECT_NE(with([](auto& o) { o.layers = 0; }).find("0 layers"), std::string::npos);
  EXPECT_NE(with([](auto& o) { o.dense_layers = 5; }).find("0 to 4"), std::string::npos);
  EXPECT_NE(with([](auto& o) { o.experts = 1; }).find("1 experts, expected 2"), std::string::npos);
  EXPECT_NE(with([](auto& o) { o.experts = 13; }).find("to 12"), std::string::npos);
  EXPECT_NE(with([](auto& o) { o.vocabulary = 39; }).find("vocabulary of 39, expected 40"), std::string::npos);
  EXPECT_NE(with([&](auto& o) { o.config = base_ + "/none"; }).find("none"), std::string::npos);
}

}  // namespace
}  // namespace lathe::models
