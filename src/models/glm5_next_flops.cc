// FLOPs per token (spec/glm5_next.md §7.2, §7.4).

#include <algorithm>

#include "models/glm5_next_totals.h"

namespace lathe::models {
namespace {

constexpr std::string_view kMixing = "mHC mixing";
constexpr double kChunk = 64;  // tokens of a KDA chunk in prefill

double d(int64_t value) { return static_cast<double>(value); }

/// Mean of min(t, limit) over t = 1 … n.
double mean_capped(int64_t n, int64_t limit) {
  const double full = d(std::min(n, limit));
  return (full * (full + 1) / 2 + (d(n) - full) * d(limit)) / d(n);
}

/// Mean of floor(t / pool) over t = 1 … n.
double mean_pools(int64_t n, int64_t pool) {
  const double pools = d(n / pool);
  const double rest = d(n % pool);
  // Every full group of `pool` tokens but its last one sees one pool less than the group's number.
  return (d(pool) * pools * (pools - 1) / 2 + pools + rest * pools) / d(n);
}

/// Recurrence in state form, or what the chunk form adds to the projections, per token.
enum class KdaForm : uint8_t { kState, kChunks };

double kda_state_flops(const KdaConfig& kda, KdaForm form) {
  const double width = d(kda.head_dim);
  if (form == KdaForm::kState) return d(kda.heads) * width * width * 7;  // decay 1, Sᵀk 2, rank-one update 2, Sᵀq 2
  const double inside = 2 * kChunk * 5 * width;                          // A, P over K; U, W, P·Vn over V (K = V), full squares
  const double states = 3 * 2 * width * width;                           // W·S, q·S, the new state
  const double solve = 2 * kChunk * kChunk / 3;                          // forward substitution
  return d(kda.heads) * (inside + states + solve);
}

}  // namespace

std::vector<FlopRow> flop_rows(const Glm5NextConfig& c, const FlopPoint& point) {
  const double hidden = d(c.hidden);
  const double channels = d(c.kda.channels());
  const double kda_width = d(c.kda.head_dim);
  const double q_rank = d(c.mla.q_lora_rank);
  const double kv_rank = d(c.mla.kv_lora_rank);
  const double q_width = d(c.mla.heads * c.mla.nope_dim);
  const double v_width = d(c.mla.heads * c.mla.v_dim);
  const double index_width = d(c.indexer.head_dim);
  const double index_heads = d(c.indexer.heads);
  const int64_t key_limit = c.indexer.topk_tokens + c.indexer.kpool - 1;
  const double keys = point.prefill ? mean_capped(point.context, key_limit) : d(std::min(point.context, key_limit));
  const double pools = point.prefill ? mean_pools(point.context, c.indexer.kpool) : d(point.context / c.indexer.kpool);
  const double per_key = point.expanded ? 2 * (q_width + v_width) : d(c.mla.heads) * 2 * (kv_rank + kv_rank);
  const double streams = d(c.mhc.streams);
  const double expert = 2 * 3 * hidden * d(c.moe.intermediate);
  const int64_t kda_layers = c.count(MixerKind::kKda);
  const int64_t dsa_layers = c.count(MixerKind::kDsa);
  const int64_t full = std::count(c.indexers.begin(), c.indexers.end(), IndexerKind::kFull);
  return {
      {"KDA projections", FlopScope::kKdaLayer,
       2 * (4 * channels * hidden + 2 * (kda_width * hidden + channels * kda_width) + d(c.kda.heads) * hidden), kda_layers},
      {"KDA conv", FlopScope::kKdaLayer, 2 * 3 * channels * d(c.kda.conv_width), kda_layers},
      {point.prefill ? "KDA chunks" : "KDA recurrence", FlopScope::kKdaLayer,
       kda_state_flops(c.kda, point.prefill ? KdaForm::kChunks : KdaForm::kState), kda_layers},
      {"DSA projections", FlopScope::kDsaLayer, 2 * (q_rank * hidden + q_width * q_rank + kv_rank * hidden + hidden * v_width), dsa_layers},
      {point.expanded ? "MLA expansion" : "MLA absorption", FlopScope::kDsaLayer, 2 * (q_width + v_width) * kv_rank, dsa_layers},
      {"indexer projections", FlopScope::kFullIndexer, 2 * (index_heads * index_width * q_rank + (2 * index_width + index_heads) * hidden), full},
      {"index score", FlopScope::kFullIndexer, index_heads * (2 * index_width + 2) * pools, full},
      {"attention", FlopScope::kDsaLayer, per_key * keys, dsa_layers},
      {"mHC", FlopScope::kMhcLayer, 2 * 2 * d(c.mhc.mix_rows()) * streams * hidden, c.layers},
      // Root mean square, collapse, and the streams' update, at two sites.
      {kMixing, FlopScope::kMhcLayer, 2 * streams * hidden * (2 + 2 + 2 * streams + 1), c.layers},
      {"dense MLP", FlopScope::kDenseLayer, 2 * 3 * hidden * d(c.intermediate), c.count(FfnKind::kDense)},
      {"MoE", FlopScope::kMoeLayer, 2 * d(c.moe.experts) * hidden + expert * d(c.moe.experts_per_token + c.moe.shared_experts),
       c.count(FfnKind::kMoe)},
      {"head", FlopScope::kHead, 2 * d(c.vocab) * hidden / (point.prefill ? d(std::max<int64_t>(point.context, 1)) : 1), 1},
  };
}

double flops_without_head(const std::vector<FlopRow>& rows) {
  double total = 0;
  for (const FlopRow& row : rows) {
    if (row.scope != FlopScope::kHead && row.part != kMixing) total += row.per_layer * d(row.layers);
  }
  return total;
}

double flops_of_layer(const Glm5NextConfig& c, const std::vector<FlopRow>& rows, int64_t layer) {
  const bool draft = layer == c.layers;
  const auto at = static_cast<size_t>(layer);
  const MixerKind mixer = draft ? MixerKind::kDsa : c.mixers[at];
  const FfnKind ffn = draft ? FfnKind::kMoe : c.ffns[at];
  const bool own_indexer = draft || c.indexers[at] == IndexerKind::kFull;
  double total = draft ? 2 * d(c.hidden) * 2 * d(c.hidden) : 0;  // eh_proj
  for (const FlopRow& row : rows) {
    const bool counts = (row.scope == FlopScope::kKdaLayer && mixer == MixerKind::kKda) ||
                        (row.scope == FlopScope::kDsaLayer && mixer == MixerKind::kDsa) || (row.scope == FlopScope::kFullIndexer && own_indexer) ||
                        (row.scope == FlopScope::kMhcLayer && !draft) || (row.scope == FlopScope::kDenseLayer && ffn == FfnKind::kDense) ||
                        (row.scope == FlopScope::kMoeLayer && ffn == FfnKind::kMoe);
    if (counts) total += row.per_layer;
  }
  return total;
}

double vision_flops(const VisionConfig& v, int64_t steps, int64_t height, int64_t width) {
  const double patches = d(height * width);
  const double hidden = d(v.hidden);
  const double out = d(v.out_hidden);
  const double per_patch = 2 * d(v.depth) * (4 * hidden * hidden + 3 * hidden * d(v.intermediate)) + 2 * d(v.patch_values()) * hidden;
  const double attention = d(v.depth) * 4 * hidden * patches * patches;
  const double rows = patches / d(v.merge * v.merge);
  const double per_row = 2 * (out * hidden * d(v.merge * v.merge) + out * out + 3 * out * d(v.projection_intermediate));
  return d(steps) * (patches * per_patch + attention + rows * per_row);
}

}  // namespace lathe::models
