#pragma once
// The rows of one pass: checks of its items, their order, and every integer array that the ops read.

#include <cstdint>
#include <span>
#include <vector>

#include "backend/dispatch.h"
#include "base/result.h"
#include "models/arena.h"
#include "models/model.h"
#include "models/replay_batch.h"
#include "ops/batch.h"

namespace lathe::models {

/// Rows of one sequence, for a step or for the draft layer.
struct BatchItem {
  SequenceId sequence;
  int64_t start = 0;  ///< position of the first row
  std::span<const TokenId> tokens;
  std::span<const EmbeddingRows> rows;
  int32_t tentative = 0;
  bool expanded = false;  ///< MLA in expanded form
  bool range = false;
  bool states = true;  ///< carries KDA states
  bool decode = true;  ///< its rows may be replayed
  Logits logits = Logits::kLast;
  std::span<const int32_t> at;
  int64_t hidden_begin = 0;  ///< draft: first row of the hidden view that belongs to the item
  int64_t tail_begin = -1;   ///< draft: first position of the tail that the item's only row attends to; −1: by the pool rule
  int64_t origin = -1;       ///< draft: row whose selection the item keeps
};

/// What a batch may be.
struct BatchLimits {
  int64_t vocabulary = 0;
  int64_t hidden = 0;
  int64_t rows_max = 0;
  int64_t positions_max = 0;
  int32_t tentative_max = 0;
  /// > 0: settled rows whose position ends such a run leave their states, not the last one of the item alone. A state that is rounded where it is kept is then
  /// rounded at the same positions however a prompt is cut: at any place if this is 1, else at multiples of it.
  int64_t keep_states_every = 0;
  ReplayPlan replay = {};
  bool skip_tail = false;  ///< rows attend to chosen pools only (index_kpool_always_select_tail false)
};

/// Rows in the order of the pass: items that are replayed first, then others in absorbed form, then those in expanded form, each as given.
class StepBatch {
 public:
  /// Replaces the batch, on the host. Errors: invalid_argument, as Model::step; the same on every rank that is given these items.
  Result<void> build(std::span<const BatchItem> items, const BatchLimits& limits, const cache::Store& store);
  /// Brings the arrays to the device; only then are there views. Errors: resource_exhausted; the views then have shapes, and memory that nobody may touch.
  Result<void> upload(backend::Device& device, Upload upload);

  /// One form of attention over consecutive rows.
  struct Part {
    int64_t row_begin = 0, row_end = 0;
    int64_t sequence_begin = 0, sequence_end = 0;
    ops::Ragged ragged;
    int64_t rows() const { return row_end - row_begin; }
  };
  /// Where an item of the pass lies.
  struct Placed {
    const BatchItem* item = nullptr;
    int64_t row_begin = 0, row_end = 0;
  };

  int64_t rows() const { return rows_; }
  /// From the lowest position of a row to one past the highest.
  backend::OpRange positions() const;
  int64_t sequences() const { return static_cast<int64_t>(placed_.size()); }
  int64_t logits_rows() const { return logits_rows_; }
  int64_t override_rows() const { return override_rows_; }
  const std::vector<Placed>& placed() const { return placed_; }
  /// In the order of the items given.
  std::span<const ItemRows> item_rows() const { return item_rows_; }

  const ops::Ragged& ragged() const { return ragged_; }
  const Part& absorbed() const { return absorbed_; }
  const Part& expanded() const { return expanded_; }
  const Part& recurrent() const { return recurrent_; }  ///< rows that go through kda_recurrence: all, or by replay those of prefills
  int64_t replayed_rows() const { return recurrent_.row_begin; }
  const ReplayBatch& replay() const { return replay_; }
  const View& ids() const { return ids_; }                    ///< i32 [T]
  const View& override_row() const { return override_row_; }  ///< absent, or i32 [T]
  const View& slot() const { return slot_; }                  ///< i32 [S]
  const View& state_in() const { return state_in_; }          ///< i32 [S]
  const View& state_out() const { return state_out_; }        ///< i32 [T]
  const View& no_state_in() const { return no_state_in_; }    ///< i32 [S], all −1
  const View& no_state_out() const { return no_state_out_; }  ///< i32 [T], all −1
  const View& table() const { return table_; }                ///< i32 [S, blocks]
  const View& logits_at() const { return logits_at_; }        ///< i32 [n]: rows whose logits are wanted
  const View& hidden_at() const { return hidden_at_; }        ///< i32 [T]: rows of the hidden view
  const View& tail_begin() const { return tail_begin_; }      ///< absent, or i32 [T]

 private:
  struct Offsets {
    int64_t ids, override_row, begin, start, slot, state_in, state_out, no_state_in, no_state_out, table, logits_at, hidden_at, tail_begin,
        expanded_begin, recurrent_begin;
  };
  Result<void> check(std::span<const BatchItem> items, const BatchLimits& limits, const cache::Store& store);
  void place(std::span<const BatchItem> items, const BatchLimits& limits);
  void place_one(const BatchItem& item, size_t given);
  Result<void> build_replay(const BatchLimits& limits, const cache::Store& store);
  int32_t state_of(const BatchItem& item, const cache::Store& store, int64_t ahead) const;
  void reserve_most(const BatchLimits& limits, const cache::Store& store);
  Offsets reserve(int64_t blocks);
  void fill_rows(const Offsets& at, const BatchLimits& limits, const cache::Store& store);
  void fill_sequences(const Offsets& at, const cache::Store& store, int64_t blocks);
  void make_views(const Offsets& at, int64_t blocks);

  MetaPack meta_;
  Offsets at_{};
  int64_t blocks_ = 1;  ///< width of the block table
  std::vector<Placed> placed_;
  std::vector<ItemRows> item_rows_;
  std::vector<SequenceId> seen_;
  int64_t rows_ = 0, logits_rows_ = 0, override_rows_ = 0;
  bool has_overrides_ = false, has_tails_ = false, has_ranges_ = false;
  ops::Ragged ragged_;
  Part absorbed_, expanded_, recurrent_;
  bool replays_ = false;
  ReplayBatch replay_;
  std::vector<ReplayItem> replay_items_;
  View ids_, override_row_, slot_, state_in_, state_out_, no_state_in_, no_state_out_, table_, logits_at_, hidden_at_, tail_begin_;
};

}  // namespace lathe::models
