// Attention over lists of keys, index scores, pooling and rotation at the level 'avx512'.
#define LATHE_ISA avx512
#define LATHE_SIMD_AVX512 1
#include "kernels/cpu/attention_isa.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/attention.inl"

namespace lathe::kernels::cpu {

constexpr AttentionIsa kAttentionAvx512 = avx512::attention_level();

}  // namespace lathe::kernels::cpu
