// Kimi delta attention at the level 'avx2'.
#define LATHE_ISA avx2
#define LATHE_SIMD_AVX2 1
#include "kernels/cpu/kda_isa.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/kda.inl"

namespace lathe::kernels::cpu {

constexpr KdaIsa kKdaAvx2 = avx2::kda_level();

}  // namespace lathe::kernels::cpu
