// Loops for measuring a core's roofs at the level 'avx512'.
#define LATHE_ISA avx512
#define LATHE_SIMD_AVX512 1
#include "kernels/cpu/roof_isa.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/roof.inl"

namespace lathe::kernels::cpu {

constexpr RoofIsa kRoofAvx512 = avx512::roof_level("avx512");

}  // namespace lathe::kernels::cpu
