// Matrix products: every weight row once, a double sum per leaf, the canonical tree between leaves.

#include <algorithm>

#include "kernels/counting.h"
#include "kernels/ref/common.h"
#include "kernels/ref/kernels.h"
#include "kernels/ref/product.h"
#include "ops/basic.h"
#include "tensor/shard.h"

namespace lathe::kernels::ref {
namespace {

constexpr int64_t kRowsPerTask = 16;  // weight rows; any value gives the same bits

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
void product(const ops::MatmulParams& p, const ops::MatmulPart& part, const ProductRows& x, int64_t n0, int64_t n1, const LaunchContext& context) {
  const int64_t width = p.x.dim(1);
  const int64_t rows = p.x.dim(0);
  Leaves leaves{.channels = std::max<int64_t>(width, 1), .begin = 0, .count = 1, .total = 1};
  if (part.leaf_channels > 0 && !x.int8()) {
    leaves = {part.leaf_channels, part.leaf_begin, (width + part.leaf_channels - 1) / part.leaf_channels, part.leaf_total};
  }
  std::vector<tensor::TreeNode> nodes{{0, leaves.total}};
  if (part.y.rank == 3) nodes = tensor::tree_cover(leaves.total, leaves.begin, leaves.begin + leaves.count);
  std::vector<double> weight(static_cast<size_t>(width));
  std::vector<float> sums(static_cast<size_t>(leaves.count));
  for (int64_t n = n0; n < n1; ++n) {
    x.weights(n, weight.data());
    LATHE_COUNT(context, kWeightBytes, weight_row_bytes(part.weight) + (part.bias.present() ? size_of(part.bias) : 0));
    LATHE_COUNT(context, kBytesRead, weight_row_bytes(part.weight) + (part.bias.present() ? size_of(part.bias) : 0));
    LATHE_COUNT(context, kFlops, rows * (2 * width + (part.bias.present() ? 1 : 0)));
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t leaf = 0; leaf < leaves.count; ++leaf) {
        const int64_t c = leaf * leaves.channels;
        const double sum = dot(x.at(t) + c, weight.data() + c, std::min(leaves.channels, width - c));
        sums[static_cast<size_t>(leaf)] = x.value(sum, t, n);
        if (part.y.dtype == DType::kI32) part.y.i32()[t * part.y.step(0) + n] = static_cast<int32_t>(sum);
      }
      if (part.y.dtype == DType::kI32) {
        LATHE_COUNT(context, kBytesWritten, 4);
        continue;
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
  int64_t outputs = 0;
  for (int32_t i = 0; i < p.part_count; ++i) outputs += p.parts[static_cast<size_t>(i)].weight.rows();
  if (outputs == 0) return;
  LATHE_COUNT(context, kBytesRead, (p.x.elements() + p.x_amax.elements()) * 4);
  const std::vector<const float*> rows = row_pointers(p.x);
  for (int32_t i = 0; i < p.part_count; ++i) {
    const ops::MatmulPart& part = p.parts[static_cast<size_t>(i)];
    const int64_t n = part.weight.rows();
    const ProductRows x(part.weight, {.rows = rows, .compute = p.compute, .leaf_channels = part.leaf_channels, .amax = p.x_amax});
    LATHE_COUNT(context, kWeightBytes, scale_bytes(part.weight));
    LATHE_COUNT(context, kBytesRead, scale_bytes(part.weight));
    each(context, (n + kRowsPerTask - 1) / kRowsPerTask,
         [&](int64_t task) { product(p, part, x, task * kRowsPerTask, std::min(n, (task + 1) * kRowsPerTask), context); });
  }
}

void LATHE_KERNEL(row_amax)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::RowAmaxParams*>(params);
  each(context, p.x.dim(0), [&](int64_t t) {
    p.out.f32()[t] = tensor::largest_magnitude(row(p.x, t), p.x.dim(1));
    LATHE_COUNT(context, kBytesRead, p.x.dim(1) * 4);
    LATHE_COUNT(context, kBytesWritten, 4);
  });
}

void LATHE_KERNEL(scale_sums)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::ScaleSumsParams*>(params);
  if (p.y.elements() == 0) return;
  const int64_t width = p.y.dim(1);
  [[maybe_unused]] const int64_t weights = width * (4 + (p.bias.present() ? size_of(p.bias) : 0));
  LATHE_COUNT(context, kWeightBytes, weights);
  LATHE_COUNT(context, kBytesRead, weights);
  each(context, p.y.dim(0), [&](int64_t t) {
    const float scale = tensor::run_scale(p.x_amax.f32()[t], DType::kI8).scale;
    for (int64_t n = 0; n < width; ++n) {
      const float value = static_cast<float>(p.sums.i32()[t * p.sums.step(0) + n]) * scale * p.scales.f32()[n * p.scales.step(0)];
      row(p.y, t)[n] = p.bias.present() ? value + static_cast<float>(at(p.bias, n)) : value;
    }
    LATHE_COUNT(context, kBytesRead, width * 4 + 4);
    LATHE_COUNT(context, kBytesWritten, width * 4);
    LATHE_COUNT(context, kFlops, p.bias.present() ? width : 0);
  });
}

void LATHE_KERNEL(gate_up)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::GateUpParams*>(params);
  const int64_t rows = p.x.dim(0);
  const int64_t width = p.x.dim(1);
  if (rows == 0) return;
  LATHE_COUNT(context, kBytesRead, rows * width * 4);
  const std::vector<const float*> pointers = row_pointers(p.x);
  const ProductRows gate_x(p.gate, {.rows = pointers, .compute = p.compute});
  const ProductRows up_x(p.up, {.rows = pointers, .compute = p.compute});
  LATHE_COUNT(context, kWeightBytes, scale_bytes(p.gate) + scale_bytes(p.up));
  LATHE_COUNT(context, kBytesRead, scale_bytes(p.gate) + scale_bytes(p.up));
  each(context, p.gate.rows(), [&](int64_t n) {
    std::vector<double> gate_row(static_cast<size_t>(width));
    std::vector<double> up_row(static_cast<size_t>(width));
    gate_x.weights(n, gate_row.data());
    up_x.weights(n, up_row.data());
    const int64_t read = weight_row_bytes(p.gate) + weight_row_bytes(p.up) + (p.gate_bias.present() ? size_of(p.gate_bias) : 0) +
                         (p.up_bias.present() ? size_of(p.up_bias) : 0);
    const int64_t biases = (p.gate_bias.present() ? 1 : 0) + (p.up_bias.present() ? 1 : 0);
    LATHE_COUNT(context, kWeightBytes, read);
    LATHE_COUNT(context, kBytesRead, read);
    LATHE_COUNT(context, kFlops, rows * (4 * width + 3 + biases));
    for (int64_t t = 0; t < rows; ++t) {
      float gate = gate_x.value(dot(gate_x.at(t), gate_row.data(), width), t, n);
      float up = up_x.value(dot(up_x.at(t), up_row.data(), width), t, n);
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
