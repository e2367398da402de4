// Replay decoding of the linear attention layers: where folds and windows meet states and rings, and states made for others.

#include <algorithm>

#include "models/glm5_next_text.h"
#include "ops/kda_replay.h"

namespace lathe::models {

Glm5NextModel::KdaMemory Glm5NextModel::kda_memory(const cache::Store& store, int32_t layer) const {
  return {kda_state_views(store, layer, config_.kda, shards_.kda_heads), kda_ring_view(store, layer, config_.kda, shards_.kda_heads)};
}

/// Before the recurrence of the pass's prefills, which go on from the states that the folds leave.
void Glm5NextModel::kda_replay(const Pass& pass, int32_t layer, const KdaRows& rows) {
  const ReplayBatch& replay = pass.batch.replay();
  if (replay.calls().empty()) return;
  if (dispatch_.planning()) return plan_replay(pass, layer, rows);
  const KdaMemory memory = kda_memory(pass.store, layer);
  KdaSites& sites = layer_sites_[static_cast<size_t>(layer)].kda;
  for (const ReplayBatch::Call& call : replay.calls()) {
    if (call.kind == ReplayBatch::Kind::kVerify) {
      kda_window(sites.verify, replay.windows(call), memory, rows.rows(call.row_begin, call.row_end));
      continue;
    }
    const ReplayBatch::FoldViews folds = replay.folds(call);
    kda_flush(sites.flush, memory, memory.states,
              {.from = folds.slot, .into = folds.slot, .slot = folds.slot, .checkpoint = folds.checkpoint, .to = folds.to, .longest = call.longest});
  }
}

void Glm5NextModel::kda_window(backend::OpSite& site, const ReplayBatch::WindowViews& window, const KdaMemory& memory, const KdaRows& rows) {
  dispatch_.run(site, ops::KdaVerifyParams{.q = rows.q,
                                           .k = rows.k,
                                           .v = rows.v,
                                           .g = rows.g,
                                           .beta = rows.beta,
                                           .states = memory.states.states,
                                           .states_scales = memory.states.scales,
                                           .state = window.slot,
                                           .checkpoint = window.checkpoint,
                                           .slot = window.slot,
                                           .ring = memory.ring,
                                           .fold = window.fold,
                                           .batch = window.batch,
                                           .o = rows.o,
                                           .host_checkpoint = window.host_checkpoint});
}

void Glm5NextModel::kda_flush(backend::OpSite& site, const KdaMemory& from, const KdaStateViews& to, const KdaFolds& folds) {
  dispatch_.run(site, ops::KdaFlushParams{.entering = from.states.states,
                                          .entering_scales = from.states.scales,
                                          .state_in = folds.from,
                                          .states = to.states,
                                          .states_scales = to.scales,
                                          .into = folds.into,
                                          .checkpoint = folds.checkpoint,
                                          .to = folds.to,
                                          .slot = folds.slot,
                                          .ring = from.ring,
                                          .folded_max = folds.longest});
}

/// One call at each site, whatever the pass at hand needs: later ones differ in numbers of sequences and rows alone.
void Glm5NextModel::plan_replay(const Pass& pass, int32_t layer, const KdaRows& rows) {
  const ReplayBatch& replay = pass.batch.replay();
  const KdaMemory memory = kda_memory(pass.store, layer);
  KdaSites& sites = layer_sites_[static_cast<size_t>(layer)].kda;
  const ReplayBatch::Call& last = replay.calls().back();
  if (last.kind != ReplayBatch::Kind::kVerify) return;
  const ReplayBatch::WindowViews window = replay.windows(last);
  kda_window(sites.verify, window, memory, rows.rows(last.row_begin, last.row_end));
  const KdaFolds folds{.from = window.slot,
                       .into = window.slot,
                       .slot = window.slot,
                       .checkpoint = window.checkpoint,
                       .to = window.checkpoint,
                       .longest = glm5_next_replay(config_, options_).period};
  kda_flush(sites.flush, memory, memory.states, folds);
  kda_flush(sites.rebuild, memory, rebuilt_views(memory.states), folds);
}

void Glm5NextModel::note_marks(cache::Store& store) const {
  if (dispatch_.planning()) return;
  const std::vector<cache::StateMark>& marks = step_batch_.replay().marks();
  for (size_t i = 0; i < marks.size(); ++i) store.set_mark(step_batch_.placed()[i].item->sequence, marks[i]);
}

/// Room for one layer's state of one sequence, in the format of `like`.
KdaStateViews Glm5NextModel::rebuilt_views(const KdaStateViews& like) {
  const View one = like.states.rows(0, 1);
  const int64_t bytes = (one.extent_bytes() + 63) / 64 * 64;
  if (!dispatch_.planning()) note(rebuilt_memory_.ensure(device(), bytes + one.dim(1) * one.dim(3) * 4));
  char* const memory = static_cast<char*>(dispatch_.planning() ? nowhere() : rebuilt_memory_.data());
  KdaStateViews out{.states = tensor::make_view(memory, one.dtype, {1, one.dim(1), one.dim(2), one.dim(3)}), .scales = {}};
  if (like.scales.present()) out.scales = tensor::make_view(memory + bytes, DType::kF32, {1, one.dim(1), one.dim(3)});
  return out;
}

/// The state that `folds` lead to, in rebuilt_memory_.
KdaStateViews Glm5NextModel::rebuild_state(int32_t layer, const KdaMemory& memory, const Rebuild& rebuild) {
  const KdaStateViews made = rebuilt_views(memory.states);
  for (size_t i = 0; i < rebuild.folds.size(); ++i) {
    const StateFold& fold = rebuild.folds[i];
    const auto at = static_cast<int64_t>(i);
    const KdaMemory from{i == 0 ? memory.states : made, memory.ring};
    kda_flush(layer_sites_[static_cast<size_t>(layer)].kda.rebuild, from, made,
              {.from = i == 0 ? rebuild.slot : rebuild.row,
               .into = rebuild.row,
               .slot = rebuild.slot,
               .checkpoint = rebuild.begin.rows(at, at + 1),
               .to = rebuild.end.rows(at, at + 1),
               .longest = fold.end - fold.begin});
  }
  device().synchronise();
  return made;
}

/// What the calls of all layers share.
Result<Glm5NextModel::Rebuild> Glm5NextModel::prepare_rebuild(SequenceId sequence, const cache::Store& store) {
  const ReplayPlan plan = glm5_next_replay(config_, options_);
  const cache::StateMark& mark = store.mark(sequence);
  const int64_t length = store.length(sequence);
  LATHE_TRY_VOID(check_mark(sequence, mark, length, plan));
  Rebuild out;
  const ops::ReplayRule rule = replay_rule(plan, mark);
  for (int64_t position = mark.position; position < length; position = out.folds.back().end) out.folds.push_back(next_fold(rule, position, length));
  const auto count = static_cast<int64_t>(out.folds.size());
  rebuild_meta_.clear();
  const int64_t slot = rebuild_meta_.add(1), row = rebuild_meta_.add(1), begin = rebuild_meta_.add(count), end = rebuild_meta_.add(count);
  *rebuild_meta_.at(slot) = store.slot(sequence);
  for (int64_t i = 0; i < count; ++i) {
    rebuild_meta_.at(begin)[i] = static_cast<int32_t>(out.folds[static_cast<size_t>(i)].begin);
    rebuild_meta_.at(end)[i] = static_cast<int32_t>(out.folds[static_cast<size_t>(i)].end);
  }
  LATHE_TRY_VOID(rebuild_meta_.upload(device(), Upload::kCopy));
  out.slot = rebuild_meta_.view(slot, {1}), out.row = rebuild_meta_.view(row, {1});
  out.begin = rebuild_meta_.view(begin, {count}), out.end = rebuild_meta_.view(end, {count});
  return out;
}

Result<cache::Snapshot> Glm5NextModel::prefix_snapshot(SequenceId sequence, const cache::Store& store) {
  LATHE_TRY(cache::Snapshot out, store.snapshot(sequence));
  if (!glm5_next_replay(config_, options_).on()) return out;
  LATHE_TRY(const Rebuild rebuild, prepare_rebuild(sequence, store));
  dispatch_.set_tokens({});
  for (cache::Snapshot::Part& part : out.parts) {
    if (!store.family(part.layer, part.family).trails) continue;
    const KdaMemory memory = kda_memory(store, part.layer);
    size_t states = memory.states.scales.present() ? 2 : 1;
    if (!rebuild.folds.empty()) {
      const KdaStateViews made = rebuild_state(part.layer, memory, rebuild);
      LATHE_TRY_VOID(dispatch_.take_error());
      device().copy_to_host(part.planes[0].data(), made.states.data, static_cast<int64_t>(part.planes[0].size()));
      if (states == 2) device().copy_to_host(part.planes[1].data(), made.scales.data, static_cast<int64_t>(part.planes[1].size()));
    }
    // Nothing lies behind the state any more.
    for (; states < part.planes.size(); ++states) std::fill(part.planes[states].begin(), part.planes[states].end(), std::byte{0});
  }
  out.mark.origin = out.mark.position = out.length;
  return out;
}

}  // namespace lathe::models
