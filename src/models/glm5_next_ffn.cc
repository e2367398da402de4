// Dense MLP, experts, and the sums that a cut can split (spec glm5_next §2.6, parallel §2.2).

#include "models/glm5_next_text.h"
#include "ops/basic.h"
#include "ops/moe.h"

namespace lathe::models {

void Glm5NextModel::ffn(FfnSites& sites, const LayerWeights& weights, const LayerDerived& derived, const InOut& rows) {
  const Arena::Scope scope(arena_);
  if (weights.dense) return mlp(*weights.dense, dense_cut_, {.gate_up = sites.gate_up, .down = {.product = sites.down, .cut = sites.down_cut}}, rows);
  moe(sites, *weights.moe, derived, rows);
}

void Glm5NextModel::mlp(const MlpWeights& weights, const Cut& cut, const MlpSites& sites, const InOut& rows) {
  const View inner = arena_.f32({rows.x.dim(0), weights.gate.rows()});
  if (weights.gate.rows() > 0) {
    dispatch_.run(sites.gate_up, ops::GateUpParams{.x = rows.x,
                                                   .gate = weights.gate,
                                                   .up = weights.up,
                                                   .gate_bias = {},
                                                   .up_bias = {},
                                                   .out = inner,
                                                   .limit = config_.swiglu_limit,
                                                   .compute = compute_});
  }
  project_out(sites.down, {.weight = weights.down, .cut = cut, .leaf_channels = ops::kDownLeafChannels}, {.x = inner, .y = rows.y});
}

void Glm5NextModel::moe(FfnSites& sites, const MoeWeights& weights, const LayerDerived& derived, const InOut& rows) {
  const View logits = arena_.f32({rows.x.dim(0), config_.moe.experts});
  matmul(sites.router, rows.x, {{.weight = weights.router, .bias = {}, .y = logits}}, ops::Compute::kF32);
  experts(sites, derived, {.logits = logits, .bias = weights.correction_bias}, rows);
  if (!weights.shared.gate.present()) return;
  const View shared = arena_.f32({rows.x.dim(0), config_.hidden});
  mlp(weights.shared, shared_cut_, {.gate_up = sites.shared_gate_up, .down = {.product = sites.shared_down, .cut = sites.shared_down_cut}},
      {.x = rows.x, .y = shared});
  dispatch_.run(sites.add, ops::AddParams{.a = rows.y, .b = shared, .out = rows.y});
}

void Glm5NextModel::experts(FfnSites& sites, const LayerDerived& derived, const RouterViews& router, const InOut& rows) {
  const int64_t count = rows.x.dim(0);
  const MoeConfig& config = config_.moe;
  ops::MoeParams params{.x = rows.x,
                        .ids = arena_.i32({count, config.experts_per_token}),
                        .weights = arena_.f32({count, config.experts_per_token}),
                        .gate = derived.gate_stack(),
                        .up = derived.up_stack(),
                        .down = derived.down_stack(),
                        .expert_begin = static_cast<int32_t>(shards_.expert_begin),
                        .experts_total = static_cast<int32_t>(config.experts),
                        .limit = config_.swiglu_limit,
                        .compute = compute_,
                        .y = rows.y,
                        .present = {}};
  dispatch_.run(sites.route, ops::RouteParams{.logits = router.logits,
                                              .bias = router.bias,
                                              .groups = static_cast<int32_t>(config.groups),
                                              .groups_kept = static_cast<int32_t>(config.groups_kept),
                                              .normalise = config.normalise_topk,
                                              .scale = config.routed_scale,
                                              .ids = params.ids,
                                              .weights = params.weights});
  if (!expert_cut_.cut) return dispatch_.run(sites.experts, params);
  params.y = arena_.f32({expert_cut_.node_count(), count, config_.hidden});
  params.present = arena_.i32({expert_cut_.node_count(), count});
  if (expert_cut_.node_count() > 0) dispatch_.run(sites.experts, params);
  sum_nodes(expert_cut_, params.y, params.present, rows.y);
}

void Glm5NextModel::project_out(const OutSites& sites, const OutProjection& projection, const InOut& rows) {
  const Cut& cut = projection.cut;
  if (cut.cut && ops::int8_product(projection.weight, compute_)) return project_out_codes(sites, projection, rows);
  ops::MatmulPart part{.weight = projection.weight,
                       .bias = {},
                       .y = rows.y,
                       .leaf_channels = projection.leaf_channels,
                       .leaf_begin = cut.begin,
                       .leaf_total = cut.total};
  if (!cut.cut) return matmul(sites.product, rows.x, {part}, compute_);
  part.y = arena_.f32({cut.node_count(), rows.x.dim(0), rows.y.dim(1)});
  if (cut.node_count() > 0) matmul(sites.product, rows.x, {part}, compute_);
  sum_nodes(cut, part.y, {}, rows.y);
}

void Glm5NextModel::project_out_codes(const OutSites& sites, const OutProjection& projection, const InOut& rows) {
  const Cut& cut = projection.cut;
  const bool here = cut.node_count() > 0;
  const Share share = here ? Share::kGiven : Share::kNothing;
  const View amax = arena_.f32({rows.x.dim(0)});
  const View sums = arena_.i32({rows.x.dim(0), rows.y.dim(1)});
  if (here) dispatch_.run(sites.cut.amax, ops::RowAmaxParams{.x = rows.x, .out = amax});
  combine(cut, amax, share);
  if (here) {
    ops::MatmulParams params{.x = rows.x, .x_amax = amax, .part_count = 1, .compute = compute_};
    params.parts[0].weight = projection.weight;
    params.parts[0].y = sums;
    dispatch_.run(sites.product, params);
  }
  combine(cut, sums, share);
  dispatch_.run(sites.cut.scale, ops::ScaleSumsParams{.sums = sums, .x_amax = amax, .scales = projection.weight.scales, .bias = {}, .y = rows.y});
}

}  // namespace lathe::models
