#include "tensor/shard.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace lathe::tensor {

std::string_view shard_kind_name(ShardKind kind) {
  switch (kind) {
    case ShardKind::kReplicated: return "replicated";
    case ShardKind::kHead: return "head";
    case ShardKind::kColumn: return "column";
    case ShardKind::kRow: return "row";
    case ShardKind::kExpert: return "expert";
    case ShardKind::kVocabulary: return "vocabulary";
    case ShardKind::kLayerOwner: return "layer_owner";
    case ShardKind::kTokenRange: return "token_range";
    case ShardKind::kSequence: return "sequence";
  }
  return "?";
}

Shard default_shard(const Shard& whole, int rank, int ranks) {
  const auto border = [&](int64_t r) { return (whole.total * r + ranks - 1) / ranks; };
  Shard part = whole;
  part.begin = border(rank), part.end = border(rank + 1);
  return part;
}

namespace {

/// Appends the largest nodes below `node` that lie in `wanted`.
void cover(const TreeNode& node, const TreeNode& wanted, std::vector<TreeNode>& out) {
  if (node.end <= wanted.begin || wanted.end <= node.begin) return;
  if (wanted.begin <= node.begin && node.end <= wanted.end) {
    out.push_back(node);
    return;
  }
  const int64_t m = tree_middle(node.begin, node.end);
  cover({node.begin, m}, wanted, out);
  cover({m, node.end}, wanted, out);
}

class Evaluation {
 public:
  explicit Evaluation(const TreePartials& partials) : p_(partials) {}
  /// Sum over the node into out; false if nothing contributes.
  bool run(const TreeNode& node, float* out, size_t level) {
    const auto first = std::lower_bound(p_.nodes.begin(), p_.nodes.end(), node.begin, [](const TreeNode& one, int64_t at) { return one.begin < at; });
    if (first == p_.nodes.end() || first->begin >= node.end) return false;
    if (*first == node) {
      std::copy_n(p_.rows[first - p_.nodes.begin()], p_.width, out);
      return true;
    }
    LATHE_CHECK(first->end <= node.end && node.end - node.begin > 1, "[{}, {}) is no node of the tree", first->begin, first->end);
    const int64_t m = tree_middle(node.begin, node.end);
    if (!run({node.begin, m}, out, level + 1)) return run({m, node.end}, out, level + 1);
    std::vector<float>& right = right_[level];
    right.resize(static_cast<size_t>(p_.width));
    if (run({m, node.end}, right.data(), level + 1)) {
      for (int64_t i = 0; i < p_.width; ++i) out[i] += right[static_cast<size_t>(i)];
    }
    return true;
  }

 private:
  const TreePartials& p_;
  std::array<std::vector<float>, 64> right_;  ///< one row a level; deeper than any tree
};

}  // namespace

std::vector<TreeNode> tree_cover(int64_t leaves, int64_t lo, int64_t hi) {
  std::vector<TreeNode> out;
  if (lo < hi) cover({0, leaves}, {lo, hi}, out);
  return out;
}

void tree_combine(const TreePartials& partials, float* out) {
  if (!Evaluation(partials).run({0, partials.leaves}, out, 0)) std::fill_n(out, partials.width, 0.0f);
}

}  // namespace lathe::tensor
