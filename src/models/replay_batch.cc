#include "models/replay_batch.h"

#include <algorithm>

namespace lathe::models {
namespace {

int64_t count(const auto& values) { return static_cast<int64_t>(values.size()); }

}  // namespace

void ReplayBatch::clear() { folds_.clear(), windows_.clear(), fold_rows_.clear(), calls_.clear(), marks_.clear(), progress_.clear(); }

void ReplayBatch::reserve_most(int64_t sequences, const ReplayPlan& plan) {
  const auto most = static_cast<size_t>(sequences);
  const auto rows = static_cast<size_t>(plan.window);
  folds_.reserve(most * (rows + 1)), windows_.reserve(most), fold_rows_.reserve(most * rows), calls_.reserve(rows + 2);
  marks_.reserve(most), progress_.reserve(most), targets_.reserve(most);
}

int64_t ReplayBatch::most_integers(int64_t sequences, int64_t rows, const ReplayPlan& plan) {
  return 3 * sequences * (plan.window + 1) + 4 * sequences + 1 + rows;
}

Result<void> ReplayBatch::build(std::span<const ReplayItem> items, const ReplayPlan& plan) {
  clear();
  int64_t rows = 0, longest = 0;
  for (const ReplayItem& item : items) {
    LATHE_TRY_VOID(check_mark(item.sequence, item.mark, item.start, plan));
    progress_.push_back({.rule = replay_rule(plan, item.mark), .position = item.mark.position, .row_begin = rows});
    if (!item.decode) continue;
    rows += item.rows;
    longest = std::max(longest, item.rows);
  }
  fold_rows_.assign(static_cast<size_t>(rows), 0);
  const int64_t rounds = std::max<int64_t>((longest + plan.window - 1) / plan.window, 1);
  for (int64_t round = 0; round < rounds; ++round) {
    const int64_t from_end = (rounds - 1 - round) * plan.window;  // rows that later rounds take
    targets_.clear();
    for (size_t i = 0; i < items.size(); ++i) {
      const ReplayItem& item = items[i];
      const Progress& progress = progress_[i];
      int64_t target = item.start;
      if (item.decode) {
        const bool takes_part = progress.done < item.rows - from_end;
        target = takes_part ? ops::checkpoint_of(progress.rule, item.start + progress.done) : progress.position;
      }
      targets_.push_back(target);
    }
    fold_until(items, targets_);
    add_windows(items, from_end);
  }
  for (size_t i = 0; i < items.size(); ++i) {
    const int64_t end = items[i].start + items[i].rows;
    marks_.push_back({.request = items[i].mark.request,
                      .origin = items[i].decode ? items[i].mark.origin : end,
                      .position = items[i].decode ? progress_[i].position : end});
  }
  return {};
}

/// Calls that bring the state of every item to its target.
void ReplayBatch::fold_until(std::span<const ReplayItem> items, std::span<const int64_t> targets) {
  for (bool more = true; more;) {
    Call call{.kind = Kind::kFlush, .begin = count(folds_)};
    for (size_t i = 0; i < items.size(); ++i) {
      const StateFold fold = next_fold(progress_[i].rule, progress_[i].position, targets[i]);
      if (fold.begin == fold.end) continue;
      folds_.push_back({items[i].slot, fold});
      progress_[i].position = fold.end;
      call.longest = std::max(call.longest, fold.end - fold.begin);
    }
    call.end = count(folds_);
    more = call.end > call.begin;
    if (more) calls_.push_back(call);
  }
}

/// The windows of a round. Those of items that are not cut lie side by side: one call.
void ReplayBatch::add_windows(std::span<const ReplayItem> items, int64_t from_end) {
  const bool cut = from_end > 0 || std::any_of(progress_.begin(), progress_.end(), [](const Progress& p) { return p.done > 0; });
  Call call{.kind = Kind::kVerify, .begin = count(windows_)};
  for (size_t i = 0; i < items.size(); ++i) {
    const int64_t rows = items[i].rows - from_end - progress_[i].done;
    if (!items[i].decode || rows <= 0) continue;
    add_window(items[i], progress_[i], rows);
    const Window& window = windows_.back();
    if (call.end <= call.begin) call.row_begin = window.row_begin;
    call.row_end = window.row_end, call.end = count(windows_);
    call.longest = std::max(call.longest, rows);
    if (!cut) continue;
    calls_.push_back(call);
    call = {.kind = Kind::kVerify, .begin = count(windows_)};
  }
  if (call.end > call.begin) calls_.push_back(call);
}

void ReplayBatch::add_window(const ReplayItem& item, Progress& progress, int64_t rows) {
  const int64_t start = item.start + progress.done;
  const int64_t row_begin = progress.row_begin + progress.done;
  windows_.push_back({.slot = item.slot, .checkpoint = progress.position, .start = start, .row_begin = row_begin, .row_end = row_begin + rows});
  for (int64_t i = 0; i < rows; ++i) {
    // The state of a checkpoint at the window's first row is in memory already.
    const bool folds = start + i > progress.position && ops::is_checkpoint(progress.rule, start + i);
    fold_rows_[static_cast<size_t>(row_begin + i)] = folds ? 1 : 0;
  }
  progress.done += rows;
}

void ReplayBatch::reserve(MetaPack& meta) {
  at_ = {.fold_slot = meta.add(count(folds_)),
         .fold_checkpoint = meta.add(count(folds_)),
         .fold_to = meta.add(count(folds_)),
         .slot = meta.add(count(windows_)),
         .checkpoint = meta.add(count(windows_)),
         .start = meta.add(count(windows_)),
         .fold = meta.add(count(fold_rows_))};
  for (Call& call : calls_) {
    if (call.kind == Kind::kVerify) call.ragged_at = meta.add(call.end - call.begin + 1);
  }
}

void ReplayBatch::fill(MetaPack& meta) const {
  for (size_t i = 0; i < folds_.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    meta.at(at_.fold_slot)[at] = folds_[i].slot;
    meta.at(at_.fold_checkpoint)[at] = static_cast<int32_t>(folds_[i].tokens.begin);
    meta.at(at_.fold_to)[at] = static_cast<int32_t>(folds_[i].tokens.end);
  }
  for (size_t i = 0; i < windows_.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    meta.at(at_.slot)[at] = windows_[i].slot;
    meta.at(at_.checkpoint)[at] = static_cast<int32_t>(windows_[i].checkpoint);
    meta.at(at_.start)[at] = static_cast<int32_t>(windows_[i].start);
  }
  std::copy(fold_rows_.begin(), fold_rows_.end(), meta.at(at_.fold));
  for (const Call& call : calls_) {
    if (call.kind != Kind::kVerify) continue;
    int32_t* border = meta.at(call.ragged_at);
    for (int64_t i = call.begin; i < call.end; ++i) *border++ = static_cast<int32_t>(windows_[static_cast<size_t>(i)].row_begin - call.row_begin);
    *border = static_cast<int32_t>(call.row_end - call.row_begin);
  }
}

void ReplayBatch::make_views(MetaPack& meta) {
  meta_ = &meta;
  fold_slot_ = meta.view(at_.fold_slot, {count(folds_)});
  fold_checkpoint_ = meta.view(at_.fold_checkpoint, {count(folds_)});
  fold_to_ = meta.view(at_.fold_to, {count(folds_)});
  slot_ = meta.view(at_.slot, {windows()});
  checkpoint_ = meta.view(at_.checkpoint, {windows()});
  start_ = meta.view(at_.start, {windows()});
  fold_ = meta.view(at_.fold, {count(fold_rows_)});
}

ReplayBatch::FoldViews ReplayBatch::folds(const Call& call) const {
  return {.slot = fold_slot_.rows(call.begin, call.end),
          .checkpoint = fold_checkpoint_.rows(call.begin, call.end),
          .to = fold_to_.rows(call.begin, call.end)};
}

ReplayBatch::WindowViews ReplayBatch::windows(const Call& call) const {
  return {.slot = slot_.rows(call.begin, call.end),
          .checkpoint = checkpoint_.rows(call.begin, call.end),
          .fold = fold_.rows(call.row_begin, call.row_end),
          .batch = {.begin = meta_->view(call.ragged_at, {call.end - call.begin + 1}),
                    .start = start_.rows(call.begin, call.end),
                    .longest = call.longest,
                    .host_begin = meta_->at(call.ragged_at),
                    .host_start = meta_->at(at_.start) + call.begin},
          .host_checkpoint = meta_->at(at_.checkpoint) + call.begin};
}

}  // namespace lathe::models
