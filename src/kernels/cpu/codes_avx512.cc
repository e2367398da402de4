// Products of INT8 codes at the level 'avx512'.
#define LATHE_ISA avx512
#define LATHE_SIMD_AVX512 1
#include "kernels/cpu/matmul_isa.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/codes.inl"

namespace lathe::kernels::cpu {

constexpr CodesIsa kCodesAvx512 = avx512::codes_level<avx512::WidenCodes, avx512::WideStep>();

}  // namespace lathe::kernels::cpu
