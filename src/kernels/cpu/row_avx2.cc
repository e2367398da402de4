// Norms, elementwise functions and hyper-connections at the level 'avx2'.
#define LATHE_ISA avx2
#define LATHE_SIMD_AVX2 1
#include "kernels/cpu/row_isa.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/row.inl"

namespace lathe::kernels::cpu {

constexpr RowIsa kRowAvx2 = avx2::row_level();

}  // namespace lathe::kernels::cpu
