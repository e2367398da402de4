// Norms, elementwise functions and hyper-connections at the level 'avx512'.
#define LATHE_ISA avx512
#define LATHE_SIMD_AVX512 1
#include "kernels/cpu/row_isa.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/row.inl"

namespace lathe::kernels::cpu {

constexpr RowIsa kRowAvx512 = avx512::row_level();

}  // namespace lathe::kernels::cpu
