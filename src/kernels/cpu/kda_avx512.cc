// Kimi delta attention at the level 'avx512'.
#define LATHE_ISA avx512
#define LATHE_SIMD_AVX512 1
#include "kernels/cpu/kda_isa.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/kda.inl"

namespace lathe::kernels::cpu {

constexpr KdaIsa kKdaAvx512 = avx512::kda_level();

}  // namespace lathe::kernels::cpu
