#pragma once
// How a tensor, a cache family or a state is cut over ranks, and the canonical sum that makes cuts invisible (docs/adr/0005-canonical-sum.md).

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/function_ref.h"

namespace lathe::tensor {

enum class ShardKind : uint8_t { kReplicated, kHead, kColumn, kRow, kExpert, kVocabulary, kLayerOwner, kTokenRange, kSequence };

std::string_view shard_kind_name(ShardKind kind);

/// A range of units along one axis. Zero-size shards are legal: their rank still takes part in every collective.
struct Shard {
  ShardKind kind = ShardKind::kReplicated;
  int axis = 0;       ///< axis of the stored tensor that is cut
  int64_t unit = 1;   ///< elements of that axis per unit (head size, 128 channels, …)
  int64_t begin = 0;  ///< first unit held
  int64_t end = 0;    ///< one past the last unit held
  int64_t total = 0;  ///< units in the whole tensor; begin = 0 and end = total: uncut

  bool whole() const { return begin == 0 && end == total; }
  int64_t units() const { return end - begin; }
  /// Elements of the axis, given its full size (the last unit may be shorter).
  int64_t element_begin(int64_t full) const { return begin * unit < full ? begin * unit : full; }
  int64_t element_end(int64_t full) const { return end * unit < full ? end * unit : full; }
};

/// Default cut of `whole` (its kind, axis, unit and total count): rank r of N holds [ceil(L·r/N), ceil(L·(r+1)/N)).
Shard default_shard(const Shard& whole, int rank, int ranks);

/// A node [begin, end) of the canonical tree over leaves 0 … L−1: value = value([a, m)) + value([m, b)), m = a + ceil((b − a)/2).
struct TreeNode {
  int64_t begin = 0;
  int64_t end = 0;
  friend bool operator==(const TreeNode&, const TreeNode&) = default;
};

/// The maximal tree nodes inside [lo, hi), ascending: what a rank with those leaves sends, one FP32 partial each.
std::vector<TreeNode> tree_cover(int64_t leaves, int64_t lo, int64_t hi);

/// Middle of a node: first leaf of the right child.
constexpr int64_t tree_middle(int64_t begin, int64_t end) { return begin + (end - begin + 1) / 2; }

/// Partial sums of some nodes of the tree over `leaves`: one row of `width` floats for each of `nodes` (ascending, disjoint tree nodes). Views.
struct TreePartials {
  int64_t leaves = 0;
  const std::vector<TreeNode>& nodes;
  const float* const* rows = nullptr;
  int64_t width = 0;
};

/// Evaluates the canonical tree over partial rows into out [width].
/// A node without contribution is skipped, not added as zero; if there is none at all, out becomes 0.
void tree_combine(const TreePartials& partials, float* out);

}  // namespace lathe::tensor
