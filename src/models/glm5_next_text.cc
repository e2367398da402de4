#include "models/glm5_next_text.h"

#include "base/check.h"
#include "ops/basic.h"
#include "ops/mhc.h"

namespace lathe::models {

BatchLimits Glm5NextModel::limits() const {
  return {.vocabulary = config_.vocab,
          .hidden = config_.hidden,
          .rows_max = options_.max_batch_tokens,
          .positions_max = config_.max_positions,
          .tentative_max = options_.tentative_max,
          .keep_states_every = glm5_next_keep_states_every(options_.cache_formats()),
          .replay = glm5_next_replay(config_, options_),
          .skip_tail = !config_.indexer.always_select_tail};
}

Result<void> Glm5NextModel::gather_items(std::span<const StepItem> items, const cache::Store& store) {
  items_.clear();
  for (const StepItem& item : items) {
    if (item.kind == ItemKind::kPrefill && item.tentative > 0) {
      return err(Code::kInvalidArgument, "sequence {}: {} tentative tokens in a prefill item; they belong into decode items", item.sequence.value,
                 item.tentative);
    }
    if (item.range && (!options_.token_ranges || item.kind != ItemKind::kPrefill)) {
      return err(Code::kInvalidArgument, "sequence {}: a token range must be a prefill item of a model loaded for token ranges", item.sequence.value);
    }
    if (!store.is_open(item.sequence)) return err(Code::kInvalidArgument, "sequence {} is not open", item.sequence.value);
    const auto settled = static_cast<int64_t>(item.tokens.size()) - item.tentative;
    items_.push_back({.sequence = item.sequence,
                      .start = store.length(item.sequence) - settled,
                      .tokens = item.tokens,
                      .rows = item.rows,
                      .tentative = item.tentative,
                      .expanded = item.kind == ItemKind::kPrefill && options_.prefill_mla == MlaPath::kExpanded,
                      .range = item.range,
                      .decode = item.kind == ItemKind::kDecode,
                      .logits = item.logits,
                      .at = item.at});
  }
  return {};
}

Result<StepResult> Glm5NextModel::step(std::span<const StepItem> items, cache::Store& store, StepHooks* hooks) {
  LATHE_TRY_VOID(gather_items(items, store));
  LATHE_TRY_VOID(step_batch_.build(items_, limits(), store));
  const Pass pass{step_batch_, store, hooks};
  begin_pass(pass);
  run_step(pass);
  LATHE_TRY_VOID(end_pass(pass));
  note_marks(store);
  return StepResult{.logits = logits_, .hidden = hidden_.rows(0, step_batch_.rows()), .items = step_batch_.item_rows()};
}

void Glm5NextModel::run_step(const Pass& pass) {
  const int64_t rows = pass.batch.rows();
  const View embedded = embed(pass.batch, text_sites_.embed, text_sites_.embed_rows);
  const View streams = layers(pass, embedded);
  const View mean = arena_.f32({rows, config_.hidden});
  dispatch_.run(text_sites_.mean, ops::StreamMeanParams{.streams = streams, .out = mean});
  const View hidden = hidden_.rows(0, rows);
  norm(text_sites_.norm, mean, weights_.bound.norm, hidden);
  logits_ = head(pass.batch, hidden, {.gather = text_sites_.gather, .logits = text_sites_.head, .memory = logits_memory_});
}

View Glm5NextModel::embed(const StepBatch& batch, backend::OpSite& plain, backend::OpSite& with_rows) {
  const View out = arena_.f32({batch.rows(), config_.hidden});
  if (batch.override_rows() == 0) {
    dispatch_.run(plain, ops::EmbedParams{.ids = batch.ids(), .table = weights_.bound.embedding, .override_row = {}, .overrides = {}, .out = out});
    return out;
  }
  const View overrides = arena_.f32({batch.override_rows(), config_.hidden});
  int64_t row = 0;
  for (const StepBatch::Placed& placed : batch.placed()) {
    for (const EmbeddingRows& run : placed.item->rows) {
      const int64_t count = run.rows.dim(0);
      if (!dispatch_.planning() && count > 0) device().copy_on_device(overrides.rows(row, row + count).data, run.rows.data, run.rows.extent_bytes());
      row += count;
    }
  }
  dispatch_.run(with_rows,
                ops::EmbedParams{
                    .ids = batch.ids(), .table = weights_.bound.embedding, .override_row = batch.override_row(), .overrides = overrides, .out = out});
  return out;
}

View Glm5NextModel::layers(const Pass& pass, const View& embedded) {
  const int64_t rows = pass.batch.rows();
  const int64_t count = config_.mhc.streams;
  selection_ = arena_.i32({rows, config_.indexer.topk_pools()});
  const View streams = arena_.f32({rows, count, config_.hidden});
  // Before the first layer all streams are the embedding: one copy, seen `count` times.
  View current = streams;
  current.data = embedded.data;
  current.stride = {config_.hidden, 0, 1};
  for (int32_t layer = 0; layer < config_.layers; ++layer) {
    const Arena::Scope scope(arena_);
    before_layer(pass, layer);
    const LayerWeights& weights = weights_.bound.layers[static_cast<size_t>(layer)];
    LayerSites& sites = layer_sites_[static_cast<size_t>(layer)];
    const View x = arena_.f32({rows, config_.hidden});
    const View y = arena_.f32({rows, config_.hidden});
    const View post = arena_.f32({rows, count});
    const View comb = arena_.f32({rows, count, count});
    mhc_in(sites.attn_mhc.in, weights.attn_mhc, {.streams = current, .x = x, .post = post, .comb = comb});
    norm(sites.input_norm, x, weights.input_norm, x);
    mixer(pass, layer, x, y);
    dispatch_.run(sites.attn_mhc.out, ops::MhcOutParams{.streams = current, .y = y, .post = post, .comb = comb, .out = streams});
    current = streams;
    mhc_in(sites.ffn_mhc.in, weights.ffn_mhc, {.streams = current, .x = x, .post = post, .comb = comb});
    norm(sites.post_norm, x, weights.post_attention_norm, x);
    ffn(sites.ffn, weights, weights_.layers[static_cast<size_t>(layer)], {.x = x, .y = y});
    dispatch_.run(sites.ffn_mhc.out, ops::MhcOutParams{.streams = current, .y = y, .post = post, .comb = comb, .out = streams});
    after_layer(pass, layer);
  }
  return current;
}

void Glm5NextModel::mixer(const Pass& pass, int32_t layer, const View& u, const View& y) {
  const Arena::Scope scope(arena_);
  const LayerWeights& weights = weights_.bound.layers[static_cast<size_t>(layer)];
  if (weights.kda) return kda(pass, layer, u, y);
  DsaSites& sites = layer_sites_[static_cast<size_t>(layer)].dsa;
  dsa(pass,
      {.layer = layer,
       .weights = *weights.dsa,
       .names = kDsaFamilies,
       .sites = sites,
       .choose = weights.dsa->indexer.has_value(),
       .selection = selection_},
      u, y);
}

void Glm5NextModel::mhc_in(backend::OpSite& site, const MhcWeights& weights, const MhcViews& views) {
  dispatch_.run(site, ops::MhcInParams{.streams = views.streams,
                                       .fn = weights.fn,
                                       .base = weights.base,
                                       .scale = weights.scale,
                                       .eps = config_.rms_norm_eps,
                                       .hc_eps = config_.mhc.eps,
                                       .iterations = static_cast<int32_t>(config_.mhc.sinkhorn_iterations),
                                       .x = views.x,
                                       .post = views.post,
                                       .comb = views.comb});
}

void Glm5NextModel::norm(backend::OpSite& site, const View& x, const View& weight, const View& out) {
  dispatch_.run(site, ops::RmsNormParams{.x = x, .weight = weight, .eps = config_.rms_norm_eps, .out = out});
}

View Glm5NextModel::head(const StepBatch& batch, const View& hidden, const HeadCall& call) {
  const int64_t rows = batch.logits_rows();
  const int64_t vocabulary = shards_.vocabulary_end - shards_.vocabulary_begin;
  if (rows == 0) return View{};
  if (!dispatch_.planning()) note(call.memory.ensure(device(), rows * vocabulary * 4));
  const View out = tensor::make_view(call.memory.data(), DType::kF32, {rows, vocabulary});
  if (vocabulary == 0) return out;
  View x = hidden;
  if (rows != batch.rows() || dispatch_.planning()) {
    // The plan takes room for the largest case.
    x = arena_.f32({dispatch_.planning() ? batch.rows() : rows, config_.hidden}).rows(0, rows);
    dispatch_.run(call.gather, ops::GatherRowsParams{.x = hidden, .rows = batch.logits_at(), .out = x});
  }
  matmul(call.logits, x, {{.weight = weights_.bound.head, .bias = {}, .y = out}}, compute_);
  return out;
}

void Glm5NextModel::matmul(backend::OpSite& site, const View& x, std::initializer_list<ops::MatmulPart> parts, ops::Compute compute) {
  ops::MatmulParams params;
  params.x = x;
  params.compute = compute;
  for (const ops::MatmulPart& part : parts) {
    if (part.weight.present() && part.weight.rows() > 0) params.parts[static_cast<size_t>(params.part_count++)] = part;
  }
  if (params.part_count > 0) dispatch_.run(site, params);
}

Result<ImageRows> Glm5NextModel::encode_image(const ImageInput& image) {
  if (vision_ == nullptr) return err(Code::kFailedPrecondition, "the model was loaded without a vision tower");
  dispatch_.set_tokens({});
  return vision_->encode(image);
}

}  // namespace lathe::models
