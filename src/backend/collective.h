#pragma once
// What ranks say to each other. Groups are named by their use: tp_kda, tp_head, attn, cp, ep, layers (spec parallel §1).

#include <memory>
#include <vector>

#include "base/recorder.h"
#include "base/result.h"
#include "tensor/shard.h"
#include "tensor/view.h"

namespace lathe::backend {

/// One rank's end of a group. Every member calls the same operations in the same order, also with zero-size data.
/// Threads   each end is used by its rank's thread; calls block until all members arrive.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Canonical sum of partial rows: `partials` f32 [nodes, T, D] are this rank's nodes of the tree over `leaves`; out f32 [T, D] gets the root on every rank.
  /// `present` marks the partial rows that had a contribution; a sum without any is 0. out must not overlap the partials of any rank.
  struct TreeSum {
    int64_t leaves = 0;
    std::vector<tensor::TreeNode> nodes{};
    View partials{};  ///< may be absent without nodes
    View present{};   ///< absent (all present), or i32 [nodes, T], in the memory of partials
    View out{};
    bool failed = false;  ///< this rank has nothing to give: partials are not read, and the call is an error on every rank
  };
  /// Errors: unavailable on every rank if one of them has `failed`; out is then as it was, and the group can go on.
  virtual Result<void> tree_sum(const TreeSum& sum) = 0;
  /// Combines the same rows of all ranks, element by element and in place: i32 [T, D] becomes the sum (which must fit), f32 [T, D] the greatest, NaN if one
  /// of them is NaN. Integers have one sum: no order is promised, and none is seen.
  struct Reduction {
    View values{};
    bool failed = false;  ///< as in TreeSum
  };
  /// Errors: as tree_sum; values are then as they were.
  virtual Result<void> reduce(const Reduction& reduction) = 0;
  /// out f32 [T, Σ width] gets every rank's columns [T, width_r] in rank order. A rank without columns gives an absent view or width 0.
  virtual void gather_columns(const View& local, const View& out) = 0;
  virtual void barrier() = 0;
};

/// Ends of a group of `size` ranks that are threads of one process and whose devices are host-visible.
/// A `recorder` (not owned) gets a "wait" span for each time a rank waits for the others, named "group".
std::vector<std::unique_ptr<Group>> make_local_group(int size, base::Recorder* recorder = nullptr);

}  // namespace lathe::backend
