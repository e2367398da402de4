// Products of INT8 codes at the level 'scalar'.
#define LATHE_ISA scalar
#define LATHE_SIMD_SCALAR 1
#include "kernels/cpu/matmul_isa.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/codes.inl"

namespace lathe::kernels::cpu {

constexpr CodesIsa kCodesScalar = scalar::codes_level<scalar::WidenCodes, scalar::WideStep>();

}  // namespace lathe::kernels::cpu
