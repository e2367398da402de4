#pragma once
// What registry.cc needs of every params struct: validate and cost, one overload each (validate_*.cc, cost_*.cc).

#include "ops/basic.h"
#include "ops/kda.h"
#include "ops/kda_replay.h"
#include "ops/mhc.h"
#include "ops/mla.h"
#include "ops/moe.h"
#include "ops/vision.h"

namespace lathe::ops {

#define LATHE_CONTRACT(Params)            \
  Result<void> validate(const Params& p); \
  Cost cost(const Params& p);

LATHE_CONTRACT(EmbedParams)
LATHE_CONTRACT(GatherRowsParams)
LATHE_CONTRACT(AddParams)
LATHE_CONTRACT(RmsNormParams)
LATHE_CONTRACT(LayerNormParams)
LATHE_CONTRACT(GeluParams)
LATHE_CONTRACT(MatmulParams)
LATHE_CONTRACT(RowAmaxParams)
LATHE_CONTRACT(ScaleSumsParams)
LATHE_CONTRACT(SwigluParams)
LATHE_CONTRACT(GateUpParams)
LATHE_CONTRACT(MhcInParams)
LATHE_CONTRACT(MhcOutParams)
LATHE_CONTRACT(StreamMeanParams)
LATHE_CONTRACT(ShortConvParams)
LATHE_CONTRACT(KdaGateParams)
LATHE_CONTRACT(KdaRecurrenceParams)
LATHE_CONTRACT(KdaVerifyParams)
LATHE_CONTRACT(KdaFlushParams)
LATHE_CONTRACT(GatedNormParams)
LATHE_CONTRACT(WriteLatentsParams)
LATHE_CONTRACT(IndexKeysParams)
LATHE_CONTRACT(IndexSelectParams)
LATHE_CONTRACT(MlaAbsorbParams)
LATHE_CONTRACT(MlaAttendParams)
LATHE_CONTRACT(MlaUnabsorbParams)
LATHE_CONTRACT(MlaExpandedParams)
LATHE_CONTRACT(RouteParams)
LATHE_CONTRACT(MoeParams)
LATHE_CONTRACT(VisionRopeParams)
LATHE_CONTRACT(VisionAttendParams)

#undef LATHE_CONTRACT

}  // namespace lathe::ops
