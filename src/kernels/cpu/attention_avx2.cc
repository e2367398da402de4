// Attention over lists of keys, index scores, pooling and rotation at the level 'avx2'.
#define LATHE_ISA avx2
#define LATHE_SIMD_AVX2 1
#include "kernels/cpu/attention_isa.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/attention.inl"

namespace lathe::kernels::cpu {

constexpr AttentionIsa kAttentionAvx2 = avx2::attention_level();

}  // namespace lathe::kernels::cpu
