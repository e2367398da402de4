// The draft layer (spec glm5_next §2.8): one DSA and MoE layer over the final hidden state and the next token's embedding.

#include "models/glm5_next_text.h"

namespace lathe::models {

Result<DraftResult> Glm5NextModel::draft_prefill(std::span<const DraftItem> items, const View& hidden, cache::Store& store, StepHooks* hooks) {
  if (draft_sites_ == nullptr) return err(Code::kFailedPrecondition, "the model was loaded without a draft layer");
  items_.clear();
  for (const DraftItem& item : items) {
    const int64_t end = item.hidden_begin + static_cast<int64_t>(item.tokens.size());
    if (item.hidden_begin < 0 || end > hidden.dim(0)) {
      return err(Code::kInvalidArgument, "sequence {}: hidden rows [{}, {}) of {}", item.sequence.value, item.hidden_begin, end, hidden.dim(0));
    }
    items_.push_back({.sequence = item.sequence,
                      .start = item.start,
                      .tokens = item.tokens,
                      .rows = item.rows,
                      .expanded = item.kind == ItemKind::kPrefill && options_.prefill_mla == MlaPath::kExpanded,
                      .states = false,
                      .logits = item.logits,
                      .at = {},
                      .hidden_begin = item.hidden_begin});
  }
  LATHE_TRY_VOID(draft_batch_.build(items_, limits(), store));
  LATHE_TRY(const DraftResult result, run_draft({draft_batch_, store, hooks}, hidden, DraftPass::kPrefill));
  if (dispatch_.planning()) return result;
  for (const DraftItem& item : items) store.set_draft_length(item.sequence, item.start + static_cast<int64_t>(item.tokens.size()));
  return result;
}

Result<DraftResult> Glm5NextModel::draft_step(std::span<const DraftStepItem> items, cache::Store& store, StepHooks* hooks) {
  if (draft_sites_ == nullptr) return err(Code::kFailedPrecondition, "the model was loaded without a draft layer");
  const int64_t kpool = config_.indexer.kpool;
  items_.clear();
  for (const DraftStepItem& item : items) {
    if (item.row < 0 || item.row >= options_.max_batch_tokens || item.origin < 0 || item.origin >= options_.max_batch_tokens ||
        item.origin_position < 0 || item.origin_position >= item.position) {
      return err(Code::kInvalidArgument, "sequence {}: draft step at position {} from row {}, of a round that began in row {} at position {}",
                 item.sequence.value, item.position, item.row, item.origin, item.origin_position);
    }
    const int64_t after = item.origin_position + 1;
    items_.push_back({.sequence = item.sequence,
                      .start = item.position,
                      .tokens = {&item.token, 1},
                      .rows = {},
                      .states = false,
                      .at = {},
                      .hidden_begin = item.row,
                      .tail_begin = config_.indexer.always_select_tail ? after / kpool * kpool : after,
                      .origin = item.origin});
  }
  BatchLimits bounds = limits();
  bounds.skip_tail = false;  // the round's own latents are always attended to
  LATHE_TRY_VOID(draft_batch_.build(items_, bounds, store));
  copy_selections(draft_batch_);
  return run_draft({draft_batch_, store, hooks}, draft_hidden_[static_cast<size_t>(draft_turn_)], DraftPass::kStep);
}

void Glm5NextModel::copy_selections(const StepBatch& batch) {
  if (dispatch_.planning()) return;
  for (const StepBatch::Placed& placed : batch.placed()) {
    const View from = draft_selection_[0].rows(placed.item->origin, placed.item->origin + 1);
    const View to = draft_selection_[1].rows(placed.row_begin, placed.row_begin + 1);
    device().copy_on_device(to.data, from.data, from.extent_bytes());
  }
}

Result<DraftResult> Glm5NextModel::run_draft(const Pass& pass, const View& hidden_source, DraftPass which) {
  const bool later_step = which == DraftPass::kStep;
  begin_pass(pass);
  const int64_t rows = pass.batch.rows();
  const auto layer = static_cast<int32_t>(config_.layers);
  const MtpWeights& weights = *weights_.bound.mtp;
  DraftSites& sites = *draft_sites_;
  LayerSites& block = later_step ? sites.step_block : sites.block;
  before_layer(pass, layer);
  const View x = draft_input(pass, hidden_source);
  const View u = arena_.f32({rows, config_.hidden});
  const View y = arena_.f32({rows, config_.hidden});
  const View selection = draft_selection_[later_step ? 1 : 0].rows(0, rows);
  norm(block.input_norm, x, weights.layer.input_norm, u);
  {
    const Arena::Scope scope(arena_);
    dsa(pass,
        {.layer = layer, .weights = *weights.layer.dsa, .names = kDraftFamilies, .sites = block.dsa, .choose = !later_step, .selection = selection},
        u, y);
  }
  dispatch_.run(later_step ? sites.step_add_mixer : sites.add_mixer, ops::AddParams{.a = x, .b = y, .out = x});
  norm(block.post_norm, x, weights.layer.post_attention_norm, u);
  ffn(block.ffn, weights.layer, weights_.layers.back(), {.x = u, .y = y});
  dispatch_.run(later_step ? sites.step_add_ffn : sites.add_ffn, ops::AddParams{.a = x, .b = y, .out = x});
  // A round reads the previous result while it writes the next.
  const int turn = 1 - draft_turn_;
  const View out = draft_hidden_[static_cast<size_t>(turn)].rows(0, rows);
  norm(sites.norm, x, weights.head_norm, out);
  draft_logits_ = head(pass.batch, out, {.gather = sites.gather, .logits = sites.head, .memory = draft_logits_memory_});
  after_layer(pass, layer);
  LATHE_TRY_VOID(end_pass(pass));
  draft_turn_ = turn;
  return DraftResult{.logits = draft_logits_, .hidden = out, .items = pass.batch.item_rows()};
}

View Glm5NextModel::draft_input(const Pass& pass, const View& hidden_source) {
  const int64_t rows = pass.batch.rows();
  const int64_t width = config_.hidden;
  const MtpWeights& weights = *weights_.bound.mtp;
  DraftSites& sites = *draft_sites_;
  const View x = arena_.f32({rows, width});
  const Arena::Scope scope(arena_);
  const View joined = arena_.f32({rows, 2 * width});
  const View embedded = embed(pass.batch, sites.embed, sites.embed_rows);
  norm(sites.embed_norm, embedded, weights.enorm, joined.slice(1, 0, width));
  const View hidden = arena_.f32({rows, width});
  dispatch_.run(sites.hidden_gather, ops::GatherRowsParams{.x = hidden_source, .rows = pass.batch.hidden_at(), .out = hidden});
  norm(sites.hidden_norm, hidden, weights.hnorm, joined.slice(1, width, 2 * width));
  matmul(sites.join, joined, {{.weight = weights.eh_proj, .bias = {}, .y = x}}, compute_);
  return x;
}

}  // namespace lathe::models
