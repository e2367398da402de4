#pragma once
// The case table of every op: what the conformance tests run and what the micro-benchmarks measure.

#include <functional>
#include <string>
#include <vector>

#include "base/check.h"
#include "ops/cases/problem.h"
#include "ops/contracts.h"

namespace lathe::ops::cases {

/// |got − ref| ≤ absolute + relative · |ref| + scaled · max|ref| of the view. All zero: the same bits.
struct Tolerance {
  double relative = 0;
  double scaled = 0;
  double absolute = 0;
  bool same_class = false;  ///< NaN and infinities may stand for each other (sums of infinities in any order)
};

/// Unit roundoff of f32.
inline constexpr double kUnit = 0x1p-24;

/// How the rows of a problem can be computed apart without changing a bit.
enum class Parts : uint8_t {
  kNone,
  kRows,       ///< any row alone
  kSequences,  ///< any sequence alone, and any sequence cut at any row
  kWhole,      ///< any sequence alone, but not cut
  kSegments,   ///< vision attention: any segment alone
};

/// Replaces the comparison of one output; returns what is wrong, or nothing. Both problems have run.
using Judge = std::function<std::string(Problem& reference, Problem& got)>;

struct Case {
  OpId op = OpId::kCount;
  std::string name;  ///< unique within the op: "bf16_tail"
  std::function<void(Problem&)> build{};
  Tolerance tolerance{};
  Parts parts = Parts::kRows;
  std::vector<std::string> judged{};  ///< outputs that `judge` looks at instead of the tolerance
  Judge judge{};
  bool exact_counts = true;  ///< the reference does exactly what cost() says
};

/// The conformance table, in the order of the ops.
const std::vector<Case>& all_cases();

void add_basic_cases(std::vector<Case>& out);
void add_matmul_cases(std::vector<Case>& out);
void add_product_code_cases(std::vector<Case>& out);
void add_mhc_cases(std::vector<Case>& out);
void add_kda_cases(std::vector<Case>& out);
void add_replay_cases(std::vector<Case>& out);
void add_index_cases(std::vector<Case>& out);
void add_mla_cases(std::vector<Case>& out);
void add_moe_cases(std::vector<Case>& out);
void add_vision_cases(std::vector<Case>& out);

/// Calls f(params of the right type) for the op.
template <class F>
void with_params(OpId op, void* params, F&& f) {
  switch (op) {
#define LATHE_CASE(Params) \
  case Params::kId: return f(*static_cast<Params*>(params));
    LATHE_CASE(EmbedParams)
    LATHE_CASE(GatherRowsParams)
    LATHE_CASE(AddParams)
    LATHE_CASE(RmsNormParams)
    LATHE_CASE(LayerNormParams)
    LATHE_CASE(GeluParams)
    LATHE_CASE(MatmulParams)
    LATHE_CASE(RowAmaxParams)
    LATHE_CASE(ScaleSumsParams)
    LATHE_CASE(SwigluParams)
    LATHE_CASE(GateUpParams)
    LATHE_CASE(MhcInParams)
    LATHE_CASE(MhcOutParams)
    LATHE_CASE(StreamMeanParams)
    LATHE_CASE(ShortConvParams)
    LATHE_CASE(KdaGateParams)
    LATHE_CASE(KdaRecurrenceParams)
    LATHE_CASE(KdaVerifyParams)
    LATHE_CASE(KdaFlushParams)
    LATHE_CASE(GatedNormParams)
    LATHE_CASE(WriteLatentsParams)
    LATHE_CASE(IndexKeysParams)
    LATHE_CASE(IndexSelectParams)
    LATHE_CASE(MlaAbsorbParams)
    LATHE_CASE(MlaAttendParams)
    LATHE_CASE(MlaUnabsorbParams)
    LATHE_CASE(MlaExpandedParams)
    LATHE_CASE(RouteParams)
    LATHE_CASE(MoeParams)
    LATHE_CASE(VisionRopeParams)
    LATHE_CASE(VisionAttendParams)
#undef LATHE_CASE
    case OpId::kCount: break;
  }
  LATHE_CHECK(false, "op {}", static_cast<int>(op));
}

/// Dimensions of a model, as the benchmarks use them.
struct ModelShape {
  const char* name = "";
  int64_t hidden, streams, kda_heads, kda_width, conv, heads, nope, value, q_lora, kv_lora, index_heads, index_width, pools, kpool, experts, chosen,
      inner, dense, vocabulary;
};
const ModelShape& builtin_shape();
const ModelShape& published_shape();

/// One benchmark case per op (several for matmul) at the model's sizes: `tokens` rows in `sequences` sequences of equal length that stand at `position`.
/// Matrices are BF16 or FP8 as the release stores them, and INT8; latents and index keys BF16, INT8 and E4M3; KDA states in all formats. At published sizes a case may need gigabytes (moe 7.3 GB): build one, run it,
/// drop it.
std::vector<Case> model_cases(const ModelShape& shape, int64_t tokens, int64_t sequences, int64_t position, Compute compute);

}  // namespace lathe::ops::cases
