// A group of threads over shared memory. Every operation: publish what I give, wait for all, work on my share of the rows, wait for all.

#include <algorithm>
#include <cmath>
#include <span>

#include "backend/collective.h"
#include "base/check.h"
#include "base/sync.h"

namespace lathe::backend {
namespace {

/// Rows that one rank works on.
struct Share {
  int64_t begin;
  int64_t end;
};

/// What the ranks of a group share. Slots are written by their rank before a meeting and read by others after it.
struct Room {
  Room(int ranks, base::Recorder* recorder)
      : size(ranks), sums(static_cast<size_t>(ranks)), reductions(static_cast<size_t>(ranks)), columns(static_cast<size_t>(ranks)) {
    mutex.set_recorder(recorder);
  }

  /// Returns when all ranks have come.
  void meet() {
    base::Lock lock(mutex);
    const uint64_t mine = round;
    if (++arrived == size) {
      arrived = 0;
      ++round;
      everyone.notify_all();
      return;
    }
    everyone.wait(lock, [&] { return round != mine; });
  }

  struct Columns {
    View local, out;
  };

  const int size;
  base::Mutex mutex{"group"};
  base::CondVar everyone;
  int arrived = 0;
  uint64_t round = 0;
  std::vector<const Group::TreeSum*> sums;
  std::vector<const Group::Reduction*> reductions;
  std::vector<Columns> columns;
};

/// NaN if one of them is.
float greater(float a, float b) { return std::isnan(a) || a > b ? a : b; }

/// Row t of every rank becomes what they make together.
template <class T, class Combine>
void combine_row(std::span<const Group::Reduction* const> ranks, int64_t t, Combine combine) {
  const auto at = [&](const Group::Reduction* one) { return static_cast<T*>(one->values.data) + t * one->values.step(0); };
  for (int64_t d = 0; d < ranks.front()->values.dim(1); ++d) {
    T value = at(ranks.front())[d];
    for (const Group::Reduction* one : ranks.subspan(1)) value = combine(value, at(one)[d]);
    for (const Group::Reduction* one : ranks) at(one)[d] = value;
  }
}

float* row_of(const View& view, int64_t row) { return view.f32() + row * view.step(0); }

class LocalGroup final : public Group {
 public:
  LocalGroup(std::shared_ptr<Room> room, int rank) : room_(std::move(room)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return room_->size; }
  void barrier() override { room_->meet(); }

  Result<void> tree_sum(const TreeSum& sum) override {
    room_->sums[static_cast<size_t>(rank_)] = &sum;
    room_->meet();
    LATHE_TRY_VOID(all_stand<TreeSum>(room_->sums));
    const Share mine = share(sum.out.dim(0));
    row_.resize(static_cast<size_t>(sum.out.dim(1)));
    for (int64_t t = mine.begin; t < mine.end; ++t) {
      gather_nodes(t, sum.leaves);
      tensor::tree_combine({sum.leaves, nodes_, rows_.data(), sum.out.dim(1)}, row_.data());
      for (const TreeSum* other : room_->sums) std::copy(row_.begin(), row_.end(), row_of(other->out, t));
    }
    room_->meet();
    return {};
  }

  Result<void> reduce(const Reduction& reduction) override {
    room_->reductions[static_cast<size_t>(rank_)] = &reduction;
    room_->meet();
    LATHE_TRY_VOID(all_stand<Reduction>(room_->reductions));
    const Share mine = share(reduction.values.dim(0));
    for (const Reduction* other : room_->reductions) {
      const View& values = other->values;
      LATHE_CHECK(values.dtype == reduction.values.dtype && values.dim(0) == reduction.values.dim(0) && values.dim(1) == reduction.values.dim(1),
                  "ranks combine {} and {}", tensor::describe(values), tensor::describe(reduction.values));
    }
    for (int64_t t = mine.begin; t < mine.end; ++t) {
      if (reduction.values.dtype == DType::kI32) {
        combine_row<int32_t>(room_->reductions, t, [](int32_t a, int32_t b) { return a + b; });
      } else {
        combine_row<float>(room_->reductions, t, [](float a, float b) { return greater(a, b); });
      }
    }
    room_->meet();
    return {};
  }

  void gather_columns(const View& local, const View& out) override {
    room_->columns[static_cast<size_t>(rank_)] = {local, out};
    room_->meet();
    const Share mine = share(out.dim(0));
    int64_t column = 0;
    for (const Room::Columns& source : room_->columns) {
      const int64_t width = source.local.present() ? source.local.dim(1) : 0;
      for (int64_t t = mine.begin; t < mine.end && width > 0; ++t) {
        for (const Room::Columns& target : room_->columns) std::copy_n(row_of(source.local, t), width, row_of(target.out, t) + column);
      }
      column += width;
    }
    LATHE_CHECK(column == out.dim(1), "ranks give {} columns, out has {}", column, out.dim(1));
    room_->meet();
  }

 private:
  /// After a meeting: unavailable, on every rank, if one of them has failed.
  template <class Part>
  Result<void> all_stand(const std::vector<const Part*>& parts) {
    const auto failed = std::find_if(parts.begin(), parts.end(), [](const Part* one) { return one->failed; });
    if (failed == parts.end()) return {};
    const auto who = failed - parts.begin();
    room_->meet();  // nobody's part may go before all have looked
    return err(Code::kUnavailable, "rank {} of {} failed and has no part of a sum to give", who, size());
  }

  Share share(int64_t rows) const { return {rows * rank_ / size(), rows * (rank_ + 1) / size()}; }

  /// Nodes of all ranks that have something for row t. Ranks hold ascending leaves in rank order or not: sorted here.
  void gather_nodes(int64_t t, int64_t leaves) {
    entries_.clear();
    for (const TreeSum* sum : room_->sums) {
      LATHE_CHECK(sum->leaves == leaves, "ranks sum trees of {} and {} leaves", sum->leaves, leaves);
      for (size_t n = 0; n < sum->nodes.size(); ++n) {
        const auto node = static_cast<int64_t>(n);
        if (sum->present.present() && sum->present.i32()[node * sum->present.step(0) + t * sum->present.step(1)] == 0) continue;
        entries_.push_back({sum->nodes[n], sum->partials.f32() + node * sum->partials.step(0) + t * sum->partials.step(1)});
      }
    }
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.node.begin < b.node.begin; });
    nodes_.clear();
    rows_.clear();
    for (const Entry& entry : entries_) nodes_.push_back(entry.node), rows_.push_back(entry.row);
  }

  struct Entry {
    tensor::TreeNode node;
    const float* row;
  };
  std::shared_ptr<Room> room_;
  int rank_;
  std::vector<Entry> entries_;
  std::vector<tensor::TreeNode> nodes_;
  std::vector<const float*> rows_;
  std::vector<float> row_;
};

}  // namespace

std::vector<std::unique_ptr<Group>> make_local_group(int size, base::Recorder* recorder) {
  LATHE_CHECK(size >= 1, "group of {} ranks", size);
  auto room = std::make_shared<Room>(size, recorder);
  std::vector<std::unique_ptr<Group>> ends;
  for (int rank = 0; rank < size; ++rank) ends.push_back(std::make_unique<LocalGroup>(room, rank));
  return ends;
}

}  // namespace lathe::backend
