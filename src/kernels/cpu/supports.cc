// Which problems each kernel can run. Never a question of the number of tokens or sequences: it is asked once per call site.
#include <algorithm>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/row_isa.h"
#include "ops/basic.h"
#include "ops/kda.h"
#include "ops/mhc.h"
#include "ops/mla.h"
#include "ops/moe.h"

namespace lathe::kernels::cpu {
namespace {

/// Weights that BF16 products multiply exactly.
bool pairs_possible(const MatrixView& weight) { return weight.values.dtype == DType::kBF16 || weight.values.dtype == DType::kF8E4M3; }

/// No activations as E4M3 codes. For weights of other kinds kFp8 is the fast mode.
bool readable(const MatrixView& weight, ops::Compute compute) { return !ops::fp8_product(weight, compute); }
/// The products over latents take neither codes nor rows with scales of their own.
bool readable_latent(const MatrixView& weight, ops::Compute compute) { return weight.values.dtype != DType::kI8 && readable(weight, compute); }
/// What the level's own instructions multiply: BF16 pairs, or INT8 codes on both sides.
bool pairs_or_codes(const MatrixView& weight, ops::Compute compute) { return pairs_possible(weight) || ops::int8_product(weight, compute); }

}  // namespace

bool supports_all(const void*) { return true; }

bool supports_matmul(const void* params) {
  const auto& p = *static_cast<const ops::MatmulParams*>(params);
  return std::all_of(p.parts.begin(), p.parts.begin() + p.part_count, [&](const ops::MatmulPart& part) { return readable(part.weight, p.compute); });
}

/// At least one matrix gains.
bool supports_matmul_pairs(const void* params) {
  const auto& p = *static_cast<const ops::MatmulParams*>(params);
  if (p.compute == ops::Compute::kF32 || !supports_matmul(params)) return false;
  return std::any_of(p.parts.begin(), p.parts.begin() + p.part_count,
                     [&](const ops::MatmulPart& part) { return pairs_or_codes(part.weight, p.compute); });
}
bool supports_matmul_codes(const void* params) {
  const auto& p = *static_cast<const ops::MatmulParams*>(params);
  return supports_matmul(params) && std::any_of(p.parts.begin(), p.parts.begin() + p.part_count,
                                                [&](const ops::MatmulPart& part) { return ops::int8_product(part.weight, p.compute); });
}

bool supports_gate_up(const void* params) {
  const auto& p = *static_cast<const ops::GateUpParams*>(params);
  return readable(p.gate, p.compute) && readable(p.up, p.compute);
}

bool supports_gate_up_pairs(const void* params) {
  const auto& p = *static_cast<const ops::GateUpParams*>(params);
  return p.compute != ops::Compute::kF32 && supports_gate_up(params) && (pairs_or_codes(p.gate, p.compute) || pairs_or_codes(p.up, p.compute));
}
bool supports_gate_up_codes(const void* params) {
  const auto& p = *static_cast<const ops::GateUpParams*>(params);
  return supports_gate_up(params) && (ops::int8_product(p.gate, p.compute) || ops::int8_product(p.up, p.compute));
}

/// Gate and up share one copy of the rows.
bool supports_moe(const void* params) {
  const auto& p = *static_cast<const ops::MoeParams*>(params);
  for (const ops::MatrixStack* stack : {&p.gate, &p.up, &p.down}) {
    if (!std::all_of(stack->items, stack->items + stack->count, [&](const MatrixView& m) { return readable(m, p.compute); })) return false;
  }
  if (p.gate.count == 0) return true;
  const DType type = p.gate.items[0].values.dtype;
  for (int32_t e = 0; e < p.gate.count; ++e) {
    if (p.gate.items[e].values.dtype != type || p.up.items[e].values.dtype != type) return false;
    if (p.down.items[e].values.dtype != p.down.items[0].values.dtype) return false;
  }
  return true;
}

bool supports_moe_pairs(const void* params) {
  const auto& p = *static_cast<const ops::MoeParams*>(params);
  return p.compute != ops::Compute::kF32 && p.gate.count > 0 && supports_moe(params) &&
         (pairs_or_codes(p.gate.items[0], p.compute) || pairs_or_codes(p.down.items[0], p.compute));
}
bool supports_moe_codes(const void* params) {
  const auto& p = *static_cast<const ops::MoeParams*>(params);
  return p.gate.count > 0 && supports_moe(params) && (ops::int8_product(p.gate.items[0], p.compute) || ops::int8_product(p.down.items[0], p.compute));
}

/// Pointers to the tap rows stand on the stack.
bool supports_short_conv(const void* params) { return static_cast<const ops::ShortConvParams*>(params)->weight.dim(0) <= 64; }

bool supports_mhc_in(const void* params) { return static_cast<const ops::MhcInParams*>(params)->streams.dim(1) <= kStreamsMax; }
bool supports_mhc_out(const void* params) { return static_cast<const ops::MhcOutParams*>(params)->streams.dim(1) <= kStreamsMax; }
bool supports_stream_mean(const void* params) { return static_cast<const ops::StreamMeanParams*>(params)->streams.dim(1) <= kStreamsMax; }

/// Pointers to the rows of a pool stand on the stack.
bool supports_index_keys(const void* params) {
  const auto& p = *static_cast<const ops::IndexKeysParams*>(params);
  return p.ape.dim(0) <= 64;
}

bool supports_absorb(const void* params) {
  const auto& p = *static_cast<const ops::MlaAbsorbParams*>(params);
  return readable_latent(p.kv_b.matrix, p.compute);
}
bool supports_unabsorb(const void* params) {
  const auto& p = *static_cast<const ops::MlaUnabsorbParams*>(params);
  return readable_latent(p.kv_b.matrix, p.compute);
}
bool supports_expanded(const void* params) {
  const auto& p = *static_cast<const ops::MlaExpandedParams*>(params);
  return readable_latent(p.kv_b.matrix, p.compute);
}
bool supports_unabsorb_pairs(const void* params) {
  const auto& p = *static_cast<const ops::MlaUnabsorbParams*>(params);
  return p.compute == ops::Compute::kBF16 && pairs_possible(p.kv_b.matrix);
}
bool supports_expanded_pairs(const void* params) {
  const auto& p = *static_cast<const ops::MlaExpandedParams*>(params);
  return p.compute == ops::Compute::kBF16 && pairs_possible(p.kv_b.matrix) && !p.latents.scales.present() && supports_expanded(params);
}

}  // namespace lathe::kernels::cpu
