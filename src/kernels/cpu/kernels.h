#pragma once
// Entry points of the kernels, for the lists in cpu_variants.cc. Each has a counting twin of the same name with "_counted".

#include "ops/kernel.h"

namespace lathe::kernels::cpu {

#define LATHE_DECLARE_KERNEL(name)                                  \
  void name(const void* params, const ops::LaunchContext& context); \
  void name##_counted(const void* params, const ops::LaunchContext& context)
/// One entry point per level.
#define LATHE_DECLARE_LEVELS(name)     \
  LATHE_DECLARE_KERNEL(name##_scalar); \
  LATHE_DECLARE_KERNEL(name##_avx2);   \
  LATHE_DECLARE_KERNEL(name##_avx512)

LATHE_DECLARE_LEVELS(matmul);
LATHE_DECLARE_KERNEL(matmul_avx512vnni);
LATHE_DECLARE_KERNEL(matmul_avx512bf16);
LATHE_DECLARE_LEVELS(gate_up);
LATHE_DECLARE_KERNEL(gate_up_avx512vnni);
LATHE_DECLARE_KERNEL(gate_up_avx512bf16);
LATHE_DECLARE_LEVELS(moe);
LATHE_DECLARE_KERNEL(moe_avx512vnni);
LATHE_DECLARE_KERNEL(moe_avx512bf16);
LATHE_DECLARE_KERNEL(route_scalar);
LATHE_DECLARE_LEVELS(short_conv);
LATHE_DECLARE_LEVELS(kda_gate);
LATHE_DECLARE_LEVELS(kda_recurrence);
LATHE_DECLARE_LEVELS(kda_verify);
LATHE_DECLARE_LEVELS(kda_flush);
LATHE_DECLARE_LEVELS(gated_norm);
LATHE_DECLARE_LEVELS(rms_norm);
LATHE_DECLARE_LEVELS(layer_norm);
LATHE_DECLARE_LEVELS(gelu);
LATHE_DECLARE_LEVELS(swiglu);
LATHE_DECLARE_LEVELS(add);
LATHE_DECLARE_LEVELS(stream_mean);
LATHE_DECLARE_LEVELS(embed);
LATHE_DECLARE_LEVELS(gather_rows);
LATHE_DECLARE_LEVELS(write_latents);
LATHE_DECLARE_LEVELS(mhc_in);
LATHE_DECLARE_LEVELS(mhc_out);
LATHE_DECLARE_LEVELS(mla_absorb);
LATHE_DECLARE_LEVELS(mla_attend);
LATHE_DECLARE_LEVELS(mla_unabsorb);
LATHE_DECLARE_LEVELS(mla_expanded);
LATHE_DECLARE_LEVELS(index_keys);
LATHE_DECLARE_LEVELS(index_select);
LATHE_DECLARE_LEVELS(vision_rope);
LATHE_DECLARE_LEVELS(vision_attend);
LATHE_DECLARE_KERNEL(mla_unabsorb_avx512bf16);
LATHE_DECLARE_KERNEL(mla_expanded_avx512bf16);

// What they can run (supports.cc).
bool supports_all(const void* params);
bool supports_matmul(const void* params);
bool supports_matmul_codes(const void* params);
bool supports_matmul_pairs(const void* params);
bool supports_gate_up(const void* params);
bool supports_gate_up_codes(const void* params);
bool supports_gate_up_pairs(const void* params);
bool supports_moe(const void* params);
bool supports_moe_codes(const void* params);
bool supports_moe_pairs(const void* params);
bool supports_short_conv(const void* params);
bool supports_mhc_in(const void* params);
bool supports_mhc_out(const void* params);
bool supports_stream_mean(const void* params);
bool supports_index_keys(const void* params);
bool supports_absorb(const void* params);
bool supports_unabsorb(const void* params);
bool supports_expanded(const void* params);
bool supports_unabsorb_pairs(const void* params);
bool supports_expanded_pairs(const void* params);

#undef LATHE_DECLARE_LEVELS
#undef LATHE_DECLARE_KERNEL

}  // namespace lathe::kernels::cpu
