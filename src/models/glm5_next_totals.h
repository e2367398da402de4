#pragma once
// What a model weighs, computes and keeps: parameters, bytes, FLOPs per token, bytes per step, cache bytes.
// Source: spec/glm5_next.md §5 and §7. One multiply-add is 2 FLOP.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "models/cache_formats.h"
#include "models/decode_bytes.h"
#include "models/glm5_next_config.h"
#include "models/glm5_next_tensors.h"

namespace lathe::models {

/// Sums over a group of tensors; scales count as tensors and bytes, not as parameters.
struct TensorTotals {
  int64_t tensors = 0;
  int64_t fp8_matrices = 0;
  int64_t int8_matrices = 0;
  int64_t parameters = 0;
  int64_t bytes = 0;

  TensorTotals& operator+=(const TensorTotals& other);
};

using KindTotals = std::array<TensorTotals, kTensorKinds>;
TensorTotals sum(const KindTotals& kinds);
inline const TensorTotals& at(const KindTotals& kinds, TensorKind kind) { return kinds[static_cast<size_t>(kind)]; }

struct Glm5NextTotals {
  KindTotals text{};   ///< main model: embedding, layers, head
  KindTotals draft{};  ///< the draft layer
  KindTotals vision{};
  std::vector<KindTotals> layers;  ///< [layers], then the draft layer if there is one

  TensorTotals all() const;
  /// One kind over all three parts.
  TensorTotals kind(TensorKind which) const;
};

/// From the config alone, with the dtypes of weights_from_config().
Glm5NextTotals totals_from_config(const Glm5NextConfig& config);

/// From bound weights: stored dtypes.
Glm5NextTotals totals_from_weights(const Glm5NextConfig& config, const Glm5NextWeights& weights);

/// Bound matrices of I8.
int64_t glm5_next_int8_matrices(const Glm5NextConfig& config, const Glm5NextWeights& weights);

/// Where a FLOP row counts.
enum class FlopScope : uint8_t { kKdaLayer, kDsaLayer, kFullIndexer, kMhcLayer, kDenseLayer, kMoeLayer, kHead };

struct FlopRow {
  std::string_view part;
  FlopScope scope;
  double per_layer = 0;  ///< FLOP per token in one such layer
  int64_t layers = 0;    ///< of the main model
};

/// At which point FLOPs are counted.
struct FlopPoint {
  int64_t context = 1;  ///< tokens, the own one included
  /// Chunked KDA, and the mean over the tokens of a prompt of `context`, whose last one alone needs the head; else the recurrence for the token at `context`.
  bool prefill = false;
  bool expanded = false;  ///< MLA over expanded keys and values; else absorbed
};

/// FLOPs per token by part. Work that no matrix does (mHC mixing) is its own row.
std::vector<FlopRow> flop_rows(const Glm5NextConfig& config, const FlopPoint& point);
/// Sum over rows and layers without the head and without the mixing row: the figure that FLOPs per token of such models are published as.
double flops_without_head(const std::vector<FlopRow>& rows);
/// FLOP per token in one layer (all rows that apply to it); the draft layer is number config.layers.
double flops_of_layer(const Glm5NextConfig& config, const std::vector<FlopRow>& rows, int64_t layer);
/// Vision tower and merger for a grid of patches.
double vision_flops(const VisionConfig& vision, int64_t steps, int64_t height, int64_t width);

/// Bytes of one sequence, over all layers of the main model or of the draft layer. Raw index tails are counted in the dtype of the windows, as published.
struct CacheBytes {
  int64_t kda_state = 0;
  int64_t conv = 0;
  int64_t latent = 0;
  int64_t index = 0;
  int64_t tail = 0;

  int64_t total() const { return kda_state + conv + latent + index + tail; }
};
CacheBytes cache_bytes(const Glm5NextConfig& config, int64_t context, const CacheFormats& formats = kPlainCaches);
CacheBytes draft_cache_bytes(const Glm5NextConfig& config, int64_t context, const CacheFormats& formats = kPlainCaches);

/// Experts of one layer that `tokens` tokens touch under uniform routing.
double distinct_experts(const MoeConfig& moe, int64_t tokens);

/// Bytes that one decode step must move.
struct StepBytes {
  double fixed_weights = 0;   ///< everything but experts, embedding table, draft layer and vision
  double expert_weights = 0;  ///< distinct experts of all MoE layers
  double kda_state = 0;       ///< read and written, all sequences; by replay the mean over a period, rings and flushes included
  double conv = 0;            ///< likewise
  double attention = 0;       ///< latents of the selected keys and all pooled index keys, read

  double weights() const { return fixed_weights + expert_weights; }
  double total() const { return weights() + kda_state + conv + attention; }
};
struct StepPoint {
  int64_t batch = 1;
  int64_t context = 1;
  CacheFormats formats = kPlainCaches;
  int32_t replay_period = 0;  ///< > 0: states are kept by replay
};
StepBytes decode_step_bytes(const Glm5NextConfig& config, const Glm5NextTotals& totals, const StepPoint& point);
/// Bytes that a token of a prompt must move: the mean over a prompt of `context` tokens that is read alone, in chunks of `chunk` tokens.
struct PrefillBytes {
  double fixed_weights = 0;   ///< those of StepBytes without the head, once per chunk
  double head = 0;            ///< once per prompt
  double expert_weights = 0;  ///< those that a chunk touches under uniform routing
  double kda_state = 0;       ///< read and written once per chunk
  double conv = 0;            ///< likewise
  double attention = 0;       ///< once per chunk: latents that its tokens can select, and all pooled index keys up to its end, read
  double written = 0;         ///< the token's own latents and index keys

  double total() const { return fixed_weights + head + expert_weights + kda_state + conv + attention + written; }
};
struct PrefillPoint {
  int64_t context = 1;
  int64_t chunk = 512;
  CacheFormats formats = kPlainCaches;
};
PrefillBytes prefill_token_bytes(const Glm5NextConfig& config, const Glm5NextTotals& totals, const PrefillPoint& point);
/// Weight bytes of one draft step for `batch` tokens, the head included.
double draft_step_weight_bytes(const Glm5NextConfig& config, const Glm5NextTotals& totals, int64_t batch);
/// The same as functions of rows and sequences.
DecodeBytes decode_bytes(const Glm5NextConfig& config, const Glm5NextTotals& totals, const CacheFormats& formats = kPlainCaches);

}  // namespace lathe::models
