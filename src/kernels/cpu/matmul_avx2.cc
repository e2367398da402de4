// Matrix products at the level 'avx2'.
#define LATHE_ISA avx2
#define LATHE_SIMD_AVX2 1
#include "kernels/cpu/matmul_isa.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/matmul.inl"

namespace lathe::kernels::cpu {

constexpr MatmulIsa kMatmulAvx2 = avx2::base_level();

}  // namespace lathe::kernels::cpu
