// Attention over lists of keys, index scores, pooling and rotation at the level 'scalar'.
#define LATHE_ISA scalar
#define LATHE_SIMD_SCALAR 1
#include "kernels/cpu/attention_isa.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/attention.inl"

namespace lathe::kernels::cpu {

constexpr AttentionIsa kAttentionScalar = scalar::attention_level();

}  // namespace lathe::kernels::cpu
