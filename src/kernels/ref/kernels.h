#pragma once
// The functions of this folder and their counting twins.

#include "ops/kernel.h"

// clang-format off: the tool lays this list out differently each time
#define LATHE_REF_KERNELS(X)                                                                                                                    \
  X(embed)                                                                                                                                      \
  X(gather_rows)                                                                                                                                \
  X(add)                                                                                                                                        \
  X(rms_norm)                                                                                                                                   \
  X(layer_norm)                                                                                                                                 \
  X(gelu) X(matmul) X(row_amax) X(scale_sums) X(swiglu) X(gate_up) X(mhc_in) X(mhc_out) X(stream_mean) X(short_conv) X(kda_gate) X(kda_recurrence) X(kda_verify) X(kda_flush) X(gated_norm)          \
      X(write_latents) X(index_keys) X(index_select) X(mla_absorb) X(mla_attend) X(mla_unabsorb) X(mla_expanded) X(route) X(moe) X(vision_rope) \
          X(vision_attend)
// clang-format on

namespace lathe::kernels::ref {

#define LATHE_REF_DECLARE(name)                                     \
  void name(const void* params, const ops::LaunchContext& context); \
  void name##_counted(const void* params, const ops::LaunchContext& context);
LATHE_REF_KERNELS(LATHE_REF_DECLARE)
#undef LATHE_REF_DECLARE

}  // namespace lathe::kernels::ref
