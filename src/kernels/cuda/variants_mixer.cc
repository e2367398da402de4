// What mixes tokens: KDA and latent attention.

#include <algorithm>
#include <array>
#include <span>

#include "kernels/cuda/fill.h"
#include "ops/kda.h"
#include "ops/mla.h"

namespace lathe::kernels::cuda {
namespace {

using ops::LaunchContext;
using ops::OpId;

void short_conv(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::ShortConvParams>(params);
  launch_short_conv({.x = rows_of(p.x),
                     .weight = vector_of(p.weight),
                     .weight_stride = p.weight.step(0),
                     .ring = p.ring.data,
                     .ring_type = type_of(p.ring.dtype),
                     .ring_slot = p.ring.step(0),
                     .ring_row = p.ring.step(1),
                     .slot = p.slot.i32(),
                     .batch = batch_of(p.batch, p.x.dim(0)),
                     .out = rows_of(p.out),
                     .channels = narrow(p.x.dim(1)),
                     .taps = narrow(p.weight.dim(0)),
                     .ring_rows = narrow(p.ring.dim(1))},
                    context.stream);
}

void kda_gate(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::KdaGateParams>(params);
  const int64_t heads = p.beta.dim(1);
  launch_kda_gate({.a = rows_of(p.a),
                   .b = rows_of(p.b),
                   .a_log = vector_of(p.a_log),
                   .dt_bias = vector_of(p.dt_bias),
                   .bounded = p.bounded,
                   .lower_bound = p.lower_bound,
                   .g = rows_of(p.g),
                   .beta = rows_of(p.beta),
                   .tokens = narrow(p.g.dim(0)),
                   .heads = narrow(heads),
                   .keys = narrow(heads > 0 ? p.g.dim(1) / heads : 0)},
                  context.stream);
}

void gated_norm(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::GatedNormParams>(params);
  launch_gated_norm({.o = planes_of(p.o),
                     .gate = rows_of(p.gate),
                     .weight = vector_of(p.weight),
                     .eps = p.eps,
                     .out = rows_of(p.out),
                     .tokens = narrow(p.o.dim(0)),
                     .heads = narrow(p.o.dim(1)),
                     .width = narrow(p.o.dim(2))},
                    context.stream);
}

void recurrence_plain(const void* params, const LaunchContext& context) {
  launch_recurrence_plain(recurrence_of(as<ops::KdaRecurrenceParams>(params)), context.stream);
}
template <KdaRung kRung>
void recurrence_128(const void* params, const LaunchContext& context) {
  launch_recurrence_128(recurrence_of(as<ops::KdaRecurrenceParams>(params)), kRung, context.stream);
}
bool is_128(const void* params) {
  const auto& p = as<ops::KdaRecurrenceParams>(params);
  const auto aligned = [](const View& v) { return reinterpret_cast<uintptr_t>(v.data) % 16 == 0 && v.step(0) % 4 == 0; };
  return p.states.dtype == DType::kF32 && p.q.dim(2) == 128 && p.v.dim(2) == 128 && !p.pair_m.present() && aligned(p.entering) && aligned(p.states);
}

void write_latents(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::WriteLatentsParams>(params);
  launch_write_latents({.x = rows_of(p.x), .pool = pages_of(p.pool), .batch = batch_of(p.batch, p.x.dim(0)), .width = narrow(p.x.dim(1))},
                       context.stream);
}

void index_keys(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::IndexKeysParams>(params);
  launch_index_keys({.k = rows_of(p.k),
                     .gate = rows_of(p.gate),
                     .norm_weight = vector_of(p.norm_weight),
                     .norm_bias = vector_of(p.norm_bias),
                     .eps = p.eps,
                     .ape = vector_of(p.ape),
                     .ape_stride = p.ape.step(0),
                     .ring = p.ring.f32(),
                     .ring_slot = p.ring.step(0),
                     .ring_row = p.ring.step(1),
                     .ring_part = p.ring.step(2),
                     .slot = p.slot.i32(),
                     .keys = pages_of(p.keys),
                     .batch = batch_of(p.batch, p.k.dim(0)),
                     .width = narrow(p.k.dim(1)),
                     .pool = narrow(p.ape.dim(0)),
                     .ring_rows = narrow(p.ring.dim(1))},
                    context.stream);
}

constexpr int64_t kScoresAtOnce = int64_t{16} << 20;  // floats of scratch

void index_select(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::IndexSelectParams>(params);
  const int64_t rows = p.q.dim(0);
  const int64_t capacity = p.keys.table.dim(1) * p.keys.block_rows;
  SelectArgs args{.q = planes_of(p.q),
                  .weights = rows_of(p.weights),
                  .keys = pages_of(p.keys),
                  .batch = batch_of(p.batch, rows),
                  .kpool = p.kpool,
                  .selection = p.selection.i32(),
                  .selection_stride = p.selection.step(0),
                  .most = narrow(p.selection.dim(1)),
                  .scores = rows_of(p.scores),
                  .score_columns = narrow(p.scores.present() ? p.scores.dim(1) : (capacity > p.selection.dim(1) ? capacity : 0)),
                  .wanted = p.scores.present(),
                  .heads = narrow(p.q.dim(1)),
                  .width = narrow(p.q.dim(2)),
                  .row_begin = 0,
                  .row_end = narrow(rows)};
  if (rows == 0) return;
  if (args.wanted || args.score_columns == 0) return launch_index_select(args, context.stream);
  const int64_t at_once = std::clamp<int64_t>(kScoresAtOnce / args.score_columns, 1, rows);
  args.scores = {static_cast<float*>(scratch(context, at_once * args.score_columns * 4)), args.score_columns};
  for (int64_t begin = 0; begin < rows; begin += at_once) {
    args.row_begin = narrow(begin), args.row_end = narrow(std::min(rows, begin + at_once));
    launch_index_select(args, context.stream);
  }
}

void mla_absorb(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::MlaAbsorbParams>(params);
  launch_mla_absorb({.q = planes_of(p.q),
                     .kv_b = matrix_of(p.kv_b.matrix),
                     .fast = p.compute == ops::Compute::kBF16,
                     .out = planes_of(p.out),
                     .tokens = narrow(p.q.dim(0)),
                     .heads = narrow(p.q.dim(1)),
                     .nope = p.kv_b.nope,
                     .value = p.kv_b.value,
                     .latent = narrow(p.out.dim(2))},
                    context.stream);
}

AttendArgs attend(const ops::MlaAttendParams& p) {
  return {.q = planes_of(p.q),
          .latents = pages_of(p.latents),
          .pools = p.selection.pools.i32(),
          .pools_stride = p.selection.pools.step(0),
          .pools_max = narrow(p.selection.pools.dim(1)),
          .kpool = p.selection.kpool,
          .tail_begin = p.selection.tail_begin.present() ? p.selection.tail_begin.i32() : nullptr,
          .batch = batch_of(p.batch, p.q.dim(0)),
          .scale = p.scale,
          .out = planes_of(p.out),
          .row_max = rows_of(p.row_max),
          .row_sum = rows_of(p.row_sum),
          .heads = narrow(p.q.dim(1)),
          .latent = narrow(p.q.dim(2)),
          .tail_over = -1};
}
void attend_plain(const void* params, const LaunchContext& context) { launch_mla_attend(attend(as<ops::MlaAttendParams>(params)), context.stream); }

constexpr int64_t kPartsAtOnce = int64_t{96} << 20;  // bytes of scratch

template <AttendRung kRung>
void attend_in_parts(const void* params, const LaunchContext& context) {
  AttendArgs args = attend(as<ops::MlaAttendParams>(params));
  const int64_t rows = args.batch.tokens;
  if (rows == 0 || args.heads == 0) return;
  const int64_t at_once = std::clamp<int64_t>(kPartsAtOnce / attend_row_bytes(args), 1, rows);
  AttendParts parts = attend_parts(args, scratch(context, at_once * attend_row_bytes(args)), narrow(at_once));
  for (int64_t begin = 0; begin < rows; begin += at_once) {
    parts.row_begin = narrow(begin), parts.rows = narrow(std::min(rows - begin, at_once));
    launch_mla_attend_parts(parts, kRung, context.stream);
  }
  if (args.tail_begin == nullptr && args.kpool <= kTailRoom + 1) return;  // no tail is that long
  args.tail_over = kTailRoom;
  launch_mla_attend(args, context.stream);
}
bool fits_parts(const void* params) {
  const auto& p = as<ops::MlaAttendParams>(params);
  const auto aligned = [](const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; };
  return p.latents.pool.dtype == DType::kBF16 && p.q.dim(2) % 64 == 0 && p.q.dim(2) <= kLatentMax && p.latents.pool.step(0) % 8 == 0 &&
         p.q.step(0) % 4 == 0 && p.q.step(1) % 4 == 0 && aligned(p.q.data) && aligned(p.latents.pool.data) && p.q.dim(1) <= 4096 &&
         p.selection.pools.dim(1) * p.selection.kpool <= (int64_t{1} << 20);
}

constexpr std::array kTable = {
    ops::Variant{.op = OpId::kShortConv, .name = "columns", .supports = any, .run = short_conv},
    ops::Variant{.op = OpId::kKdaGate, .name = "rows", .supports = any, .run = kda_gate},
    ops::Variant{.op = OpId::kKdaRecurrence, .name = "tiles128", .supports = is_128, .run = recurrence_128<KdaRung::kAuto>},
    ops::Variant{.op = OpId::kKdaRecurrence, .name = "tiles128_16", .supports = is_128, .run = recurrence_128<KdaRung::kTiles16>},
    ops::Variant{.op = OpId::kKdaRecurrence, .name = "tiles128_32", .supports = is_128, .run = recurrence_128<KdaRung::kTiles32>},
    ops::Variant{.op = OpId::kKdaRecurrence, .name = "tiles128_late", .supports = is_128, .run = recurrence_128<KdaRung::kTiles32Late>},
    ops::Variant{.op = OpId::kKdaRecurrence, .name = "stream128", .supports = is_128, .run = recurrence_128<KdaRung::kStream>},
    ops::Variant{.op = OpId::kKdaRecurrence, .name = "head128", .supports = is_128, .run = recurrence_128<KdaRung::kHead>},
    ops::Variant{.op = OpId::kKdaRecurrence, .name = "columns128", .supports = is_128, .run = recurrence_128<KdaRung::kColumns>},
    ops::Variant{.op = OpId::kKdaRecurrence,
                 .name = "plain",
                 .supports =
                     [](const void* p) {
                       const auto& r = as<ops::KdaRecurrenceParams>(p);
                       return r.states.dtype == DType::kF32 && r.q.dim(2) <= kPlainKeysMax;
                     },
                 .run = recurrence_plain},
    ops::Variant{.op = OpId::kGatedNorm, .name = "warp", .supports = any, .run = gated_norm},
    ops::Variant{.op = OpId::kWriteLatents, .name = "rows", .supports = any, .run = write_latents},
    ops::Variant{.op = OpId::kIndexKeys,
                 .name = "rows",
                 .supports =
                     [](const void* p) {
                       const auto& k = as<ops::IndexKeysParams>(p);
                       return k.ape.dim(0) * k.k.dim(1) * 4 <= kSharedMax;
                     },
                 .run = index_keys},
    ops::Variant{.op = OpId::kIndexSelect,
                 .name = "radix",
                 .supports =
                     [](const void* p) {
                       const auto& x = as<ops::IndexSelectParams>(p);
                       return x.q.dim(1) * (x.q.dim(2) + 1) * 4 <= kSharedMax;
                     },
                 .run = index_select},
    ops::Variant{.op = OpId::kMlaAbsorb,
                 .name = "plain",
                 .supports =
                     [](const void* p) {
                       const auto& a = as<ops::MlaAbsorbParams>(p);
                       return a.kv_b.nope * 32 <= kSharedMax && readable(a.kv_b.matrix, a.compute);
                     },
                 .run = mla_absorb},
    ops::Variant{.op = OpId::kMlaAttend, .name = "parts", .supports = fits_parts, .run = attend_in_parts<AttendRung::kAuto>},
    ops::Variant{.op = OpId::kMlaAttend, .name = "parts_few", .supports = fits_parts, .run = attend_in_parts<AttendRung::kFew>},
    ops::Variant{.op = OpId::kMlaAttend, .name = "parts_many", .supports = fits_parts, .run = attend_in_parts<AttendRung::kMany>},
    ops::Variant{.op = OpId::kMlaAttend,
                 .name = "plain",
                 .supports =
                     [](const void* p) {
                       const auto& a = as<ops::MlaAttendParams>(p);
                       return a.q.dim(2) <= kLatentMax;
                     },
                 .run = attend_plain},
};

}  // namespace

std::span<const ops::Variant> mixer_variants() { return kTable; }

}  // namespace lathe::kernels::cuda
