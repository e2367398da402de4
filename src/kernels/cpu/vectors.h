#pragma once
// Weight vectors as floats. Included in kernel files only; internal linkage.

#include "kernels/cpu/row_isa.h"
#include "kernels/cpu/rows.h"

namespace lathe::kernels::cpu {
namespace {

inline int64_t size_of(const View& v) { return static_cast<int64_t>(tensor::dtype_bytes(v.dtype)); }
/// Memory that as_floats() needs.
inline int64_t float_bytes(const View& v) { return v.dtype == DType::kF32 ? 0 : round_up(v.elements() * 4, 64); }
/// A contiguous weight vector: in place, or converted into `memory`.
inline const float* as_floats(const RowIsa& isa, const View& v, void* memory) {
  if (v.dtype == DType::kF32) return v.f32();
  isa.from_bf16(v.bf16(), v.elements(), static_cast<float*>(memory));
  return static_cast<const float*>(memory);
}
inline float* row(const View& v, int64_t t) { return v.f32() + t * v.step(0); }
inline float* row(const View& v, int64_t t, int64_t h) { return v.f32() + t * v.step(0) + h * v.step(1); }

}  // namespace
}  // namespace lathe::kernels::cpu
