// Loops for measuring a core's roofs at the level 'scalar'.
#define LATHE_ISA scalar
#define LATHE_SIMD_SCALAR 1
#include "kernels/cpu/roof_isa.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/roof.inl"

namespace lathe::kernels::cpu {

constexpr RoofIsa kRoofScalar = scalar::roof_level("scalar");

}  // namespace lathe::kernels::cpu
