#include <fmt/format.h>

#include <algorithm>

#include "models/glm5_next_gguf.h"

namespace lathe::models {
namespace {

using weights::GgufKey;
using weights::GgufType;

constexpr float kIndexNormEps = 1e-6f;  // of the index keys' layer norm, which no config says
constexpr uint32_t kSigmoidGating = 2;

/// Numbers that name the type of most tensors.
uint32_t file_type(GgufType type) {
  switch (type) {
    case GgufType::kF32: return 0;
    case GgufType::kF16: return 1;
    case GgufType::kQ8: return 7;
    case GgufType::kBF16: return 32;
  }
  return 0;
}

/// What the arch has no key for: programs that read such a file would compute another model.
Result<void> check_arch(const Glm5NextConfig& c) {
  const auto refuse = [](const char* what, auto value, const char* expected) {
    return err(Code::kUnimplemented, "{} is {}; GGUF files of arch glm5next can only say {}", what, value, expected);
  };
  if (c.mla.heads != c.kda.heads) return refuse("linear_attn_config.num_heads", c.kda.heads, "num_attention_heads");
  if (!c.kda.gate_lower_bound) return refuse("linear_attn_config.gate_lower_bound", "null", "a number");
  if (c.moe.groups != 1) return refuse("n_group", c.moe.groups, "1");
  if (c.indexer.kpool > 1 && !c.indexer.always_select_tail) return refuse("index_kpool_always_select_tail", false, "true");
  if (std::count(c.indexers.begin(), c.indexers.end(), IndexerKind::kShared) > 0) return refuse("indexer_types", "shared somewhere", "full");
  if (!std::is_sorted(c.ffns.begin(), c.ffns.end())) return refuse("mlp_layer_types", "dense behind a sparse layer", "dense layers in front");
  return {};
}

/// Names of the arch's keys in front of their values.
class Keys {
 public:
  explicit Keys(std::vector<GgufKey>& out) : out_(out) {}
  void count(const char* name, int64_t value) { add(name, static_cast<uint32_t>(value)); }
  template <class T>
  void add(const char* name, T value) {
    out_.push_back({fmt::format("glm5next.{}", name), std::move(value)});
  }

 private:
  std::vector<GgufKey>& out_;
};

void add_attention(const Glm5NextConfig& c, Keys& keys, int64_t blocks) {
  std::vector<int32_t> kv_heads(static_cast<size_t>(blocks), 1);  // the draft layer has one
  for (size_t layer = 0; layer < c.mixers.size(); ++layer) kv_heads[layer] = c.mixers[layer] == MixerKind::kDsa ? 1 : 0;
  keys.count("attention.head_count", c.mla.heads);
  keys.add("attention.head_count_kv", std::move(kv_heads));
  keys.add("attention.layer_norm_rms_epsilon", c.rms_norm_eps);
  keys.add("attention.layer_norm_epsilon", kIndexNormEps);
  keys.count("attention.q_lora_rank", c.mla.q_lora_rank);
  keys.count("attention.kv_lora_rank", c.mla.kv_lora_rank);
  keys.count("attention.key_length", c.mla.kv_lora_rank);
  keys.count("attention.value_length", c.mla.kv_lora_rank);
  keys.count("attention.key_length_mla", c.mla.nope_dim);
  keys.count("attention.value_length_mla", c.mla.v_dim);
  keys.count("rope.dimension_count", 0);
  keys.count("ssm.conv_kernel", c.kda.conv_width);
  keys.count("kda.head_dim", c.kda.head_dim);
  keys.add("kda.gate_lower_bound", *c.kda.gate_lower_bound);
  keys.count("attention.indexer.head_count", c.indexer.heads);
  keys.count("attention.indexer.key_length", c.indexer.head_dim);
  keys.count("attention.indexer.top_k", c.indexer.topk_tokens);
  keys.count("attention.indexer.kpool", c.indexer.kpool);
  keys.count("attention.indexer.block_size", c.indexer.kpool);  // the other spelling that readers know
}

void add_ffn(const Glm5NextConfig& c, Keys& keys, int64_t blocks) {
  keys.count("expert_count", c.moe.experts);
  keys.count("expert_used_count", c.moe.experts_per_token);
  keys.count("expert_shared_count", c.moe.shared_experts);
  keys.count("expert_feed_forward_length", c.moe.intermediate);
  keys.count("expert_shared_feed_forward_length", c.moe.shared_intermediate());
  keys.count("leading_dense_block_count", c.count(FfnKind::kDense));
  keys.add("expert_weights_scale", c.moe.routed_scale);
  keys.add("expert_weights_norm", c.moe.normalise_topk);
  keys.add("expert_gating_func", kSigmoidGating);
  const std::vector<float> clamps(static_cast<size_t>(blocks), c.swiglu_limit);
  keys.add("swiglu_clamp_exp", clamps);
  keys.add("swiglu_clamp_shexp", clamps);
}

}  // namespace

Result<std::vector<GgufKey>> gguf_keys(const Glm5NextConfig& c, const std::string& name, GgufType type) {
  LATHE_TRY_VOID(check_arch(c));
  std::vector<GgufKey> out = {{"general.architecture", std::string("glm5next")},
                              {"general.type", std::string("model")},
                              {"general.name", name},
                              {"general.file_type", file_type(type)},
                              {"general.quantization_version", uint32_t{2}}};
  const int64_t blocks = c.layers + (c.draft_layer ? 1 : 0);
  Keys keys(out);
  keys.count("vocab_size", c.vocab);
  keys.count("context_length", c.max_positions);
  keys.count("embedding_length", c.hidden);
  keys.count("block_count", blocks);
  keys.count("feed_forward_length", c.intermediate);
  add_attention(c, keys, blocks);
  keys.count("hyper_connection.count", c.mhc.streams);
  keys.count("hyper_connection.sinkhorn_iterations", c.mhc.sinkhorn_iterations);
  keys.add("hyper_connection.epsilon", c.mhc.eps);
  add_ffn(c, keys, blocks);
  keys.count("nextn_predict_layers", c.draft_layer ? 1 : 0);
  return out;
}

}  // namespace lathe::models
