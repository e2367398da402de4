// Norms, elementwise functions and hyper-connections at the level 'scalar'.
#define LATHE_ISA scalar
#define LATHE_SIMD_SCALAR 1
#include "kernels/cpu/row_isa.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/row.inl"

namespace lathe::kernels::cpu {

constexpr RowIsa kRowScalar = scalar::row_level();

}  // namespace lathe::kernels::cpu
