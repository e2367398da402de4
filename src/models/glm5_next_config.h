#pragma once
// Dimensions and rules of one glm5_next model, read from its config.json. Everything behind this header trusts the values: they are checked here.
// Source: spec/glm5_next.md §1 (keys, loader rule, aliases) and §2.9 (configurations beyond the release).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "config/json.h"
#include "models/quantization_config.h"
#include "tensor/dtype.h"

namespace lathe::models {

enum class MixerKind : uint8_t { kKda, kDsa };  ///< linear attention; sparse MLA
enum class FfnKind : uint8_t { kDense, kMoe };
enum class IndexerKind : uint8_t { kNone, kFull, kShared };  ///< kNone on KDA layers; kShared reuses the selection of the layer before it

std::string_view mixer_name(MixerKind kind);      ///< "kda", "dsa"
std::string_view ffn_name(FfnKind kind);          ///< "dense", "moe"
std::string_view indexer_name(IndexerKind kind);  ///< "none", "full", "shared"

struct KdaConfig {
  int64_t heads = 0;
  int64_t head_dim = 0;    ///< K = V
  int64_t conv_width = 0;  ///< taps, the current token included
  /// g = bound · σ(exp(A_log)·(a + dt_bias)); without it g = −exp(A_log) · softplus(a + dt_bias).
  std::optional<float> gate_lower_bound;

  int64_t channels() const { return heads * head_dim; }
};

struct MlaConfig {
  int64_t heads = 0;
  int64_t q_lora_rank = 0;
  int64_t kv_lora_rank = 0;
  int64_t nope_dim = 0;  ///< query and key width per head; the score scale is nope_dim^-0.5
  int64_t v_dim = 0;
};

struct IndexerConfig {
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t topk_tokens = 0;  ///< a multiple of kpool
  int64_t kpool = 0;        ///< tokens per pool; 1: every token is a pool and there is no tail
  bool always_select_tail = true;

  int64_t topk_pools() const { return topk_tokens / kpool; }
};

struct MoeConfig {
  int64_t experts = 0;
  int64_t experts_per_token = 0;
  int64_t shared_experts = 1;  ///< one shared MLP of width intermediate · shared_experts
  int64_t intermediate = 0;
  int64_t groups = 1;
  int64_t groups_kept = 1;
  float routed_scale = 0;
  bool normalise_topk = true;

  int64_t shared_intermediate() const { return intermediate * shared_experts; }
};

struct MhcConfig {
  int64_t streams = 0;
  int64_t sinkhorn_iterations = 0;  ///< the first column normalisation counts as one
  float eps = 0;

  /// Rows of `fn` and entries of `base`: pre, post, comb.
  int64_t mix_rows() const { return streams * (2 + streams); }
};

struct VisionConfig {
  int64_t depth = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t intermediate = 0;
  int64_t out_hidden = 0;  ///< = the text model's hidden size
  int64_t projection_intermediate = 0;
  int64_t patch = 0;
  int64_t temporal_patch = 0;
  int64_t merge = 0;
  int64_t channels = 0;
  float swiglu_limit = 0;
  float rms_norm_eps = 0;
  float rope_theta = 10000.0f;

  int64_t head_dim() const { return hidden / heads; }
  int64_t patch_values() const { return channels * temporal_patch * patch * patch; }
};

/// Ids with a meaning; −1 where the config has none.
struct SpecialTokens {
  TokenId image = -1;
  TokenId video = -1;
  TokenId image_start = -1;
  TokenId image_end = -1;
  TokenId video_start = -1;
  TokenId video_end = -1;
  TokenId pad = -1;
  std::vector<TokenId> eos;  ///< may be empty
};

struct Glm5NextConfig {
  std::string model_type;
  int64_t vocab = 0;
  int64_t hidden = 0;
  int64_t intermediate = 0;  ///< dense layers
  int64_t layers = 0;        ///< without the draft layer
  int64_t max_positions = 0;
  float rms_norm_eps = 0;
  float swiglu_limit = 0;
  DType dtype = DType::kBF16;  ///< as announced; the stored dtype of each tensor wins

  KdaConfig kda;
  MlaConfig mla;
  IndexerConfig indexer;
  MoeConfig moe;
  MhcConfig mhc;

  std::vector<MixerKind> mixers;      ///< [layers]
  std::vector<FfnKind> ffns;          ///< [layers]
  std::vector<IndexerKind> indexers;  ///< [layers]
  bool draft_layer = false;           ///< stored as layer index `layers`: DSA with its own indexer, MoE, no mHC

  std::optional<VisionConfig> vision;
  SpecialTokens tokens;
  QuantizationConfig quantization;

  int64_t count(MixerKind kind) const;
  int64_t count(FfnKind kind) const;
};

struct ParsedConfig {
  Glm5NextConfig config;
  std::vector<std::string> warnings;  ///< derived values, ignored keys: one sentence each
};

/// Reads a parsed config.json of a multimodal (glm5_next) or text-only (glm5_next_text) model.
/// Errors  invalid_argument, naming the key, its value and what was expected; unimplemented for another model_type (lists the supported ones).
/// Every size is positive and so bounded that products of a few of them fit int64 (Limits::model_parameters bounds the whole model).
Result<ParsedConfig> parse_glm5_next_config(const config::Json& json);

/// The config.json of a multimodal model with these values; reading it gives them back.
config::Json glm5_next_config_json(const Glm5NextConfig& config);

/// Reads DIR/config.json (or the file itself, if `path` is one), and DIR/quant_model_description.json where it is; messages name the file.
/// Errors: data_loss instead of invalid_argument.
Result<ParsedConfig> read_glm5_next_config(const std::string& path);

}  // namespace lathe::models
