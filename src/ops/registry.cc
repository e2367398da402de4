// The explicit table of ops. A new op is one line here, its struct, its validate and cost, and a kernel in kernels/ref.

#include "base/check.h"
#include "ops/contracts.h"
#include "ops/visit.h"

namespace lathe::ops {
namespace {

template <class Params>
constexpr OpInfo entry(const char* name) {
  return {.id = Params::kId,
          .name = name,
          .params_bytes = sizeof(Params),
          .validate = [](const void* params) { return validate(*static_cast<const Params*>(params)); },
          .cost = [](const void* params) { return cost(*static_cast<const Params*>(params)); },
          .visit =
              [](void* params, ViewVisitor& visitor) {
                VisitAdapter adapter{visitor};
                Params::visit(*static_cast<Params*>(params), adapter);
              }};
}

constexpr std::array<OpInfo, kOpCount> kTable = {
    entry<EmbedParams>("embed"),
    entry<GatherRowsParams>("gather_rows"),
    entry<AddParams>("add"),
    entry<RmsNormParams>("rms_norm"),
    entry<LayerNormParams>("layer_norm"),
    entry<GeluParams>("gelu"),
    entry<MatmulParams>("matmul"),
    entry<RowAmaxParams>("row_amax"),
    entry<ScaleSumsParams>("scale_sums"),
    entry<SwigluParams>("swiglu"),
    entry<GateUpParams>("gate_up"),
    entry<MhcInParams>("mhc_in"),
    entry<MhcOutParams>("mhc_out"),
    entry<StreamMeanParams>("stream_mean"),
    entry<ShortConvParams>("short_conv"),
    entry<KdaGateParams>("kda_gate"),
    entry<KdaRecurrenceParams>("kda_recurrence"),
    entry<KdaVerifyParams>("kda_verify"),
    entry<KdaFlushParams>("kda_flush"),
    entry<GatedNormParams>("gated_norm"),
    entry<WriteLatentsParams>("write_latents"),
    entry<IndexKeysParams>("index_keys"),
    entry<IndexSelectParams>("index_select"),
    entry<MlaAbsorbParams>("mla_absorb"),
    entry<MlaAttendParams>("mla_attend"),
    entry<MlaUnabsorbParams>("mla_unabsorb"),
    entry<MlaExpandedParams>("mla_expanded"),
    entry<RouteParams>("route"),
    entry<MoeParams>("moe"),
    entry<VisionRopeParams>("vision_rope"),
    entry<VisionAttendParams>("vision_attend"),
};

constexpr bool in_order() {
  for (size_t i = 0; i < kTable.size(); ++i) {
    if (static_cast<size_t>(kTable[i].id) != i) return false;
  }
  return true;
}
static_assert(in_order(), "kTable must list the ops in the order of OpId");

}  // namespace

const OpInfo& op_info(OpId id) {
  LATHE_CHECK(id < OpId::kCount, "op {}", static_cast<int>(id));
  return kTable[static_cast<size_t>(id)];
}

std::optional<OpId> op_by_name(std::string_view name) {
  for (const OpInfo& info : kTable) {
    if (name == info.name) return info.id;
  }
  return std::nullopt;
}

}  // namespace lathe::ops
