// Matrix products: every weight row once, a double sum per leaf, the canonical tree between leaves.

#include <algorithm>

#include "kernels/counting.h"
#include "kernels/ref/common.h"
#include "kernels/ref/kernels.h"
#include "ops/basic.h"
#include "tensor/shard.h"

namespace lathe::kernels::ref {
namespace {

constexpr int64_t kRowsPerTask = 16;  // weight rows; any value gives the same bits

/// Rows of x as they enter the product, [T, K].
std::vector<double> activations(const View& x, ops::Compute compute) {
  const int64_t width = x.dim(1);
  std::vector<double> out(static_cast<size_t>(x.dim(0) * width));
  for (int64_t t = 0; t < x.dim(0); ++t) {
    for (int64_t c = 0; c < width; ++c) out[static_cast<size_t>(t * width + c)] = activation(row(x, t)[c], compute);
  }
  return out;
}

/// Tree nodes that one output row holds: itself for a root, else one node per partial.
struct Leaves {
  int64_t channels, begin, count, total;
};

/// y[node, n] of row t from its leaf sums.
float combine(const Leaves& leaves, const tensor::TreeNode& node, const std::vector<float>& sums) {
  std::vector<tensor::TreeNode> nodes;
  std::vector<const float*> rows;
  for (int64_t leaf = node.begin; leaf < node.end; ++leaf) {
    nodes.push_back({leaf, leaf + 1});
    rows.push_back(&sums[static_cast<size_t>(leaf - leaves.begin)]);
  }
  float out = 0;
  tensor::tree_combine({leaves.total, nodes, rows.data(), 1}, &out);
  return out;
}

/// Weight rows [n0, n1) of one part, for all rows of x.
void product(const ops::MatmulParams& p, const ops::MatmulPart& part, const std::vector<double>& x, int64_t n0, int64_t n1,
             const LaunchContext& context) {
  const int64_t width = p.x.dim(1);
  const int64_t rows = p.x.dim(0);
  Leaves leaves{.channels = std::max<int64_t>(width, 1), .begin = 0, .count = 1, .total = 1};
  if (part.leaf_channels > 0) {
    leaves = {part.leaf_channels, part.leaf_begin, (width + part.leaf_channels - 1) / part.leaf_channels, part.leaf_total};
  }
  std::vector<tensor::TreeNode> nodes{{0, leaves.total}};
  if (part.y.rank == 3) nodes = tensor::tree_cover(leaves.total, leaves.begin, leaves.begin + leaves.count);
  std::vector<double> weight(static_cast<size_t>(width));
  std::vector<float> sums(static_cast<size_t>(leaves.count));
  for (int64_t n = n0; n < n1; ++n) {
    weight_row(part.weight, n, p.compute, weight.data());
    LATHE_COUNT(context, kWeightBytes, weight_row_bytes(part.weight) + (part.bias.present() ? size_of(part.bias) : 0));
    LATHE_COUNT(context, kBytesRead, weight_row_bytes(part.weight) + (part.bias.present() ? size_of(part.bias) : 0));
    LATHE_COUNT(context, kFlops, rows * (2 * width + (part.bias.present() ? 1 : 0)));
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t leaf = 0; leaf < leaves.count; ++leaf) {
        const int64_t c = leaf * leaves.channels;
        sums[static_cast<size_t>(leaf)] = static_cast<float>(dot(x.data() + t * width + c, weight.data() + c, std::min(leaves.channels, width - c)));
      }
      for (size_t i = 0; i < nodes.size(); ++i) {
        const float value = combine(leaves, nodes[i], sums);
        if (part.y.rank == 3) {
          row(part.y, static_cast<int64_t>(i), t)[n] = value;
        } else {
          row(part.y, t)[n] = part.bias.present() ? value + static_cast<float>(at(part.bias, n)) : value;
        }
        LATHE_COUNT(context, kBytesWritten, 4);
      }
    }
  }
}

}  // namespace

void LATHE_KERNEL(matmul)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::MatmulParams*>(params);
  if (p.x.dim(0) == 0) return;
  LATHE_COUNT(context, kBytesRead, p.x.dim(0) * p.x.dim(1) * 4);
  const std::vector<double> x = activations(p.x, p.compute);
  for (int32_t i = 0; i < p.part_count; ++i) {
    const ops::MatmulPart& part = p.parts[static_cast<size_t>(i)];
    const int64_t n = part.weight.rows();
    LATHE_COUNT(context, kWeightBytes, scale_bytes(part.weight));
    LATHE_COUNT(context, kBytesRead, scale_bytes(part.weight));
    each(context, (n + kRowsPerTask - 1) / kRowsPerTask,
         [&](int64_t task) { product(p, part, x, task * kRowsPerTask, std::min(n, (task + 1) * kRowsPerTask), context); });
  }
}

void LATHE_KERNEL(gate_up)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::GateUpParams*>(params);
  const int64_t rows = p.x.dim(0);
  const int64_t width = p.x.dim(1);
  if (rows == 0) return;
  LATHE_COUNT(context, kBytesRead, rows * width * 4);
  const std::vector<double> x = activations(p.x, p.compute);
  LATHE_COUNT(context, kWeightBytes, scale_bytes(p.gate) + scale_bytes(p.up));
  LATHE_COUNT(context, kBytesRead, scale_bytes(p.gate) + scale_bytes(p.up));
  each(context, p.gate.rows(), [&](int64_t n) {
    std::vector<double> gate_row(static_cast<size_t>(width));
    std::vector<double> up_row(static_cast<size_t>(width));
    weight_row(p.gate, n, p.compute, gate_row.data());
    weight_row(p.up, n, p.compute, up_row.data());
    const int64_t read = weight_row_bytes(p.gate) + weight_row_bytes(p.up) + (p.gate_bias.present() ? size_of(p.gate_bias) : 0) +
                         (p.up_bias.present() ? size_of(p.up_bias) : 0);
    const int64_t biases = (p.gate_bias.present() ? 1 : 0) + (p.up_bias.present() ? 1 : 0);
    LATHE_COUNT(context, kWeightBytes, read);
    LATHE_COUNT(context, kBytesRead, read);
    LATHE_COUNT(context, kFlops, rows * (4 * width + 3 + biases));
    for (int64_t t = 0; t < rows; ++t) {
      auto gate = static_cast<float>(dot(x.data() + t * width, gate_row.data(), width));
      auto up = static_cast<float>(dot(x.data() + t * width, up_row.data(), width));
      if (p.gate_bias.present()) gate += static_cast<float>(at(p.gate_bias, n));
      if (p.up_bias.present()) up += static_cast<float>(at(p.up_bias, n));
      row(p.out, t)[n] = swiglu(static_cast<double>(gate), static_cast<double>(up), static_cast<double>(p.limit));
      LATHE_COUNT(context, kExponentials, 1);
      LATHE_COUNT(context, kDivisions, 1);
      LATHE_COUNT(context, kBytesWritten, 4);
    }
  });
}

}  // namespace lathe::kernels::ref
