// Linear attention layers (spec glm5_next §2.3).

#include "models/glm5_next_text.h"
#include "ops/kda.h"

namespace lathe::models {
namespace {

/// [T, H·W] with any row stride as [T, H, W].
View split_heads(const View& rows, int64_t heads) {
  View out = rows;
  out.rank = 3;
  out.shape = {rows.dim(0), heads, rows.dim(1) / heads};
  out.stride = {rows.step(0), rows.dim(1) / heads, 1};
  return out;
}

}  // namespace

Glm5NextModel::KdaRows Glm5NextModel::KdaRows::rows(int64_t begin, int64_t end) const {
  return {.q = q.rows(begin, end),
          .k = k.rows(begin, end),
          .v = v.rows(begin, end),
          .g = g.rows(begin, end),
          .beta = beta.rows(begin, end),
          .o = o.rows(begin, end)};
}

void Glm5NextModel::kda(const Pass& pass, int32_t layer, const View& u, const View& y) {
  const int64_t channels = shards_.kda_heads * config_.kda.head_dim;
  const View joined = arena_.f32({u.dim(0), channels});
  if (channels > 0) kda_heads(pass, layer, u, joined);
  KdaSites& sites = layer_sites_[static_cast<size_t>(layer)].kda;
  project_out({.product = sites.output, .cut = sites.output_cut},
              {.weight = weights_.bound.layers[static_cast<size_t>(layer)].kda->o, .cut = kda_cut_, .leaf_channels = config_.kda.head_dim},
              {.x = joined, .y = y});
}

void Glm5NextModel::kda_heads(const Pass& pass, int32_t layer, const View& u, const View& out) {
  const KdaWeights& w = *weights_.bound.layers[static_cast<size_t>(layer)].kda;
  KdaSites& sites = layer_sites_[static_cast<size_t>(layer)].kda;
  const int64_t rows = u.dim(0);
  const int64_t heads = shards_.kda_heads;
  const int64_t channels = heads * config_.kda.head_dim;
  const View raw = arena_.f32({rows, 3 * channels});
  const View mixed = arena_.f32({rows, 3 * channels});
  const View decay_low = arena_.f32({rows, config_.kda.head_dim});
  const View gate_low = arena_.f32({rows, config_.kda.head_dim});
  const View b = arena_.f32({rows, heads});
  const View decay = arena_.f32({rows, channels});
  const View gate = arena_.f32({rows, channels});
  const auto third = [channels](const View& view, int64_t i) { return view.slice(1, i * channels, (i + 1) * channels); };
  matmul(sites.projections, u,
         {{.weight = w.q, .bias = {}, .y = third(raw, 0)},
          {.weight = w.k, .bias = {}, .y = third(raw, 1)},
          {.weight = w.v, .bias = {}, .y = third(raw, 2)},
          {.weight = w.f_a, .bias = {}, .y = decay_low},
          {.weight = w.g_a, .bias = {}, .y = gate_low},
          {.weight = w.b, .bias = {}, .y = b}},
         compute_);
  matmul(sites.decay_up, decay_low, {{.weight = w.f_b, .bias = {}, .y = decay}}, compute_);
  matmul(sites.gate_up, gate_low, {{.weight = w.g_b, .bias = {}, .y = gate}}, compute_);
  if (RangeExchange* ranges = pass.hooks != nullptr ? pass.hooks->ranges() : nullptr; ranges != nullptr) {
    device().synchronise();
    for (const StepBatch::Placed& item : pass.batch.placed()) {
      if (!item.item->range || !stands(pass)) continue;
      const RangeSite site{layer, item.item->sequence, item.item->start, item.item->start + item.row_end - item.row_begin, pass.store};
      note(ranges->conv_halo(site, raw.rows(item.row_begin, item.row_end)));
    }
  }
  dispatch_.run(sites.conv, ops::ShortConvParams{.x = raw,
                                                 .weight = weights_.layers[static_cast<size_t>(layer)].conv,
                                                 .ring = kda_conv_view(pass.store, layer),
                                                 .slot = pass.batch.slot(),
                                                 .batch = pass.batch.ragged(),
                                                 .out = mixed});
  const View g = arena_.f32({rows, channels});
  const View beta = arena_.f32({rows, heads});
  dispatch_.run(sites.gate, ops::KdaGateParams{.a = decay,
                                               .b = b,
                                               .a_log = w.a_log,
                                               .dt_bias = w.dt_bias,
                                               .bounded = config_.kda.gate_lower_bound.has_value(),
                                               .lower_bound = config_.kda.gate_lower_bound.value_or(0.0f),
                                               .g = g,
                                               .beta = beta});
  const View o = arena_.f32({rows, heads, config_.kda.head_dim});
  kda_recur(pass, layer,
            {.q = split_heads(third(mixed, 0), heads),
             .k = split_heads(third(mixed, 1), heads),
             .v = split_heads(third(mixed, 2), heads),
             .g = g,
             .beta = beta,
             .o = o});
  dispatch_.run(sites.norm, ops::GatedNormParams{.o = o, .gate = gate, .weight = w.o_norm, .eps = config_.rms_norm_eps, .out = out});
}

/// Over one pool of states, which it reads and writes; which rows of it is still to be said.
ops::KdaRecurrenceParams Glm5NextModel::recurrence_of(const KdaRows& rows, const View& states, const ops::Ragged& batch) {
  ops::KdaRecurrenceParams out;
  out.q = rows.q, out.k = rows.k, out.v = rows.v, out.g = rows.g, out.beta = rows.beta, out.o = rows.o;
  out.entering = out.states = states, out.batch = batch;
  return out;
}

void Glm5NextModel::kda_recur(const Pass& pass, int32_t layer, const KdaRows& all) {
  kda_replay(pass, layer, all);
  const StepBatch::Part& part = pass.batch.recurrent();
  if (part.rows() == 0) return;
  const KdaRows rows = all.rows(part.row_begin, part.row_end);
  RangeExchange* const ranges = pass.hooks != nullptr ? pass.hooks->ranges() : nullptr;
  const auto each_range = [&](auto&& call) {
    if (ranges == nullptr) return;
    device().synchronise();
    int64_t sequence = 0;
    for (const StepBatch::Placed& item : pass.batch.placed()) {
      if (item.item->range && stands(pass)) {
        note(call(RangeSite{layer, item.item->sequence, item.item->start, item.item->start + item.row_end - item.row_begin, pass.store},
                  sequence - part.sequence_begin));
      }
      ++sequence;
    }
  };
  bool wanted = false;
  each_range([&](const RangeSite& site, int64_t) -> Result<void> {
    wanted = ranges->wants_pair(site) || wanted;
    return {};
  });
  KdaPair pair;
  if (wanted) kda_pair(pass, layer, rows, pair);
  each_range([&](const RangeSite& site, int64_t sequence) -> Result<void> {
    if (!wanted || !ranges->wants_pair(site)) return ranges->kda_begin(site, {}, {});
    return ranges->kda_begin(site, pair.m.at(sequence), pair.h.at(sequence));
  });
  const KdaStateViews states = kda_state_views(pass.store, layer, config_.kda, shards_.kda_heads);
  ops::KdaRecurrenceParams params = recurrence_of(rows, states.states, part.ragged);
  params.entering_scales = params.states_scales = states.scales;
  params.state_in = pass.batch.state_in().rows(part.sequence_begin, part.sequence_end);
  params.state_out = pass.batch.state_out().rows(part.row_begin, part.row_end);
  dispatch_.run(layer_sites_[static_cast<size_t>(layer)].kda.recurrence, params);
  each_range([&](const RangeSite& site, int64_t) { return ranges->kda_end(site); });
}

/// A pass of its own, from zero and without keeping states: the range's pair, before anybody knows the state that enters it.
void Glm5NextModel::kda_pair(const Pass& pass, int32_t layer, const KdaRows& rows, KdaPair& out) {
  const StepBatch::Part& part = pass.batch.recurrent();
  const int64_t sequences = part.sequence_end - part.sequence_begin;
  const int64_t heads = shards_.kda_heads;
  const int64_t width = config_.kda.head_dim;
  const int64_t floats = sequences * heads * width * width;
  if (!dispatch_.planning()) note(pair_memory_.ensure(device(), 2 * floats * 4));
  if (dispatch_.failure() != nullptr) return;
  float* const memory = static_cast<float*>(dispatch_.planning() ? nowhere() : pair_memory_.data());
  out.m = tensor::make_view(memory, DType::kF32, {sequences, heads, width, width});
  out.h = tensor::make_view(memory + floats, DType::kF32, {sequences, heads, width, width});
  const View states = kda_state_views(pass.store, layer, config_.kda, heads).states;
  ops::KdaRecurrenceParams params = recurrence_of(rows, states, part.ragged);
  params.state_in = pass.batch.no_state_in().rows(0, sequences);
  params.state_out = pass.batch.no_state_out().rows(0, part.rows());
  params.pair_m = out.m, params.pair_h = out.h;
  dispatch_.run(layer_sites_[static_cast<size_t>(layer)].kda.pair, params);
  device().synchronise();
}

}  // namespace lathe::models
