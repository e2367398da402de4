// Kimi delta attention at the level 'scalar'.
#define LATHE_ISA scalar
#define LATHE_SIMD_SCALAR 1
#include "kernels/cpu/kda_isa.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/kda.inl"

namespace lathe::kernels::cpu {

constexpr KdaIsa kKdaScalar = scalar::kda_level();

}  // namespace lathe::kernels::cpu
