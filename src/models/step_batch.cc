#include "models/step_batch.h"

#include <algorithm>
#include <limits>

namespace lathe::models {
namespace {

int64_t count(const BatchItem& item) { return static_cast<int64_t>(item.tokens.size()); }

int64_t wanted_logits(const BatchItem& item) {
  switch (item.logits) {
    case Logits::kNone: return 0;
    case Logits::kLast: return 1;
    case Logits::kAll: return count(item);
    case Logits::kAt: return static_cast<int64_t>(item.at.size());
  }
  return 0;
}

Result<void> check_tokens(const BatchItem& item, const BatchLimits& limits) {
  for (const TokenId token : item.tokens) {
    if (token < 0 || token >= limits.vocabulary) {
      return err(Code::kInvalidArgument, "sequence {}: token {} is outside the vocabulary of {}", item.sequence.value, token, limits.vocabulary);
    }
  }
  int32_t previous = -1;
  for (const int32_t index : item.at) {
    if (item.logits != Logits::kAt) break;
    if (index <= previous || index >= count(item)) {
      return err(Code::kInvalidArgument, "sequence {}: logits wanted at {} of {} tokens; expected ascending indices", item.sequence.value, index,
                 count(item));
    }
    previous = index;
  }
  int64_t free = 0;
  for (const EmbeddingRows& run : item.rows) {
    const bool fits = run.rows.rank == 2 && run.rows.dtype == DType::kF32 && run.rows.contiguous() && run.rows.dim(1) == limits.hidden &&
                      run.begin >= free && run.begin + run.rows.dim(0) <= count(item);
    if (!fits) {
      return err(Code::kInvalidArgument, "sequence {}: embedding rows {} at token {} do not fit {} tokens of width {}", item.sequence.value,
                 tensor::describe(run.rows), run.begin, count(item), limits.hidden);
    }
    free = run.begin + run.rows.dim(0);
  }
  return {};
}

Result<void> check_item(const BatchItem& item, const BatchLimits& limits, const cache::Store& store) {
  if (!store.is_open(item.sequence)) return err(Code::kInvalidArgument, "sequence {} is not open", item.sequence.value);
  if (item.tokens.empty()) return err(Code::kInvalidArgument, "sequence {}: a step item without tokens", item.sequence.value);
  if (item.tentative < 0 || item.tentative > count(item) || item.tentative > limits.tentative_max) {
    return err(Code::kInvalidArgument, "sequence {}: {} of {} tokens are tentative, at most {} may be", item.sequence.value, item.tentative,
               count(item), limits.tentative_max);
  }
  const int64_t end = item.start + count(item);
  if (item.start < 0 || end > limits.positions_max) {
    return err(Code::kInvalidArgument, "sequence {}: positions {} to {} leave the model's {}", item.sequence.value, item.start, end,
               limits.positions_max);
  }
  const auto room = static_cast<int64_t>(store.block_table(item.sequence).size()) * store.options().block_tokens;
  if (end > room) {
    return err(Code::kFailedPrecondition, "sequence {}: the store has room for {} positions, the step needs {}; append before the step",
               item.sequence.value, room, end);
  }
  return check_tokens(item, limits);
}

}  // namespace

Result<void> StepBatch::check(std::span<const BatchItem> items, const BatchLimits& limits, const cache::Store& store) {
  if (items.empty()) return err(Code::kInvalidArgument, "a step without items");
  rows_ = 0;
  seen_.clear();
  for (const BatchItem& item : items) {
    LATHE_TRY_VOID(check_item(item, limits, store));
    rows_ += count(item);
    seen_.push_back(item.sequence);
  }
  if (rows_ > limits.rows_max) return err(Code::kInvalidArgument, "a step of {} tokens, the model was loaded for {}", rows_, limits.rows_max);
  std::sort(seen_.begin(), seen_.end());
  const auto twice = std::adjacent_find(seen_.begin(), seen_.end());
  if (twice != seen_.end()) return err(Code::kInvalidArgument, "sequence {} occurs twice in a step", twice->value);
  return {};
}

void StepBatch::place_one(const BatchItem& item, size_t given) {
  const int64_t row = placed_.empty() ? 0 : placed_.back().row_end;
  placed_.push_back({&item, row, row + count(item)});
  item_rows_[given] = {logits_rows_, wanted_logits(item), row, count(item)};
  logits_rows_ += wanted_logits(item);
  for (const EmbeddingRows& run : item.rows) override_rows_ += run.rows.dim(0);
  has_tails_ = has_tails_ || item.tail_begin >= 0;
  has_ranges_ = has_ranges_ || item.range;
}

void StepBatch::place(std::span<const BatchItem> items, const BatchLimits& limits) {
  placed_.clear();
  item_rows_.assign(items.size(), {});
  logits_rows_ = override_rows_ = 0;
  has_overrides_ = has_tails_ = has_ranges_ = false;
  absorbed_ = expanded_ = recurrent_ = {};
  replays_ = limits.replay.on() && std::any_of(items.begin(), items.end(), [](const BatchItem& item) { return item.states; });
  enum class Group : uint8_t { kReplayed, kAbsorbed, kExpanded };
  const auto group_of = [&](const BatchItem& item) {
    if (replays_ && item.decode) return Group::kReplayed;
    return item.expanded ? Group::kExpanded : Group::kAbsorbed;
  };
  for (const Group group : {Group::kReplayed, Group::kAbsorbed, Group::kExpanded}) {
    Part& part = group == Group::kExpanded ? expanded_ : absorbed_;
    const auto begin_part = [&](Part& begun) {
      begun.row_begin = placed_.empty() ? 0 : placed_.back().row_end;
      begun.sequence_begin = sequences();
    };
    if (group != Group::kAbsorbed) begin_part(part);
    if (group == Group::kAbsorbed) begin_part(recurrent_);
    for (size_t i = 0; i < items.size(); ++i) {
      if (group_of(items[i]) != group) continue;
      place_one(items[i], i);
      part.ragged.longest = std::max(part.ragged.longest, count(items[i]));
      if (group != Group::kReplayed) recurrent_.ragged.longest = std::max(recurrent_.ragged.longest, count(items[i]));
    }
    part.row_end = placed_.empty() ? 0 : placed_.back().row_end;
    part.sequence_end = sequences();
  }
  recurrent_.row_end = rows_, recurrent_.sequence_end = sequences();
  has_overrides_ = override_rows_ > 0;
  ragged_.longest = std::max(absorbed_.ragged.longest, expanded_.ragged.longest);
}

Result<void> StepBatch::build_replay(const BatchLimits& limits, const cache::Store& store) {
  replay_.clear();
  replay_items_.clear();
  if (!replays_) return {};
  for (const Placed& placed : placed_) {
    const BatchItem& item = *placed.item;
    cache::StateMark mark = store.mark(item.sequence);
    if (item.range) mark.origin = mark.position = item.start;  // the state comes from another rank
    replay_items_.push_back({.sequence = item.sequence,
                             .slot = store.slot(item.sequence),
                             .mark = mark,
                             .start = item.start,
                             .rows = count(item),
                             .decode = item.decode});
  }
  return replay_.build(replay_items_, limits.replay);
}

backend::OpRange StepBatch::positions() const {
  if (placed_.empty()) return {};
  backend::OpRange range{std::numeric_limits<int64_t>::max(), 0};
  for (const Placed& placed : placed_) {
    range.begin = std::min(range.begin, placed.item->start);
    range.end = std::max(range.end, placed.item->start + placed.row_end - placed.row_begin);
  }
  return range;
}

/// What a batch of the store's sequences, each with its share of the blocks, can take: a growing context then allocates nothing.
void StepBatch::reserve_most(const BatchLimits& limits, const cache::Store& store) {
  constexpr int64_t kArrays = 24, kPadding = 16;
  const int64_t slots = store.options().slots, share = (store.options().blocks + slots - 1) / slots;
  const int64_t replayed = limits.replay.on() ? ReplayBatch::most_integers(slots, limits.rows_max, limits.replay) : 0;
  meta_.reserve(6 * limits.rows_max + limits.rows_max + slots * (share + 8) + replayed + kArrays * kPadding);
  placed_.reserve(static_cast<size_t>(slots)), item_rows_.reserve(static_cast<size_t>(slots)), seen_.reserve(static_cast<size_t>(slots));
  if (!limits.replay.on()) return;
  replay_.reserve_most(slots, limits.replay), replay_items_.reserve(static_cast<size_t>(slots));
}

StepBatch::Offsets StepBatch::reserve(int64_t blocks) {
  meta_.clear();
  const int64_t rows = rows_;
  const int64_t sequences = this->sequences();
  replay_.reserve(meta_);
  return {.ids = meta_.add(rows),
          .override_row = has_overrides_ ? meta_.add(rows) : 0,
          .begin = meta_.add(sequences + 1),
          .start = meta_.add(sequences),
          .slot = meta_.add(sequences),
          .state_in = meta_.add(sequences),
          .state_out = meta_.add(rows),
          .no_state_in = has_ranges_ ? meta_.add(sequences) : 0,
          .no_state_out = has_ranges_ ? meta_.add(rows) : 0,
          .table = meta_.add(sequences * blocks),
          .logits_at = meta_.add(logits_rows_),
          .hidden_at = meta_.add(rows),
          .tail_begin = has_tails_ ? meta_.add(rows) : 0,
          .expanded_begin = meta_.add(expanded_.sequence_end - expanded_.sequence_begin + 1),
          .recurrent_begin = meta_.add(recurrent_.sequence_end - recurrent_.sequence_begin + 1)};
}

/// Row of the current state, or of the one that the `ahead`-th tentative token leaves. By replay there is one alone, and drafts leave none.
int32_t StepBatch::state_of(const BatchItem& item, const cache::Store& store, int64_t ahead) const {
  if (replays_) return ahead == 0 ? store.slot(item.sequence) : -1;
  return ahead == 0 ? store.state_row(item.sequence) : store.tentative_row(item.sequence, ahead - 1);
}

void StepBatch::fill_rows(const Offsets& at, const BatchLimits& limits, const cache::Store& store) {
  int32_t override_next = 0;
  int64_t logits_next = 0;
  for (const Placed& placed : placed_) {
    const BatchItem& item = *placed.item;
    const int64_t settled = count(item) - item.tentative;
    for (int64_t i = 0; i < count(item); ++i) {
      const int64_t row = placed.row_begin + i;
      meta_.at(at.ids)[row] = item.tokens[static_cast<size_t>(i)];
      meta_.at(at.hidden_at)[row] = static_cast<int32_t>(item.hidden_begin + i);
      int32_t state = -1;
      const bool kept = i + 1 == settled || (limits.keep_states_every > 0 && (item.start + i + 1) % limits.keep_states_every == 0);
      if (item.states && i < settled && kept) state = state_of(item, store, 0);
      if (item.states && i >= settled) state = state_of(item, store, 1 + i - settled);
      meta_.at(at.state_out)[row] = state;
      if (has_ranges_) meta_.at(at.no_state_out)[row] = -1;
      if (has_overrides_) meta_.at(at.override_row)[row] = -1;
      if (has_tails_) {
        // Without a tail of its own a row's tail begins behind it: no key.
        meta_.at(at.tail_begin)[row] = static_cast<int32_t>(limits.skip_tail ? item.start + i + 1 : item.tail_begin);
      }
    }
    for (const EmbeddingRows& run : item.rows) {
      for (int64_t i = 0; i < run.rows.dim(0); ++i) meta_.at(at.override_row)[placed.row_begin + run.begin + i] = override_next++;
    }
    for (int64_t i = 0; i < wanted_logits(item); ++i) {
      int64_t index = count(item) - 1;
      if (item.logits == Logits::kAll) index = i;
      if (item.logits == Logits::kAt) index = item.at[static_cast<size_t>(i)];
      meta_.at(at.logits_at)[logits_next++] = static_cast<int32_t>(placed.row_begin + index);
    }
  }
}

void StepBatch::fill_sequences(const Offsets& at, const cache::Store& store, int64_t blocks) {
  for (size_t s = 0; s < placed_.size(); ++s) {
    const BatchItem& item = *placed_[s].item;
    const auto i = static_cast<int64_t>(s);
    meta_.at(at.begin)[i] = static_cast<int32_t>(placed_[s].row_begin);
    meta_.at(at.start)[i] = static_cast<int32_t>(item.start);
    meta_.at(at.slot)[i] = store.slot(item.sequence);
    meta_.at(at.state_in)[i] = item.states ? state_of(item, store, 0) : -1;
    if (has_ranges_) meta_.at(at.no_state_in)[i] = -1;
    const std::span<const int32_t> table = store.block_table(item.sequence);
    std::copy(table.begin(), table.end(), meta_.at(at.table) + i * blocks);
  }
  meta_.at(at.begin)[sequences()] = static_cast<int32_t>(rows_);
  const auto borders = [&](const Part& part, int64_t into) {
    int32_t* border = meta_.at(into);
    for (int64_t i = part.sequence_begin; i < part.sequence_end; ++i) {
      *border++ = static_cast<int32_t>(placed_[static_cast<size_t>(i)].row_begin - part.row_begin);
    }
    *border = static_cast<int32_t>(part.rows());
  };
  borders(expanded_, at.expanded_begin);
  borders(recurrent_, at.recurrent_begin);
  replay_.fill(meta_);
}

void StepBatch::make_views(const Offsets& at, int64_t blocks) {
  const int64_t sequences = this->sequences();
  ids_ = meta_.view(at.ids, {rows_});
  override_row_ = has_overrides_ ? meta_.view(at.override_row, {rows_}) : View{};
  ragged_.begin = meta_.view(at.begin, {sequences + 1});
  ragged_.start = meta_.view(at.start, {sequences});
  slot_ = meta_.view(at.slot, {sequences});
  state_in_ = meta_.view(at.state_in, {sequences});
  state_out_ = meta_.view(at.state_out, {rows_});
  no_state_in_ = has_ranges_ ? meta_.view(at.no_state_in, {sequences}) : View{};
  no_state_out_ = has_ranges_ ? meta_.view(at.no_state_out, {rows_}) : View{};
  table_ = meta_.view(at.table, {sequences, blocks});
  logits_at_ = meta_.view(at.logits_at, {logits_rows_});
  hidden_at_ = meta_.view(at.hidden_at, {rows_});
  tail_begin_ = has_tails_ ? meta_.view(at.tail_begin, {rows_}) : View{};
  absorbed_.ragged.begin = ragged_.begin.rows(0, absorbed_.sequence_end + 1);
  absorbed_.ragged.start = ragged_.start.rows(0, absorbed_.sequence_end);
  expanded_.ragged.begin = meta_.view(at.expanded_begin, {expanded_.sequence_end - expanded_.sequence_begin + 1});
  expanded_.ragged.start = ragged_.start.rows(expanded_.sequence_begin, expanded_.sequence_end);
  recurrent_.ragged.begin = meta_.view(at.recurrent_begin, {recurrent_.sequence_end - recurrent_.sequence_begin + 1});
  recurrent_.ragged.start = ragged_.start.rows(recurrent_.sequence_begin, recurrent_.sequence_end);
  replay_.make_views(meta_);
}

Result<void> StepBatch::build(std::span<const BatchItem> items, const BatchLimits& limits, const cache::Store& store) {
  LATHE_TRY_VOID(check(items, limits, store));
  reserve_most(limits, store);
  place(items, limits);
  LATHE_TRY_VOID(build_replay(limits, store));
  has_tails_ = has_tails_ || limits.skip_tail;
  size_t blocks = 1;
  for (const BatchItem& item : items) blocks = std::max(blocks, store.block_table(item.sequence).size());
  blocks_ = static_cast<int64_t>(blocks);
  at_ = reserve(blocks_);
  fill_rows(at_, limits, store);
  fill_sequences(at_, store, blocks_);
  return {};
}

Result<void> StepBatch::upload(backend::Device& device, Upload upload) {
  Result<void> done = meta_.upload(device, upload);
  make_views(at_, blocks_);
  return done;
}

}  // namespace lathe::models
