// Matrix products at the level 'avx512'.
#define LATHE_ISA avx512
#define LATHE_SIMD_AVX512 1
#include "kernels/cpu/matmul_isa.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/matmul.inl"

namespace lathe::kernels::cpu {

constexpr MatmulIsa kMatmulAvx512 = avx512::base_level();

}  // namespace lathe::kernels::cpu
