// Sparse attention layers: latents, pooled index keys, selection, absorbed or expanded attention (spec glm5_next §2.4, §2.5).

#include <cmath>

#include "models/glm5_next_text.h"
#include "ops/basic.h"
#include "ops/mla.h"

namespace lathe::models {
namespace {

/// Variance floor of the index key norm: a constant of the architecture, not a config key.
constexpr float kIndexNormEps = 1e-6f;

View heads_view(const View& rows, int64_t heads) { return rows.reshape({rows.dim(0), heads, rows.dim(1) / heads}); }

}  // namespace

void Glm5NextModel::dsa(const Pass& pass, const DsaCall& call, const View& u, const View& y) {
  const int64_t rows = u.dim(0);
  const int64_t heads = shards_.mla_heads;
  const IndexerConfig& index = config_.indexer;
  const View joined = arena_.f32({rows, heads * config_.mla.v_dim});
  DsaRows of{.u = u, .q = arena_.f32({rows, heads * config_.mla.nope_dim}), .k = {}, .gate = {}, .iq = {}};
  if (call.choose) {
    of.k = arena_.f32({rows, index.head_dim});
    of.gate = arena_.f32({rows, index.head_dim});
    of.iq = arena_.f32({rows, index.heads * index.head_dim});
  }
  dsa_project(pass, call, of);
  dsa_index(pass, call, of);
  if (heads > 0) dsa_attend(pass, call, of.q, joined);
  project_out({.product = call.sites.output, .cut = call.sites.output_cut},
              {.weight = call.weights.o, .cut = mla_cut_, .leaf_channels = config_.mla.v_dim}, {.x = joined, .y = y});
}

void Glm5NextModel::dsa_project(const Pass& pass, const DsaCall& call, const DsaRows& rows) {
  const Arena::Scope scope(arena_);
  const DsaWeights& w = call.weights;
  const View qr = arena_.f32({rows.u.dim(0), config_.mla.q_lora_rank});
  const View latent = arena_.f32({rows.u.dim(0), config_.mla.kv_lora_rank});
  const IndexerWeights none;
  const IndexerWeights& index = call.choose ? *w.indexer : none;
  matmul(call.sites.projections, rows.u,
         {{.weight = w.q_a, .bias = {}, .y = qr},
          {.weight = w.kv_a, .bias = {}, .y = latent},
          {.weight = index.wk, .bias = {}, .y = rows.k},
          {.weight = index.compress_gate, .bias = {}, .y = rows.gate}},
         compute_);
  norm(call.sites.q_norm, qr, w.q_a_norm, qr);
  norm(call.sites.latent_norm, latent, w.kv_a_norm, latent);
  matmul(call.sites.q_projections, qr, {{.weight = w.q_b, .bias = {}, .y = rows.q}, {.weight = index.wq_b, .bias = {}, .y = rows.iq}}, compute_);
  dispatch_.run(call.sites.latents,
                ops::WriteLatentsParams{
                    .x = latent, .pool = paged_view(pass.store, call.layer, call.names.latent, pass.batch.table()), .batch = pass.batch.ragged()});
}

void Glm5NextModel::dsa_index(const Pass& pass, const DsaCall& call, const DsaRows& rows) {
  const Arena::Scope scope(arena_);
  const IndexerConfig& index = config_.indexer;
  RangeExchange* const ranges = pass.hooks != nullptr ? pass.hooks->ranges() : nullptr;
  const auto each_range = [&](Result<void> (RangeExchange::*exchange)(const RangeSite&)) {
    if (ranges == nullptr) return;
    device().synchronise();
    for (const StepBatch::Placed& item : pass.batch.placed()) {
      if (!item.item->range || !stands(pass)) continue;
      note((ranges->*exchange)({call.layer, item.item->sequence, item.item->start, item.item->start + item.row_end - item.row_begin, pass.store}));
    }
  };
  if (!call.choose) return each_range(&RangeExchange::tokens_written);
  const IndexerWeights& w = *call.weights.indexer;
  const ops::Paged keys = paged_view(pass.store, call.layer, call.names.keys, pass.batch.table());
  each_range(&RangeExchange::index_halo);
  dispatch_.run(call.sites.index_keys, ops::IndexKeysParams{.k = rows.k,
                                                            .gate = rows.gate,
                                                            .norm_weight = w.k_norm_weight,
                                                            .norm_bias = w.k_norm_bias,
                                                            .eps = kIndexNormEps,
                                                            .ape = w.ape,
                                                            .ring = index_tail_view(pass.store, call.layer, call.names.tail, index.head_dim),
                                                            .slot = pass.batch.slot(),
                                                            .keys = keys,
                                                            .batch = pass.batch.ragged()});
  each_range(&RangeExchange::tokens_written);
  // Index weights stay f32 in every mode: BF16 there reorders pools.
  const View weights = arena_.f32({rows.u.dim(0), index.heads});
  matmul(call.sites.index_weights, rows.u, {{.weight = w.weights_proj, .bias = {}, .y = weights}}, ops::Compute::kF32);
  dispatch_.run(call.sites.select, ops::IndexSelectParams{.q = heads_view(rows.iq, index.heads),
                                                          .weights = weights,
                                                          .keys = keys,
                                                          .batch = pass.batch.ragged(),
                                                          .kpool = static_cast<int32_t>(index.kpool),
                                                          .selection = call.selection,
                                                          .scores = {}});
}

void Glm5NextModel::dsa_attend(const Pass& pass, const DsaCall& call, const View& q, const View& out) {
  const MlaConfig& mla = config_.mla;
  const int64_t heads = shards_.mla_heads;
  const float scale = 1.0f / std::sqrt(static_cast<float>(mla.nope_dim));
  const ops::KvB kv_b{.matrix = call.weights.kv_b, .nope = static_cast<int32_t>(mla.nope_dim), .value = static_cast<int32_t>(mla.v_dim)};
  const auto selection = [&](const StepBatch::Part& part) {
    const View& tail = pass.batch.tail_begin();
    return ops::Selection{.pools = call.selection.rows(part.row_begin, part.row_end),
                          .tail_begin = tail.present() ? tail.rows(part.row_begin, part.row_end) : View{},
                          .kpool = static_cast<int32_t>(config_.indexer.kpool)};
  };
  const auto latents = [&](const StepBatch::Part& part) {
    return paged_view(pass.store, call.layer, call.names.latent, pass.batch.table().rows(part.sequence_begin, part.sequence_end));
  };
  if (const StepBatch::Part& part = pass.batch.absorbed(); part.rows() > 0) {
    const Arena::Scope scope(arena_);
    const View turned = arena_.f32({part.rows(), heads, mla.kv_lora_rank});
    const View z = arena_.f32({part.rows(), heads, mla.kv_lora_rank});
    const View q_rows = heads_view(q.rows(part.row_begin, part.row_end), heads);
    dispatch_.run(call.sites.absorb, ops::MlaAbsorbParams{.q = q_rows, .kv_b = kv_b, .compute = kv_b_compute(), .out = turned});
    dispatch_.run(call.sites.attend, ops::MlaAttendParams{.q = turned,
                                                          .latents = latents(part),
                                                          .selection = selection(part),
                                                          .batch = part.ragged,
                                                          .scale = scale,
                                                          .out = z,
                                                          .row_max = {},
                                                          .row_sum = {}});
    const View out_rows = heads_view(out.rows(part.row_begin, part.row_end), heads);
    dispatch_.run(call.sites.unabsorb, ops::MlaUnabsorbParams{.z = z, .kv_b = kv_b, .compute = kv_b_compute(), .out = out_rows});
  }
  if (const StepBatch::Part& part = pass.batch.expanded(); part.rows() > 0) {
    dispatch_.run(call.sites.expanded, ops::MlaExpandedParams{.q = heads_view(q.rows(part.row_begin, part.row_end), heads),
                                                              .kv_b = kv_b,
                                                              .latents = latents(part),
                                                              .selection = selection(part),
                                                              .batch = part.ragged,
                                                              .scale = scale,
                                                              .compute = kv_b_compute(),
                                                              .out = heads_view(out.rows(part.row_begin, part.row_end), heads)});
  }
}

}  // namespace lathe::models
