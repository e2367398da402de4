// Replay decoding of KDA, and the recurrence over narrow states.

#include <array>
#include <span>

#include "kernels/cuda/fill.h"
#include "kernels/cuda/replay_args.h"
#include "ops/kda_replay.h"

namespace lathe::kernels::cuda {
namespace {

using ops::LaunchContext;
using ops::OpId;

Kept kept_of(DType dtype) {
  LATHE_CHECK(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kI8, "states of {}", tensor::dtype_name(dtype));
  return dtype == DType::kF32 ? Kept::kF32 : dtype == DType::kF16 ? Kept::kF16 : Kept::kI8;
}
StatePool pool_of(const View& states, const View& scales) {
  return {.data = states.data,
          .stride = states.step(0),
          .scales = scales.present() ? scales.f32() : nullptr,
          .scale_stride = scales.present() ? scales.step(0) : 0,
          .kept = kept_of(states.dtype)};
}
RingArgs ring_of(const ops::ReplayRing& ring) {
  return {.keys = ring.keys.data,
          .values = ring.values.data,
          .decay = ring.decay.f32(),
          .key_slot = ring.keys.step(0),
          .key_row = ring.keys.step(1),
          .value_slot = ring.values.step(0),
          .value_row = ring.values.step(1),
          .decay_slot = ring.decay.step(0),
          .decay_row = ring.decay.step(1),
          .rows = narrow(ring.keys.dim(1)),
          .decay_rows = narrow(ring.decay.dim(1)),
          .key_type = type_of(ring.keys.dtype),
          .value_type = type_of(ring.values.dtype)};
}
bool aligned(const View& view, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(view.data) % static_cast<uintptr_t>(bytes) == 0 &&
         view.step(0) * static_cast<int64_t>(tensor::dtype_bytes(view.dtype)) % bytes == 0;
}
bool is_128(const View& states) { return states.dim(2) == 128 && states.dim(3) == 128 && aligned(states, 16); }
bool ring_type(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; }
/// Exact keys are of use with exact values only.
bool ring_types_128(const ops::ReplayRing& ring) {
  return ring_type(ring.keys.dtype) && ring_type(ring.values.dtype) && (ring.keys.dtype == DType::kBF16 || ring.values.dtype == DType::kF32);
}

VerifyArgs verify(const ops::KdaVerifyParams& p) {
  return {.q = planes_of(p.q),
          .k = planes_of(p.k),
          .v = planes_of(p.v),
          .g = rows_of(p.g),
          .beta = rows_of(p.beta),
          .states = pool_of(p.states, p.states_scales),
          .state = p.state.i32(),
          .checkpoint = p.checkpoint.i32(),
          .slot = p.slot.i32(),
          .fold = p.fold.i32(),
          .ring = ring_of(p.ring),
          .batch = batch_of(p.batch, p.q.dim(0)),
          .o = planes_of(p.o),
          .heads = narrow(p.q.dim(1)),
          .keys = narrow(p.q.dim(2)),
          .values = narrow(p.v.dim(2)),
          .longest = narrow(p.batch.longest)};
}
void verify_128(const void* params, const LaunchContext& context) { launch_verify_128(verify(as<ops::KdaVerifyParams>(params)), context.stream); }
void verify_plain(const void* params, const LaunchContext& context) { launch_verify_plain(verify(as<ops::KdaVerifyParams>(params)), context.stream); }
bool fits_verify(const void* params) {
  const auto& p = as<ops::KdaVerifyParams>(params);
  return ring_type(p.ring.keys.dtype) && ring_type(p.ring.values.dtype) && verify_plain_bytes(verify(p)) <= kSharedMax;
}
bool fits_verify_128(const void* params) {
  const auto& p = as<ops::KdaVerifyParams>(params);
  if (!is_128(p.states) || !ring_types_128(p.ring)) return false;
  const auto four = [](const View& ring) {
    return aligned(ring, static_cast<int64_t>(tensor::dtype_bytes(ring.dtype)) * 4) && ring.step(1) % 4 == 0;
  };
  return four(p.ring.keys) && four(p.ring.values) && verify_128_bytes(verify(p)) <= kSharedMax;
}

FlushArgs flush(const ops::KdaFlushParams& p) {
  return {.entering = pool_of(p.entering, p.entering_scales),
          .states = pool_of(p.states, p.states_scales),
          .state_in = p.state_in.i32(),
          .into = p.into.i32(),
          .checkpoint = p.checkpoint.i32(),
          .to = p.to.i32(),
          .slot = p.slot.i32(),
          .ring = ring_of(p.ring),
          .sequences = narrow(p.slot.dim(0)),
          .heads = narrow(p.entering.dim(1)),
          .keys = narrow(p.entering.dim(2)),
          .values = narrow(p.entering.dim(3)),
          .folded_max = narrow(p.folded_max)};
}
void flush_128(const void* params, const LaunchContext& context) { launch_flush_128(flush(as<ops::KdaFlushParams>(params)), context.stream); }
void flush_plain(const void* params, const LaunchContext& context) { launch_flush_plain(flush(as<ops::KdaFlushParams>(params)), context.stream); }
bool fits_flush(const void* params) {
  const auto& p = as<ops::KdaFlushParams>(params);
  return ring_type(p.ring.keys.dtype) && ring_type(p.ring.values.dtype) && flush_plain_bytes(flush(p)) <= kSharedMax;
}
bool fits_flush_128(const void* params) {
  const auto& p = as<ops::KdaFlushParams>(params);
  return is_128(p.entering) && is_128(p.states) && ring_types_128(p.ring) && flush_128_bytes(flush(p)) <= kSharedMax;
}

template <void (*kLaunch)(const RecurrenceArgs&, const NarrowStates&, void*)>
void recurrence(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::KdaRecurrenceParams>(params);
  kLaunch(recurrence_of(p), {.entering = pool_of(p.entering, p.entering_scales), .states = pool_of(p.states, p.states_scales)}, context.stream);
}
bool fits_narrow(const void* params) {
  const auto& p = as<ops::KdaRecurrenceParams>(params);
  return (p.states.dtype == DType::kF16 || p.states.dtype == DType::kI8) && p.q.dim(2) <= kPlainKeysMax;
}
bool fits_narrow_128(const void* params) {
  const auto& p = as<ops::KdaRecurrenceParams>(params);
  return fits_narrow(params) && is_128(p.entering) && is_128(p.states);
}

constexpr std::array kTable = {
    ops::Variant{.op = OpId::kKdaVerify, .name = "head128", .supports = fits_verify_128, .run = verify_128},
    ops::Variant{.op = OpId::kKdaVerify, .name = "plain", .supports = fits_verify, .run = verify_plain},
    ops::Variant{.op = OpId::kKdaFlush, .name = "head128", .supports = fits_flush_128, .run = flush_128},
    ops::Variant{.op = OpId::kKdaFlush, .name = "plain", .supports = fits_flush, .run = flush_plain},
    ops::Variant{.op = OpId::kKdaRecurrence, .name = "narrow128", .supports = fits_narrow_128, .run = recurrence<launch_recurrence_narrow_128>},
    ops::Variant{.op = OpId::kKdaRecurrence, .name = "narrow", .supports = fits_narrow, .run = recurrence<launch_recurrence_narrow>},
};

}  // namespace

std::span<const ops::Variant> replay_variants() { return kTable; }

}  // namespace lathe::kernels::cuda
