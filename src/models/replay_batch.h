#pragma once
// The calls of replay decoding in one pass: folds that bring each state to where its sequence goes on, and windows of rows over states and rings.

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "models/arena.h"
#include "models/replay.h"
#include "ops/batch.h"

namespace lathe::models {

/// A sequence of the pass.
struct ReplayItem {
  SequenceId sequence{};
  int32_t slot = 0;
  cache::StateMark mark{};
  int64_t start = 0;  ///< position of its first row
  int64_t rows = 0;
  bool decode = true;  ///< false: a prefill, which goes on from the exact state and leaves one
};

/// Order of the calls: folds in turn, as a state can pass several checkpoints, then windows. An item of more rows than a window is cut, from its end, so that
/// tentative rows share the last one; between its windows come further folds. Flushes are thus late: the tokens that they fold are settled.
class ReplayBatch {
 public:
  enum class Kind : uint8_t { kFlush, kVerify };
  struct Call {
    Kind kind = Kind::kFlush;
    int64_t begin = 0, end = 0;          ///< folds, or windows
    int64_t longest = 0;                 ///< tokens of a fold, or rows of a window
    int64_t row_begin = 0, row_end = 0;  ///< of the windows
    int64_t ragged_at = 0;               ///< where the borders of its windows lie
  };

  /// Rows of decode items are numbered from 0, in the order of `items`; those of prefills are not looked at. Errors: failed_precondition (a state that stands
  /// where no step of this model has left it: not from the snapshot of such a model).
  Result<void> build(std::span<const ReplayItem> items, const ReplayPlan& plan);
  void clear();
  /// Room for steps of `sequences` windows: decoding then allocates nothing.
  void reserve_most(int64_t sequences, const ReplayPlan& plan);
  /// Integers of such a step.
  static int64_t most_integers(int64_t sequences, int64_t rows, const ReplayPlan& plan);

  /// Adds the arrays of the calls to `meta`; then fills them.
  void reserve(MetaPack& meta);
  void fill(MetaPack& meta) const;
  /// Once `meta` is uploaded.
  void make_views(MetaPack& meta);

  const std::vector<Call>& calls() const { return calls_; }
  /// Where the state of each item stands after the pass.
  const std::vector<cache::StateMark>& marks() const { return marks_; }
  int64_t windows() const { return static_cast<int64_t>(windows_.size()); }

  struct FoldViews {
    View slot, checkpoint, to;  ///< i32 [n]: a slot has one state, in its row
  };
  FoldViews folds(const Call& call) const;
  struct WindowViews {
    View slot, checkpoint;  ///< i32 [n]
    View fold;              ///< i32 [rows]
    ops::Ragged batch;
    const int32_t* host_checkpoint = nullptr;
  };
  WindowViews windows(const Call& call) const;

 private:
  struct Fold {
    int32_t slot = 0;
    StateFold tokens;
  };
  struct Window {
    int32_t slot = 0;
    int64_t checkpoint = 0, start = 0;
    int64_t row_begin = 0, row_end = 0;
  };
  struct Progress {  ///< of an item while calls are made
    ops::ReplayRule rule;
    int64_t position = 0;   ///< where the state stands
    int64_t done = 0;       ///< rows
    int64_t row_begin = 0;  ///< of decode items
  };
  void fold_until(std::span<const ReplayItem> items, std::span<const int64_t> targets);
  void add_windows(std::span<const ReplayItem> items, int64_t longest);
  void add_window(const ReplayItem& item, Progress& progress, int64_t rows);

  std::vector<Fold> folds_;
  std::vector<Window> windows_;
  std::vector<int32_t> fold_rows_;  ///< per row: 1 where a window folds before it
  std::vector<Call> calls_;
  std::vector<cache::StateMark> marks_;
  std::vector<Progress> progress_;
  std::vector<int64_t> targets_;
  struct Offsets {
    int64_t fold_slot = 0, fold_checkpoint = 0, fold_to = 0, slot = 0, checkpoint = 0, start = 0, fold = 0;
  } at_;
  View fold_slot_, fold_checkpoint_, fold_to_, slot_, checkpoint_, start_, fold_;
  MetaPack* meta_ = nullptr;  ///< of the views
};

}  // namespace lathe::models
