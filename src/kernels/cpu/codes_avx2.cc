// Products of INT8 codes at the level 'avx2'.
#define LATHE_ISA avx2
#define LATHE_SIMD_AVX2 1
#include "kernels/cpu/matmul_isa.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/codes.inl"

namespace lathe::kernels::cpu {

constexpr CodesIsa kCodesAvx2 = avx2::codes_level<avx2::WidenCodes, avx2::WideStep>();

}  // namespace lathe::kernels::cpu
