// Which problems each kernel can run. Never a question of the number of tokens or sequences: it is asked once per call site.
#include "kernels/cpu/kernels.h"
#include "ops/basic.h"

namespace lathe::kernels::cpu {
namespace {

/// Weights that BF16 products multiply exactly.
bool pairs_possible(const MatrixView& weight) { return weight.values.dtype == DType::kBF16 || weight.values.dtype == DType::kF8E4M3; }

}  // namespace

bool supports_all(const void*) { return true; }

/// At least one matrix gains.
bool supports_matmul_pairs(const void* params) {
  const auto& p = *static_cast<const ops::MatmulParams*>(params);
  if (p.compute != ops::Compute::kBF16) return false;
  for (int32_t i = 0; i < p.part_count; ++i) {
    if (pairs_possible(p.parts[static_cast<size_t>(i)].weight)) return true;
  }
  return false;
}

}  // namespace lathe::kernels::cpu
