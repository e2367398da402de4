#include "kernels/cpu/cpu_variants.h"

#include "kernels/cpu/kernels.h"

namespace lathe::kernels::cpu {

namespace {

using ops::OpId;

#define LATHE_VARIANT(op, name, kernel, supports) \
  ops::Variant { op, name, supports, kernel, kernel##_counted }
/// The ops that every base level has.
#define LATHE_LEVEL(name, level)                                                                                                                    \
  LATHE_VARIANT(OpId::kMatmul, name, matmul_##level, supports_matmul), LATHE_VARIANT(OpId::kGateUp, name, gate_up_##level, supports_gate_up),       \
      LATHE_VARIANT(OpId::kMoe, name, moe_##level, supports_moe), LATHE_VARIANT(OpId::kShortConv, name, short_conv_##level, supports_short_conv),   \
      LATHE_VARIANT(OpId::kKdaGate, name, kda_gate_##level, supports_all),                                                                          \
      LATHE_VARIANT(OpId::kKdaRecurrence, name, kda_recurrence_##level, supports_all),                                                              \
      LATHE_VARIANT(OpId::kKdaVerify, name, kda_verify_##level, supports_all),                                                                      \
      LATHE_VARIANT(OpId::kKdaFlush, name, kda_flush_##level, supports_all),                                                                        \
      LATHE_VARIANT(OpId::kGatedNorm, name, gated_norm_##level, supports_all), LATHE_VARIANT(OpId::kRmsNorm, name, rms_norm_##level, supports_all), \
      LATHE_VARIANT(OpId::kLayerNorm, name, layer_norm_##level, supports_all), LATHE_VARIANT(OpId::kGelu, name, gelu_##level, supports_all),        \
      LATHE_VARIANT(OpId::kSwiglu, name, swiglu_##level, supports_all), LATHE_VARIANT(OpId::kAdd, name, add_##level, supports_all),                 \
      LATHE_VARIANT(OpId::kEmbed, name, embed_##level, supports_all), LATHE_VARIANT(OpId::kGatherRows, name, gather_rows_##level, supports_all),    \
      LATHE_VARIANT(OpId::kWriteLatents, name, write_latents_##level, supports_all),                                                                \
      LATHE_VARIANT(OpId::kStreamMean, name, stream_mean_##level, supports_stream_mean),                                                            \
      LATHE_VARIANT(OpId::kMhcIn, name, mhc_in_##level, supports_mhc_in), LATHE_VARIANT(OpId::kMhcOut, name, mhc_out_##level, supports_mhc_out),    \
      LATHE_VARIANT(OpId::kMlaAbsorb, name, mla_absorb_##level, supports_absorb),                                                                   \
      LATHE_VARIANT(OpId::kMlaAttend, name, mla_attend_##level, supports_all),                                                                      \
      LATHE_VARIANT(OpId::kMlaUnabsorb, name, mla_unabsorb_##level, supports_unabsorb),                                                             \
      LATHE_VARIANT(OpId::kMlaExpanded, name, mla_expanded_##level, supports_expanded),                                                             \
      LATHE_VARIANT(OpId::kIndexSelect, name, index_select_##level, supports_all),                                                                  \
      LATHE_VARIANT(OpId::kVisionRope, name, vision_rope_##level, supports_all),                                                                    \
      LATHE_VARIANT(OpId::kVisionAttend, name, vision_attend_##level, supports_all),                                                                \
      LATHE_VARIANT(OpId::kIndexKeys, name, index_keys_##level, supports_index_keys)

// Every level's table ends with the scalar one: route needs no other.
constexpr ops::Variant kScalar[] = {LATHE_LEVEL("scalar", scalar), LATHE_VARIANT(OpId::kRoute, "scalar", route_scalar, supports_all)};
constexpr ops::Variant kAvx2[] = {LATHE_LEVEL("avx2", avx2)};
constexpr ops::Variant kAvx512[] = {LATHE_LEVEL("avx512", avx512)};
constexpr ops::Variant kAvx512Vnni[] = {
    LATHE_VARIANT(OpId::kMatmul, "avx512vnni", matmul_avx512vnni, supports_matmul_codes),
    LATHE_VARIANT(OpId::kGateUp, "avx512vnni", gate_up_avx512vnni, supports_gate_up_codes),
    LATHE_VARIANT(OpId::kMoe, "avx512vnni", moe_avx512vnni, supports_moe_codes),
};
constexpr ops::Variant kAvx512Bf16[] = {
    LATHE_VARIANT(OpId::kMatmul, "avx512bf16", matmul_avx512bf16, supports_matmul_pairs),
    LATHE_VARIANT(OpId::kGateUp, "avx512bf16", gate_up_avx512bf16, supports_gate_up_pairs),
    LATHE_VARIANT(OpId::kMoe, "avx512bf16", moe_avx512bf16, supports_moe_pairs),
    LATHE_VARIANT(OpId::kMlaUnabsorb, "avx512bf16", mla_unabsorb_avx512bf16, supports_unabsorb_pairs),
    LATHE_VARIANT(OpId::kMlaExpanded, "avx512bf16", mla_expanded_avx512bf16, supports_expanded_pairs),
};

#undef LATHE_LEVEL
#undef LATHE_VARIANT

}  // namespace

std::span<const ops::Variant> scalar_variants() { return kScalar; }
std::span<const ops::Variant> avx2_variants() { return kAvx2; }
std::span<const ops::Variant> avx512_variants() { return kAvx512; }
std::span<const ops::Variant> avx512vnni_variants() { return kAvx512Vnni; }
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
