#pragma once
// Views of the op seam as plain arguments of kernels.

#include <functional>
#include <span>

#include "base/check.h"
#include "kernels/cuda/args.h"
#include "ops/batch.h"
#include "ops/kda.h"
#include "ops/kernel.h"
#include "ops/moe.h"
#include "ops/op.h"

namespace lathe::kernels::cuda {

inline int32_t narrow(int64_t n) {
  LATHE_CHECK(n >= 0 && n <= INT32_MAX, "size {} of a kernel", n);
  return static_cast<int32_t>(n);
}
inline Type type_of(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return Type::kBF16;
    case DType::kF16: return Type::kF16;
    case DType::kF8E4M3: return Type::kF8;
    case DType::kI8: return Type::kI8;
    default: break;
  }
  LATHE_CHECK(dtype == DType::kF32, "no kernel reads {}", tensor::dtype_name(dtype));
  return Type::kF32;
}
inline Rows rows_of(const View& view) { return view.present() ? Rows{view.f32(), view.step(0)} : Rows{nullptr, 0}; }
inline Planes planes_of(const View& view) { return {view.f32(), view.step(0), view.step(1)}; }
inline Vector vector_of(const View& view) { return view.present() ? Vector{view.data, type_of(view.dtype)} : Vector{nullptr, Type::kF32}; }
inline Matrix matrix_of(const MatrixView& m) {
  return {.values = m.values.data,
          .stride = m.values.step(0),
          .scales = m.scaled() ? m.scales.f32() : nullptr,
          .scale_stride = m.scaled() ? m.scales.step(0) : 0,
          .rows = narrow(m.rows()),
          .cols = narrow(m.cols()),
          .block_rows = m.block_rows,
          .block_cols = m.block_cols,
          .row_offset = m.row_offset,
          .col_offset = m.col_offset,
          .type = type_of(m.values.dtype)};
}
inline Batch batch_of(const ops::Ragged& batch, int64_t tokens) {
  return {.begin = batch.begin.i32(), .start = batch.start.i32(), .sequences = narrow(batch.sequences()), .tokens = narrow(tokens)};
}
inline Pages pages_of(const ops::Paged& paged) {
  return {.pool = paged.pool.data,
          .scales = paged.scales.present() ? paged.scales.f32() : nullptr,
          .scale_stride = paged.scales.present() ? paged.scales.step(0) : 0,
          .row_stride = paged.pool.step(0),
          .table = paged.table.i32(),
          .table_stride = paged.table.step(0),
          .block_rows = paged.block_rows,
          .type = type_of(paged.pool.dtype)};
}
/// States that are not f32 are left out.
inline RecurrenceArgs recurrence_of(const ops::KdaRecurrenceParams& p) {
  const bool f32 = p.states.dtype == DType::kF32;
  return {.q = planes_of(p.q),
          .k = planes_of(p.k),
          .v = planes_of(p.v),
          .g = rows_of(p.g),
          .beta = rows_of(p.beta),
          .entering = f32 ? p.entering.f32() : nullptr,
          .entering_stride = p.entering.step(0),
          .state_in = p.state_in.i32(),
          .states = f32 ? p.states.f32() : nullptr,
          .states_stride = p.states.step(0),
          .state_out = p.state_out.i32(),
          .batch = batch_of(p.batch, p.q.dim(0)),
          .o = planes_of(p.o),
          .pair_m = p.pair_m.present() ? p.pair_m.f32() : nullptr,
          .pair_h = p.pair_m.present() ? p.pair_h.f32() : nullptr,
          .pair_m_stride = p.pair_m.present() ? p.pair_m.step(0) : 0,
          .pair_h_stride = p.pair_m.present() ? p.pair_h.step(0) : 0,
          .heads = narrow(p.q.dim(1)),
          .keys = narrow(p.q.dim(2)),
          .values = narrow(p.v.dim(2))};
}
template <class Params>
const Params& as(const void* params) {
  return *static_cast<const Params*>(params);
}
inline bool any(const void*) { return true; }
/// No codes on either side that these kernels cannot read or make. With the others kInt8 and kFp8 are the fast mode.
inline bool readable(const MatrixView& m, ops::Compute compute) { return m.values.dtype != DType::kI8 && !ops::fp8_product(m, compute); }
/// Bytes of dynamic shared memory that a kernel may ask for.
inline constexpr int64_t kSharedMax = 200 * 1024;
/// Memory for one launch.
inline void* scratch(const ops::LaunchContext& context, int64_t bytes) {
  LATHE_CHECK(context.scratch != nullptr, "a device without scratch");
  return context.scratch->shared(bytes);
}

using LaunchMoe = std::function<void(const MoeArgs& args, const ExpertTable& table, void* more)>;
/// `launch` with the arguments of an op, its scratch, and `more` bytes of scratch behind that.
void run_moe(const ops::MoeParams& p, const ops::LaunchContext& context, int64_t more, const LaunchMoe& launch);

// Parts of the table.
std::span<const ops::Variant> rows_variants();
std::span<const ops::Variant> mixer_variants();
std::span<const ops::Variant> replay_variants();
std::span<const ops::Variant> codes_variants();
std::span<const ops::Variant> product_variants();

}  // namespace lathe::kernels::cuda
