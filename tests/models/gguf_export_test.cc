// Goal: a GGUF file holds every tensor of the text model under the name, in the shape and with the values that its readers expect, and the keys say the
// model's sizes. Read back by a reader of its own; the mapping is written down here a second time, from the other side.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "gguf_reader.h"
#include "models/gguf_export.h"
#include "random_model.h"
#include "weights/checkpoint.h"

namespace lathe::models::golden {
namespace {

namespace fs = std::filesystem;
using weights::GgufType;

constexpr GgufType kTypes[] = {GgufType::kF32, GgufType::kF16, GgufType::kBF16, GgufType::kQ8};

/// A stored tensor as float.
struct Plain {
  std::vector<int64_t> shape;
  std::vector<float> values;
  bool bf16 = false;
};

/// The tensors of a checkpoint by released name, FP8 multiplied out.
std::map<std::string, Plain> plain_tensors(const std::string& folder) {
  auto checkpoint = weights::Checkpoint::open(folder).value();
  std::map<std::string, Plain> out;
  for (const std::string& name : checkpoint.names()) {
    const weights::TensorEntry& entry = *checkpoint.find(name);
    if (name.ends_with("_scale_inv")) continue;
    Plain plain{.shape = entry.shape, .values = {}, .bf16 = entry.dtype == DType::kBF16};
    const View view = checkpoint.take(name).value();
    plain.values.resize(static_cast<size_t>(view.elements()));
    for (size_t i = 0; i < plain.values.size(); ++i) plain.values[i] = tensor::load_as_float(entry.dtype, view.data, static_cast<int64_t>(i));
    if (checkpoint.has(name + "_scale_inv")) {
      const View scales = checkpoint.take(name + "_scale_inv").value();
      const auto cols = static_cast<size_t>(entry.shape[1]);
      for (size_t i = 0; i < plain.values.size(); ++i)
        plain.values[i] *= scales.f32()[i / cols / 128 * static_cast<size_t>(scales.dim(1)) + i % cols / 128];
    }
    out.emplace(name, std::move(plain));
  }
  return out;
}

/// What a GGUF tensor is made of, by the part of its name behind "blk.N.".
struct Origin {
  const char* stored;  ///< behind "layers.N."
  char form = 'p';     ///< p as it is, x experts, c convolution, a −exp, k and v the halves of kv_b
  bool f32 = false;
};
const std::map<std::string, Origin>& origins() {
  static const std::map<std::string, Origin> map = {
      {"attn_norm.weight", {"input_layernorm.weight", 'p', true}},
      {"ffn_norm.weight", {"post_attention_layernorm.weight", 'p', true}},
      {"hc_attn_fn.weight", {"hc_attn_fn", 'p', true}},
      {"hc_attn_base.weight", {"hc_attn_base", 'p', true}},
      {"hc_attn_scale.weight", {"hc_attn_scale", 'p', true}},
      {"hc_ffn_fn.weight", {"hc_ffn_fn", 'p', true}},
      {"hc_ffn_base.weight", {"hc_ffn_base", 'p', true}},
      {"hc_ffn_scale.weight", {"hc_ffn_scale", 'p', true}},
      {"attn_q.weight", {"self_attn.q_proj.weight"}},
      {"attn_k.weight", {"self_attn.k_proj.weight"}},
      {"attn_v.weight", {"self_attn.v_proj.weight"}},
      {"ssm_conv1d_q.weight", {"self_attn.q_conv1d.weight", 'c', true}},
      {"ssm_conv1d_k.weight", {"self_attn.k_conv1d.weight", 'c', true}},
      {"ssm_conv1d_v.weight", {"self_attn.v_conv1d.weight", 'c', true}},
      {"ssm_f_a.weight", {"self_attn.f_a_proj.weight"}},
      {"ssm_f_b.weight", {"self_attn.f_b_proj.weight"}},
      {"ssm_g_a.weight", {"self_attn.g_a_proj.weight"}},
      {"ssm_g_b.weight", {"self_attn.g_b_proj.weight"}},
      {"ssm_beta.weight", {"self_attn.b_proj.weight"}},
      {"ssm_a", {"self_attn.A_log", 'a', true}},
      {"ssm_dt.bias", {"self_attn.dt_bias", 'p', true}},
      {"ssm_norm.weight", {"self_attn.o_norm.weight", 'p', true}},
      {"attn_output.weight", {"self_attn.o_proj.weight"}},
      {"attn_q_a.weight", {"self_attn.q_a_proj.weight"}},
      {"attn_q_a_norm.weight", {"self_attn.q_a_layernorm.weight", 'p', true}},
      {"attn_q_b.weight", {"self_attn.q_b_proj.weight"}},
      {"attn_kv_a_mqa.weight", {"self_attn.kv_a_proj_with_mqa.weight"}},
      {"attn_kv_a_norm.weight", {"self_attn.kv_a_layernorm.weight", 'p', true}},
      {"attn_k_b.weight", {"self_attn.kv_b_proj.weight", 'k'}},
      {"attn_v_b.weight", {"self_attn.kv_b_proj.weight", 'v'}},
      {"indexer.attn_q_b.weight", {"self_attn.indexer.wq_b.weight"}},
      {"indexer.attn_k.weight", {"self_attn.indexer.wk.weight"}},
      {"indexer.proj.weight", {"self_attn.indexer.weights_proj.weight", 'p', true}},
      {"indexer.k_norm.weight", {"self_attn.indexer.k_norm.weight", 'p', true}},
      {"indexer.k_norm.bias", {"self_attn.indexer.k_norm.bias", 'p', true}},
      {"indexer_compressor_gate.weight", {"self_attn.indexer.index_kpool_compress_gate"}},
      {"indexer_compressor_ape.weight", {"self_attn.indexer.index_kpool_compress_ape", 'p', true}},
      {"ffn_gate.weight", {"mlp.gate_proj.weight"}},
      {"ffn_up.weight", {"mlp.up_proj.weight"}},
      {"ffn_down.weight", {"mlp.down_proj.weight"}},
      {"ffn_gate_inp.weight", {"mlp.gate.weight", 'p', true}},
      {"exp_probs_b.bias", {"mlp.gate.e_score_correction_bias", 'p', true}},
      {"ffn_gate_exps.weight", {"mlp.experts.%.gate_proj.weight", 'x'}},
      {"ffn_up_exps.weight", {"mlp.experts.%.up_proj.weight", 'x'}},
      {"ffn_down_exps.weight", {"mlp.experts.%.down_proj.weight", 'x'}},
      {"ffn_gate_shexp.weight", {"mlp.shared_experts.gate_proj.weight"}},
      {"ffn_up_shexp.weight", {"mlp.shared_experts.up_proj.weight"}},
      {"ffn_down_shexp.weight", {"mlp.shared_experts.down_proj.weight"}},
      {"nextn.eh_proj.weight", {"eh_proj.weight"}},
      {"nextn.enorm.weight", {"enorm.weight", 'p', true}},
      {"nextn.hnorm.weight", {"hnorm.weight", 'p', true}},
      {"nextn.shared_head_norm.weight", {"shared_head.norm.weight", 'p', true}},
  };
  return map;
}

struct Sizes {
  int64_t heads = 3, nope = 8, value = 8, experts = 6;
};

/// Finds what a GGUF tensor must hold and marks what it is made of.
class Expected {
 public:
  Expected(const std::string& folder, Sizes sizes) : stored_(plain_tensors(folder)), sizes_(sizes) {}

  Plain of(const std::string& name, bool& f32) {
    f32 = name == "output_norm.weight";
    if (name == "token_embd.weight") return take("model.language_model.embed_tokens.weight");
    if (name == "output_norm.weight") return take("model.language_model.norm.weight");
    if (name == "output.weight") return take("lm_head.weight");
    const size_t dot = name.find('.', 4);
    const auto origin = origins().find(name.substr(dot + 1));
    if (!name.starts_with("blk.") || origin == origins().end()) return {};
    f32 = origin->second.f32;
    return formed(origin->second, "model.language_model.layers." + name.substr(4, dot - 3));
  }
  /// Tensors of the text model that no GGUF tensor was made of.
  std::vector<std::string> left_over() const {
    std::vector<std::string> out;
    for (const auto& [name, plain] : stored_) {
      if (!used_.contains(name) && !name.starts_with("model.visual.")) out.push_back(name);
    }
    return out;
  }

 private:
  Plain take(const std::string& name) {
    used_.insert(name);
    return stored_[name];
  }

  Plain formed(const Origin& origin, const std::string& layer) {
    if (origin.form == 'x') return experts(layer + origin.stored);
    Plain plain = take(layer + origin.stored);
    if (origin.form == 'c') plain.shape = {1, plain.shape[0], 1, plain.shape[2]};
    if (origin.form == 'a') {
      for (float& value : plain.values) value = -std::exp(value);
    }
    if (origin.form == 'k' || origin.form == 'v') return half_of(plain, origin.form == 'k');
    return plain;
  }

  Plain experts(const std::string& pattern) {
    Plain out;
    const size_t place = pattern.find('%');
    for (int64_t expert = 0; expert < sizes_.experts; ++expert) {
      const Plain one = take(pattern.substr(0, place) + std::to_string(expert) + pattern.substr(place + 1));
      out.shape = {sizes_.experts, one.shape.at(0), one.shape.at(1)};
      out.bf16 = one.bf16;
      out.values.insert(out.values.end(), one.values.begin(), one.values.end());
    }
    return out;
  }

  Plain half_of(const Plain& kv, bool keys) const {
    const int64_t latents = kv.shape[1];
    const auto at = [&](int64_t row, int64_t col) { return kv.values[static_cast<size_t>(row * latents + col)]; };
    Plain out{.shape = keys ? std::vector<int64_t>{sizes_.heads, latents, sizes_.nope} : std::vector<int64_t>{sizes_.heads, sizes_.value, latents},
              .values = {},
              .bf16 = kv.bf16};
    for (int64_t head = 0; head < sizes_.heads; ++head) {
      const int64_t first = head * (sizes_.nope + sizes_.value);
      for (int64_t i = 0; i < out.shape[1]; ++i) {
        for (int64_t j = 0; j < out.shape[2]; ++j) out.values.push_back(keys ? at(first + j, i) : at(first + sizes_.nope + i, j));
      }
    }
    return out;
  }

  std::map<std::string, Plain> stored_;
  std::set<std::string> used_;
  Sizes sizes_;
};

/// Number of the type that a tensor must have.
uint32_t wanted_type(GgufType type, bool f32, int64_t row) {
  if (f32) return 0;
  if (type == GgufType::kQ8 && row % 32 != 0) return 1;
  return static_cast<uint32_t>(type);
}

/// Greatest distance from x that a value of the type may have: half of its last place; of q8_0 half a step, and the scale's own rounding.
float budget(const GgufReadTensor& tensor, size_t i, float x) {
  switch (tensor.type) {
    case 1: return std::abs(x) * 0x1p-11f + 0x1p-25f;
    case 8: return tensor.slack[i] * 1.001f + std::abs(x) * 0x1p-11f;
    case 30: return std::abs(x) * 0x1p-8f;
    default: return 0;
  }
}

std::string temporary(const char* name) { return testing::TempDir() + fmt::format("lathe_gguf_{}_{}", ::getpid(), name); }

GgufExportReport exported(const std::string& model, const std::string& path, GgufType type) {
  GgufExportOptions options;
  options.name = "a model";
  options.type = type;
  options.threads = 2;
  const auto report = export_gguf(model, path, options, [](uint64_t, uint64_t) { return true; });
  EXPECT_TRUE(report.has_value()) << report.error().message;
  return report ? *report : GgufExportReport{};
}

void expect_same(const GgufReadTensor& tensor, const Plain& plain, GgufType type, const std::string& name) {
  ASSERT_EQ(tensor.shape, plain.shape) << name;
  ASSERT_EQ(tensor.values.size(), plain.values.size()) << name;
  const bool exact = tensor.type == 0 || (tensor.type == 30 && plain.bf16);
  size_t wrong = 0;
  float worst = 0;
  for (size_t i = 0; i < plain.values.size(); ++i) {
    const float off = std::abs(tensor.values[i] - plain.values[i]);
    if (!(off <= (exact ? 0.0f : budget(tensor, i, plain.values[i])))) ++wrong, worst = std::max(worst, off);
  }
  EXPECT_EQ(wrong, 0u) << name << " as " << weights::gguf_type_name(type) << ", off by up to " << worst;
}

void expect_whole(const std::string& model, GgufType type, Sizes sizes) {
  const std::string path = temporary("whole.gguf");
  const GgufExportReport report = exported(model, path, type);
  const GgufRead file = read_gguf(path);
  ASSERT_EQ(file.problem, "");
  EXPECT_EQ(static_cast<int64_t>(file.tensors.size()), report.tensors);
  EXPECT_EQ(fs::file_size(path), report.bytes);
  Expected expected(model, sizes);
  for (const auto& [name, tensor] : file.tensors) {
    bool f32 = false;
    const Plain plain = expected.of(name, f32);
    ASSERT_FALSE(plain.values.empty()) << "nothing explains " << name;
    EXPECT_EQ(tensor.type, wanted_type(type, f32, plain.shape.back())) << name;
    expect_same(tensor, plain, type, name);
  }
  EXPECT_EQ(expected.left_over(), std::vector<std::string>()) << "stored tensors that are not in the file";
  fs::remove(path);
}

TEST(GgufExport, HoldsEveryTensorOfARandomModel) {
  for (const GgufType type : kTypes) {
    for (const bool fp8 : {false, true}) {
      const RandomCheckpoint small({.sizes = {}, .fp8 = fp8});  // rows of 40: no whole blocks
      expect_whole(small.directory(), type, {});
      const RandomCheckpoint wide(
          {.sizes = {{"hidden_size", 160}, {"moe_intermediate_size", 32}, {"kv_lora_rank", 32}, {"v_head_dim", 12}}, .fp8 = fp8});
      expect_whole(wide.directory(), type, {.value = 12});
    }
  }
}

TEST(GgufExport, HoldsEveryTensorOfTheBuiltInModel) {
  for (const GgufType type : {GgufType::kF32, GgufType::kQ8})
    expect_whole(LATHE_SOURCE_DIR "/data/builtin", type, {.heads = 4, .nope = 128, .value = 128, .experts = 8});
}

TEST(GgufExport, KeysSayTheSizes) {
  const std::string path = temporary("keys.gguf");
  exported(LATHE_SOURCE_DIR "/data/builtin", path, GgufType::kF16);
  const GgufRead file = read_gguf(path);
  ASSERT_EQ(file.problem, "");
  fs::remove(path);
  const auto text = [&](const char* name) { return file.keys.at(name).strings.at(0); };
  EXPECT_EQ(text("general.architecture"), "glm5next");
  EXPECT_EQ(text("general.name"), "a model");
  EXPECT_EQ(text("tokenizer.ggml.model"), "no_vocab");
  EXPECT_EQ(file.keys.at("general.file_type").numbers, std::vector<double>{1});
  constexpr uint32_t kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7;
  struct Wanted {
    const char* name;
    uint32_t type;
    std::vector<double> values;
  };
  const Wanted wanted[] = {{"vocab_size", kU32, {3584}},
                           {"context_length", kU32, {1048576}},
                           {"embedding_length", kU32, {384}},
                           {"block_count", kU32, {9}},
                           {"feed_forward_length", kU32, {512}},
                           {"attention.head_count", kU32, {4}},
                           {"attention.head_count_kv", kI32, {0, 0, 0, 1, 0, 0, 0, 1, 1}},
                           {"attention.layer_norm_rms_epsilon", kF32, {static_cast<double>(1e-5f)}},
                           {"attention.layer_norm_epsilon", kF32, {static_cast<double>(1e-6f)}},
                           {"attention.q_lora_rank", kU32, {128}},
                           {"attention.kv_lora_rank", kU32, {128}},
                           {"attention.key_length", kU32, {128}},
                           {"attention.value_length", kU32, {128}},
                           {"attention.key_length_mla", kU32, {128}},
                           {"attention.value_length_mla", kU32, {128}},
                           {"rope.dimension_count", kU32, {0}},
                           {"ssm.conv_kernel", kU32, {4}},
                           {"kda.head_dim", kU32, {128}},
                           {"kda.gate_lower_bound", kF32, {-5}},
                           {"attention.indexer.head_count", kU32, {8}},
                           {"attention.indexer.key_length", kU32, {64}},
                           {"attention.indexer.top_k", kU32, {256}},
                           {"attention.indexer.kpool", kU32, {4}},
                           {"attention.indexer.block_size", kU32, {4}},
                           {"hyper_connection.count", kU32, {4}},
                           {"hyper_connection.sinkhorn_iterations", kU32, {20}},
                           {"hyper_connection.epsilon", kF32, {static_cast<double>(1e-6f)}},
                           {"expert_count", kU32, {8}},
                           {"expert_used_count", kU32, {2}},
                           {"expert_shared_count", kU32, {1}},
                           {"expert_feed_forward_length", kU32, {128}},
                           {"expert_shared_feed_forward_length", kU32, {128}},
                           {"leading_dense_block_count", kU32, {2}},
                           {"expert_weights_scale", kF32, {2.5}},
                           {"expert_weights_norm", kBool, {1}},
                           {"expert_gating_func", kU32, {2}},
                           {"swiglu_clamp_exp", kF32, std::vector<double>(9, 10)},
                           {"swiglu_clamp_shexp", kF32, std::vector<double>(9, 10)},
                           {"nextn_predict_layers", kU32, {1}}};
  for (const Wanted& key : wanted) {
    const auto found = file.keys.find(std::string("glm5next.") + key.name);
    ASSERT_NE(found, file.keys.end()) << key.name;
    EXPECT_EQ(found->second.type, key.type) << key.name;
    EXPECT_EQ(found->second.numbers, key.values) << key.name;
  }
  EXPECT_EQ(file.keys.size(), std::size(wanted) + 6) << "no key that nothing expects";
}

std::string refusal(const RandomModel& model) {
  const RandomCheckpoint checkpoint(model);
  const auto report = export_gguf(checkpoint.directory(), temporary("refused.gguf"), {}, [](uint64_t, uint64_t) { return true; });
  EXPECT_FALSE(report.has_value());
  if (report) return "";
  EXPECT_EQ(report.error().code, Code::kUnimplemented) << report.error().message;
  return report.error().message;
}

TEST(GgufExport, RefusesWhatReadersDoNotCompute) {
  EXPECT_NE(refusal({.sizes = {{"linear_num_heads", 2}}}).find("num_heads is 2"), std::string::npos);
  EXPECT_NE(refusal({.sizes = {}, .softplus_gate = true}).find("gate_lower_bound is null"), std::string::npos);
  EXPECT_NE(refusal({.sizes = {}, .tail = false}).find("always_select_tail is false"), std::string::npos);
  EXPECT_NE(refusal({.sizes = {{"n_group", 2}, {"topk_group", 1}}}).find("n_group is 2"), std::string::npos);
  EXPECT_NE(refusal({.sizes = {}, .mlps = {"dense", "sparse", "dense"}}).find("mlp_layer_types"), std::string::npos);
  const std::vector<std::string> sparse = {"linear_attention", "deepseek_sparse_attention", "deepseek_sparse_attention"};
  EXPECT_NE(refusal({.sizes = {}, .layers = sparse, .indexers = {"full", "full", "shared"}}).find("indexer_types"), std::string::npos);
}

TEST(GgufExport, StoppedItLeavesNothing) {
  const RandomCheckpoint checkpoint({.sizes = {}});
  const std::string path = temporary("stopped.gguf");
  const auto report = export_gguf(checkpoint.directory(), path, {}, [](uint64_t, uint64_t) { return false; });
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code, Code::kCancelled);
  EXPECT_FALSE(base::file_exists(path) || base::file_exists(path + ".part" + std::to_string(::getpid())));
}

}  // namespace
}  // namespace lathe::models::golden
