// Dense MLP, experts, and the sums that a cut can split (spec glm5_next §2.6, parallel §2.2).

#include "models/glm5_next_text.h"
#include "ops/basic.h"
#include "ops/moe.h"

namespace lathe::models {

void Glm5NextModel::ffn(FfnSites& sites, const LayerWeights& weights, const LayerDerived& derived, const View& x, const View& y) {
  const Arena::Scope scope(arena_);
  if (weights.dense) return mlp(*weights.dense, dense_cut_, sites.gate_up, sites.down, x, y);
  moe(sites, *weights.moe, derived, x, y);
}

void Glm5NextModel::mlp(const MlpWeights& weights, const Cut& cut, backend::OpSite& gate_up, backend::OpSite& down, const View& x, const View& y) {
  const View inner = arena_.f32({x.dim(0), weights.gate.rows()});
  if (weights.gate.rows() > 0) {
    dispatch_.run(gate_up, ops::GateUpParams{.x = x,
                                             .gate = weights.gate,
                                             .up = weights.up,
                                             .gate_bias = {},
                                             .up_bias = {},
                                             .out = inner,
                                             .limit = config_.swiglu_limit,
                                             .compute = compute_});
  }
  project_out(down, weights.down, cut, ops::kDownLeafChannels, inner, y);
}

void Glm5NextModel::moe(FfnSites& sites, const MoeWeights& weights, const LayerDerived& derived, const View& x, const View& y) {
  const View logits = arena_.f32({x.dim(0), config_.moe.experts});
  matmul(sites.router, x, {{.weight = weights.router, .bias = {}, .y = logits}}, ops::Compute::kF32);
  experts(sites, derived, x, logits, weights.correction_bias, y);
  if (!weights.shared.gate.present()) return;
  const View shared = arena_.f32({x.dim(0), config_.hidden});
  mlp(weights.shared, shared_cut_, sites.shared_gate_up, sites.shared_down, x, shared);
  dispatch_.run(sites.add, ops::AddParams{.a = y, .b = shared, .out = y});
}

void Glm5NextModel::experts(FfnSites& sites, const LayerDerived& derived, const View& x, const View& logits, const View& bias, const View& y) {
  const int64_t rows = x.dim(0);
  const MoeConfig& config = config_.moe;
  ops::MoeParams params{.x = x,
                        .ids = arena_.i32({rows, config.experts_per_token}),
                        .weights = arena_.f32({rows, config.experts_per_token}),
                        .gate = derived.gate_stack(),
                        .up = derived.up_stack(),
                        .down = derived.down_stack(),
                        .expert_begin = static_cast<int32_t>(shards_.expert_begin),
                        .experts_total = static_cast<int32_t>(config.experts),
                        .limit = config_.swiglu_limit,
                        .compute = compute_,
                        .y = y,
                        .present = {}};
  dispatch_.run(sites.route, ops::RouteParams{.logits = logits,
                                              .bias = bias,
                                              .groups = static_cast<int32_t>(config.groups),
                                              .groups_kept = static_cast<int32_t>(config.groups_kept),
                                              .normalise = config.normalise_topk,
                                              .scale = config.routed_scale,
                                              .ids = params.ids,
                                              .weights = params.weights});
  if (!expert_cut_.cut) return dispatch_.run(sites.experts, params);
  params.y = arena_.f32({expert_cut_.node_count(), rows, config_.hidden});
  params.present = arena_.i32({expert_cut_.node_count(), rows});
  if (expert_cut_.node_count() > 0) dispatch_.run(sites.experts, params);
  sum_nodes(expert_cut_, params.y, params.present, y);
}

void Glm5NextModel::project_out(backend::OpSite& site, const MatrixView& weight, const Cut& cut, int64_t leaf_channels, const View& x,
                                const View& y) {
  ops::MatmulPart part{.weight = weight, .bias = {}, .y = y, .leaf_channels = leaf_channels, .leaf_begin = cut.begin, .leaf_total = cut.total};
  if (!cut.cut) return matmul(site, x, {part}, compute_);
  part.y = arena_.f32({cut.node_count(), x.dim(0), y.dim(1)});
  if (cut.node_count() > 0) matmul(site, x, {part}, compute_);
  sum_nodes(cut, part.y, {}, y);
}

void Glm5NextModel::sum_nodes(const Cut& cut, const View& partials, const View& present, const View& y) {
  if (dispatch_.planning()) return;
  device().synchronise();
  cut.group->tree_sum({.leaves = cut.total, .nodes = cut.nodes, .partials = partials, .present = present, .out = y});
}

}  // namespace lathe::models
