#include "kernels/cpu/cpu_variants.h"

namespace lathe::kernels::cpu {

std::span<const ops::Variant> scalar_variants() { return {}; }
std::span<const ops::Variant> avx2_variants() { return {}; }
std::span<const ops::Variant> avx512_variants() { return {}; }
std::span<const ops::Variant> avx512vnni_variants() { return {}; }
std::span<const ops::Variant> avx512bf16_variants() { return {}; }

#if defined(__x86_64__)
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"); }
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
bool has_avx512vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }
bool has_avx512bf16() { return has_avx512vnni() && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi"); }
#else
bool has_avx2() { return false; }
bool has_avx512() { return false; }
bool has_avx512vnni() { return false; }
bool has_avx512bf16() { return false; }
#endif

}  // namespace lathe::kernels::cpu
