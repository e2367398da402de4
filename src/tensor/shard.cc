#include "tensor/shard.h"

#include <algorithm>

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

Shard default_shard(ShardKind kind, int axis, int64_t unit, int64_t total, int rank, int ranks) {
  const auto border = [&](int64_t r) { return (total * r + ranks - 1) / ranks; };
  return {.kind = kind, .axis = axis, .unit = unit, .begin = border(rank), .end = border(rank + 1), .total = total};
}

namespace {

void cover(int64_t a, int64_t b, int64_t lo, int64_t hi, std::vector<TreeNode>& out) {
  if (b <= lo || hi <= a) return;
  if (lo <= a && b <= hi) {
    out.push_back({a, b});
    return;
  }
  const int64_t m = tree_middle(a, b);
  cover(a, m, lo, hi, out);
  cover(m, b, lo, hi, out);
}

/// Sum over [a, b) into out; false if nothing contributes. `scratch` holds one row per tree level.
bool evaluate(int64_t a, int64_t b, const std::vector<TreeNode>& nodes, const float* const* partials, int64_t width, float* out,
              std::vector<std::vector<float>>& scratch, size_t level) {
  const auto first = std::lower_bound(nodes.begin(), nodes.end(), a, [](const TreeNode& node, int64_t at) { return node.begin < at; });
  if (first == nodes.end() || first->begin >= b) return false;
  if (first->begin == a && first->end == b) {
    std::copy_n(partials[first - nodes.begin()], width, out);
    return true;
  }
  LATHE_CHECK(first->end <= b && b - a > 1, "[{}, {}) is no node of the tree", first->begin, first->end);
  const int64_t m = tree_middle(a, b);
  const bool left = evaluate(a, m, nodes, partials, width, out, scratch, level + 1);
  if (!left) return evaluate(m, b, nodes, partials, width, out, scratch, level + 1);
  if (scratch.size() <= level) scratch.resize(level + 1);
  scratch[level].resize(static_cast<size_t>(width));
  float* const right_row = scratch[level].data();
  if (evaluate(m, b, nodes, partials, width, right_row, scratch, level + 1)) {
    for (int64_t i = 0; i < width; ++i) out[i] += right_row[i];
  }
  return true;
}

}  // namespace

std::vector<TreeNode> tree_cover(int64_t leaves, int64_t lo, int64_t hi) {
  std::vector<TreeNode> out;
  if (lo < hi) cover(0, leaves, lo, hi, out);
  return out;
}

void tree_combine(int64_t leaves, const std::vector<TreeNode>& nodes, const float* const* partials, int64_t width, float* out) {
  std::vector<std::vector<float>> scratch(64);  // deeper than any tree: rows are never moved while in use
  if (!evaluate(0, leaves, nodes, partials, width, out, scratch, 0)) std::fill_n(out, width, 0.0f);
}

}  // namespace lathe::tensor
