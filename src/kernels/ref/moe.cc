// Routing, and the expert MLPs: expert by expert over the rows that chose it, then the tree over experts, row by row.

#include "ops/moe.h"

#include <algorithm>
#include <numeric>

#include "kernels/counting.h"
#include "kernels/ref/common.h"
#include "kernels/ref/kernels.h"
#include "kernels/ref/product.h"
#include "tensor/shard.h"

namespace lathe::kernels::ref {
namespace {

/// Larger first; NaN below every number.
bool better(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(b) && !std::isnan(a);
  return a > b;
}

/// Best value first; ties: the lower index.
void sort_best_first(std::vector<int32_t>& order, const std::vector<float>& value) {
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const float va = value[static_cast<size_t>(a)];
    const float vb = value[static_cast<size_t>(b)];
    return better(va, vb) || (!better(vb, va) && a < b);
  });
}

/// Experts of the groups_kept best groups, ascending.
std::vector<int32_t> eligible(const ops::RouteParams& p, const std::vector<float>& biased) {
  const int64_t size = p.logits.dim(1) / p.groups;
  std::vector<int32_t> groups(static_cast<size_t>(p.groups));
  std::iota(groups.begin(), groups.end(), 0);
  if (p.groups > 1) {
    std::vector<float> value;
    for (int32_t g = 0; g < p.groups; ++g) {
      std::vector<float> members(biased.begin() + g * size, biased.begin() + (g + 1) * size);
      std::partial_sort(members.begin(), members.begin() + 2, members.end(), better);
      value.push_back(members[0] + members[1]);
    }
    sort_best_first(groups, value);
    groups.resize(static_cast<size_t>(p.groups_kept));
    std::sort(groups.begin(), groups.end());
  }
  std::vector<int32_t> experts;
  for (const int32_t g : groups) {
    for (int64_t e = g * size; e < (g + 1) * size; ++e) experts.push_back(static_cast<int32_t>(e));
  }
  return experts;
}

void route_row(const ops::RouteParams& p, int64_t t) {
  const int64_t experts = p.logits.dim(1);
  const int64_t chosen = p.ids.dim(1);
  std::vector<float> s(static_cast<size_t>(experts));
  std::vector<float> biased(static_cast<size_t>(experts));
  for (int64_t e = 0; e < experts; ++e) {
    s[static_cast<size_t>(e)] = static_cast<float>(sigmoid(static_cast<double>(row(p.logits, t)[e])));
    biased[static_cast<size_t>(e)] = s[static_cast<size_t>(e)] + static_cast<float>(at(p.bias, e));
  }
  std::vector<int32_t> order = eligible(p, biased);
  sort_best_first(order, biased);
  order.resize(static_cast<size_t>(chosen));
  std::sort(order.begin(), order.end());
  double sum = 1e-20;
  for (const int32_t e : order) sum += static_cast<double>(s[static_cast<size_t>(e)]);
  for (int64_t i = 0; i < chosen; ++i) {
    const int32_t e = order[static_cast<size_t>(i)];
    const auto weight = static_cast<double>(s[static_cast<size_t>(e)]);
    p.ids.i32()[t * p.ids.step(0) + i] = e;
    row(p.weights, t)[i] = static_cast<float>((p.normalise ? weight / sum : weight) * static_cast<double>(p.scale));
  }
}

/// Leaf values of all chosen (row, slot) pairs: w · E(x), [T, k, D].
class ExpertLeaves {
 public:
  ExpertLeaves(const ops::MoeParams& p, const LaunchContext& context)
      : p_(p), context_(context), chosen_(p.ids.dim(1)), width_(p.x.dim(1)), values_(static_cast<size_t>(p.x.dim(0) * chosen_ * width_)) {}

  const float* at(int64_t t, int64_t slot) const { return values_.data() + (t * chosen_ + slot) * width_; }

  /// Local expert e for all rows that chose it.
  void run(int64_t e) {
    std::vector<std::pair<int64_t, int64_t>> takers;  // row, slot
    for (int64_t t = 0; t < p_.x.dim(0); ++t) {
      for (int64_t slot = 0; slot < chosen_; ++slot) {
        if (p_.ids.i32()[t * p_.ids.step(0) + slot] == p_.expert_begin + e) takers.emplace_back(t, slot);
      }
    }
    if (takers.empty()) return;
    const MatrixView& gate = p_.gate.items[e];
    const MatrixView& up = p_.up.items[e];
    const MatrixView& down = p_.down.items[e];
    const int64_t inner = gate.rows();
    std::vector<const float*> x;
    for (const auto& [t, slot] : takers) x.push_back(row(p_.x, t));
    const std::vector<float> hidden = inner_rows(gate, up, x);
    std::vector<const float*> hidden_rows;
    for (size_t i = 0; i < takers.size(); ++i) hidden_rows.push_back(hidden.data() + i * static_cast<size_t>(inner));
    const ProductRows down_x(down, {.rows = hidden_rows, .compute = p_.compute});
    std::vector<double> down_row(static_cast<size_t>(inner));
    for (int64_t d = 0; d < width_; ++d) {
      down_x.weights(d, down_row.data());
      for (size_t i = 0; i < takers.size(); ++i) {
        const auto [t, slot] = takers[i];
        const auto taker = static_cast<int64_t>(i);
        const float y = down_x.value(dot(down_x.at(taker), down_row.data(), inner), taker, d);
        values_[static_cast<size_t>((t * chosen_ + slot) * width_ + d)] = row(p_.weights, t)[slot] * y;
      }
    }
    [[maybe_unused]] const auto rows = static_cast<int64_t>(takers.size());
    LATHE_COUNT(context_, kWeightBytes, gate.bytes() + up.bytes() + down.bytes());
    LATHE_COUNT(context_, kBytesRead, gate.bytes() + up.bytes() + down.bytes());
    LATHE_COUNT(context_, kFlops, rows * (6 * inner * width_ + width_ + 3 * inner));
    LATHE_COUNT(context_, kExponentials, rows * inner);
    LATHE_COUNT(context_, kDivisions, rows * inner);
  }

 private:
  /// swiglu(gate x, up x) of each row, [rows, inner].
  std::vector<float> inner_rows(const MatrixView& gate, const MatrixView& up, const std::vector<const float*>& x) const {
    const ProductRows gate_x(gate, {.rows = x, .compute = p_.compute});
    const ProductRows up_x(up, {.rows = x, .compute = p_.compute});
    const int64_t inner = gate.rows();
    std::vector<float> hidden(x.size() * static_cast<size_t>(inner));
    std::vector<double> gate_row(static_cast<size_t>(width_));
    std::vector<double> up_row(static_cast<size_t>(width_));
    for (int64_t n = 0; n < inner; ++n) {
      gate_x.weights(n, gate_row.data());
      up_x.weights(n, up_row.data());
      for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
        const auto g = static_cast<double>(gate_x.value(dot(gate_x.at(i), gate_row.data(), width_), i, n));
        const auto u = static_cast<double>(up_x.value(dot(up_x.at(i), up_row.data(), width_), i, n));
        hidden[static_cast<size_t>(i * inner + n)] = swiglu(g, u, static_cast<double>(p_.limit));
      }
    }
    return hidden;
  }

  const ops::MoeParams& p_;
  [[maybe_unused]] const LaunchContext& context_;
  int64_t chosen_, width_;
  std::vector<float> values_;
};

/// One tree node of one row; returns how many experts in it were chosen here.
int64_t combine(const ops::MoeParams& p, const ExpertLeaves& leaves, const tensor::TreeNode& node, int64_t t, float* out) {
  std::vector<tensor::TreeNode> nodes;
  std::vector<const float*> rows;
  for (int64_t slot = 0; slot < p.ids.dim(1); ++slot) {
    const int64_t e = p.ids.i32()[t * p.ids.step(0) + slot];
    if (e < std::max<int64_t>(node.begin, p.expert_begin) || e >= std::min<int64_t>(node.end, p.expert_begin + p.gate.count)) continue;
    nodes.push_back({e, e + 1});
    rows.push_back(leaves.at(t, slot));
  }
  tensor::tree_combine({p.experts_total, nodes, rows.data(), p.x.dim(1)}, out);
  return static_cast<int64_t>(nodes.size());
}

}  // namespace

void LATHE_KERNEL(route)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::RouteParams*>(params);
  const int64_t experts = p.logits.dim(1);
  LATHE_COUNT(context, kWeightBytes, experts * size_of(p.bias));
  LATHE_COUNT(context, kBytesRead, experts * size_of(p.bias));
  each(context, p.logits.dim(0), [&](int64_t t) {
    route_row(p, t);
    LATHE_COUNT(context, kBytesRead, experts * 4);
    LATHE_COUNT(context, kBytesWritten, p.ids.dim(1) * 8);
    LATHE_COUNT(context, kFlops, experts + 2 * p.ids.dim(1));
    LATHE_COUNT(context, kExponentials, experts);
    LATHE_COUNT(context, kDivisions, experts + (p.normalise ? p.ids.dim(1) : 0));
    LATHE_COUNT(context, kRowsNormalised, p.normalise ? 1 : 0);
  });
}

void LATHE_KERNEL(moe)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::MoeParams*>(params);
  ExpertLeaves leaves(p, context);
  LATHE_COUNT(context, kBytesRead, (p.x.dim(0) * p.x.dim(1) + 2 * p.ids.elements()) * 4);
  each(context, p.gate.count, [&](int64_t e) { leaves.run(e); });
  std::vector<tensor::TreeNode> nodes{{0, p.experts_total}};
  if (p.y.rank == 3) nodes = tensor::tree_cover(p.experts_total, p.expert_begin, p.expert_begin + p.gate.count);
  each(context, p.x.dim(0), [&](int64_t t) {
    for (size_t i = 0; i < nodes.size(); ++i) {
      const auto node = static_cast<int64_t>(i);
      const int64_t summed = combine(p, leaves, nodes[i], t, p.y.rank == 3 ? row(p.y, node, t) : row(p.y, t));
      if (p.present.present()) p.present.i32()[node * p.present.step(0) + t] = summed > 0 ? 1 : 0;
      LATHE_COUNT(context, kBytesWritten, p.x.dim(1) * 4 + (p.present.present() ? 4 : 0));
      LATHE_COUNT(context, kFlops, std::max<int64_t>(0, summed - 1) * p.x.dim(1));
    }
  });
}

}  // namespace lathe::kernels::ref
