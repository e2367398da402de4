#include "kernels/cpu/cpu_variants.h"

#include "kernels/cpu/kernels.h"

namespace lathe::kernels::cpu {

namespace {

using ops::OpId;

#define LATHE_VARIANT(op, name, kernel, supports) \
  ops::Variant { op, name, supports, kernel, kernel##_counted }

constexpr ops::Variant kScalar[] = {
    LATHE_VARIANT(OpId::kMatmul, "scalar", matmul_scalar, supports_all),
    LATHE_VARIANT(OpId::kGateUp, "scalar", gate_up_scalar, supports_all),
    LATHE_VARIANT(OpId::kMoe, "scalar", moe_scalar, supports_moe),
};
constexpr ops::Variant kAvx2[] = {
    LATHE_VARIANT(OpId::kMatmul, "avx2", matmul_avx2, supports_all),
    LATHE_VARIANT(OpId::kGateUp, "avx2", gate_up_avx2, supports_all),
    LATHE_VARIANT(OpId::kMoe, "avx2", moe_avx2, supports_moe),
};
constexpr ops::Variant kAvx512[] = {
    LATHE_VARIANT(OpId::kMatmul, "avx512", matmul_avx512, supports_all),
    LATHE_VARIANT(OpId::kGateUp, "avx512", gate_up_avx512, supports_all),
    LATHE_VARIANT(OpId::kMoe, "avx512", moe_avx512, supports_moe),
};
constexpr ops::Variant kAvx512Bf16[] = {
    LATHE_VARIANT(OpId::kMatmul, "avx512bf16", matmul_avx512bf16, supports_matmul_pairs),
    LATHE_VARIANT(OpId::kGateUp, "avx512bf16", gate_up_avx512bf16, supports_gate_up_pairs),
    LATHE_VARIANT(OpId::kMoe, "avx512bf16", moe_avx512bf16, supports_moe_pairs),
};

#undef LATHE_VARIANT

}  // namespace

std::span<const ops::Variant> scalar_variants() { return kScalar; }
std::span<const ops::Variant> avx2_variants() { return kAvx2; }
std::span<const ops::Variant> avx512_variants() { return kAvx512; }
std::span<const ops::Variant> avx512vnni_variants() { return {}; }
std::span<const ops::Variant> avx512bf16_variants() { return kAvx512Bf16; }

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
