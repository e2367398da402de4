// Matrix products at the level 'scalar'.
#define LATHE_ISA scalar
#define LATHE_SIMD_SCALAR 1
#include "kernels/cpu/matmul_isa.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/matmul.inl"

namespace lathe::kernels::cpu {

constexpr MatmulIsa kMatmulScalar = scalar::base_level();

}  // namespace lathe::kernels::cpu
