// Which problems each kernel can run. Never a question of the number of tokens or sequences: it is asked once per call site.
#include "kernels/cpu/kernels.h"
#include "ops/basic.h"

namespace lathe::kernels::cpu {
namespace {

/// Weights that BF16 products multiply exactly.
bool pairs_possible(const MatrixView& weight) { return weight.values.dtype == DType::kBF16 || weight.values.dtype == DType::kF8E4M3; }

/// BF16 products take channels two by two: a segment inside a row must not end between the two.
bool even_segments(const MatrixView& weight, int64_t leaf_channels) {
  if (leaf_channels > 0 && leaf_channels < weight.cols() && leaf_channels % 2 != 0) return false;
  return !weight.scaled() || (weight.block_cols % 2 == 0 && weight.col_offset % 2 == 0);
}

}  // namespace

bool supports_all(const void*) { return true; }

/// At least one matrix gains.
bool supports_matmul_pairs(const void* params) {
  const auto& p = *static_cast<const ops::MatmulParams*>(params);
  if (p.compute != ops::Compute::kBF16) return false;
  bool any = false;
  for (int32_t i = 0; i < p.part_count; ++i) {
    const ops::MatmulPart& part = p.parts[static_cast<size_t>(i)];
    if (!pairs_possible(part.weight)) continue;
    if (!even_segments(part.weight, part.leaf_channels)) return false;
    any = true;
  }
  return any;
}

}  // namespace lathe::kernels::cpu
