// Loops for measuring a core's roofs at the level 'avx2'.
#define LATHE_ISA avx2
#define LATHE_SIMD_AVX2 1
#include "kernels/cpu/roof_isa.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/roof.inl"

namespace lathe::kernels::cpu {

constexpr RoofIsa kRoofAvx2 = avx2::roof_level("avx2");

}  // namespace lathe::kernels::cpu
