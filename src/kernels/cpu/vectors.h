#pragma once
// Weight vectors as floats. Included in kernel files only; internal linkage.

#include "kernels/cpu/batch_rows.h"
#include "kernels/cpu/matmul_isa.h"
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

/// Floats of a row of a paged pool that is not f32 itself.
inline void read_paged(const RowIsa& isa, const ops::Paged& paged, int64_t at, float* out) {
  const int64_t width = paged.pool.dim(1), offset = at * paged.pool.step(0);
  if (paged.pool.dtype == DType::kBF16) return isa.from_bf16(paged.pool.bf16() + offset, width, out);
  isa.from_codes(static_cast<const char*>(paged.pool.data) + offset, paged.pool.dtype == DType::kF8E4M3, paged_scales(paged, at), width, out);
}
/// Writes a row of a paged pool in its format.
inline void write_paged(const RowIsa& isa, const MatmulIsa& matmul, const ops::Paged& paged, int64_t at, const float* x) {
  const int64_t width = paged.pool.dim(1), offset = at * paged.pool.step(0);
  if (paged.pool.dtype == DType::kF32) {
    std::memcpy(paged.pool.f32() + offset, x, static_cast<size_t>(width) * 4);
  } else if (paged.pool.dtype == DType::kBF16) {
    matmul.to_bf16(x, width, paged.pool.bf16() + offset);
  } else {
    isa.to_codes(x, width, paged.pool.dtype == DType::kF8E4M3, static_cast<char*>(paged.pool.data) + offset, paged_scales(paged, at));
  }
}

}  // namespace
}  // namespace lathe::kernels::cpu
