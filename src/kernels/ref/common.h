#pragma once
// What several reference kernels need. Nothing here counts, so both twins may share these functions.

#include <cmath>
#include <cstdint>
#include <vector>

#include "ops/batch.h"
#include "ops/kernel.h"
#include "ops/op.h"
#include "tensor/quantised.h"

namespace lathe::kernels::ref {

using ops::LaunchContext;

template <class F>
void each(const LaunchContext& context, int64_t tasks, F&& f) {
  if (context.pool == nullptr) {
    for (int64_t task = 0; task < tasks; ++task) f(task);
    return;
  }
  context.pool->for_each(tasks, [&](int64_t task, int) { f(task); });
}

inline float* row(const View& view, int64_t t) { return view.f32() + t * view.step(0); }
inline float* row(const View& view, int64_t a, int64_t b) { return view.f32() + a * view.step(0) + b * view.step(1); }
/// Element of a weight vector, f32 or bf16.
inline double at(const View& vector, int64_t i) { return static_cast<double>(tensor::load_as_float(vector.dtype, vector.data, i)); }
/// Bytes of one element.
inline int64_t size_of(const View& view) { return static_cast<int64_t>(tensor::dtype_bytes(view.dtype)); }

inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
/// a · σ(a)
inline double silu(double a) { return a / (1.0 + std::exp(-a)); }
/// NaN stays NaN.
inline double clamp_above(double x, double limit) { return x > limit ? limit : x; }
inline double clamp_both(double x, double limit) { return x < -limit ? -limit : clamp_above(x, limit); }
inline float swiglu(double gate, double up, double limit) { return static_cast<float>(silu(clamp_above(gate, limit)) * clamp_both(up, limit)); }

/// An activation as it enters a product: in fast mode rounded to BF16.
inline double activation(float x, ops::Compute compute) {
  return static_cast<double>(compute != ops::Compute::kF32 ? tensor::bf16_to_float(tensor::float_to_bf16(x)) : x);
}

/// Row r of a weight matrix, exact: value · scale does not fit a float. In fast mode values that are wider than BF16 are rounded to it.
inline void weight_row(const MatrixView& m, int64_t r, ops::Compute compute, double* out) {
  const int64_t cols = m.cols();
  const bool narrow = compute != ops::Compute::kF32 && (m.values.dtype == DType::kF32 || m.values.dtype == DType::kF16);
  for (int64_t c = 0; c < cols; ++c) {
    float value = tensor::load_as_float(m.values.dtype, m.values.data, r * m.values.step(0) + c);
    if (narrow) value = tensor::bf16_to_float(tensor::float_to_bf16(value));
    double weight = static_cast<double>(value);
    if (m.scaled()) {
      weight *= static_cast<double>(m.scales.f32()[(r + m.row_offset) / m.block_rows * m.scales.step(0) + (c + m.col_offset) / m.block_cols]);
    }
    out[c] = weight;
  }
}
/// For counters: the values of one row, and all scales.
inline int64_t weight_row_bytes(const MatrixView& m) { return m.cols() * size_of(m.values); }
inline int64_t scale_bytes(const MatrixView& m) { return m.scaled() ? m.scales.elements() * size_of(m.scales) : 0; }

/// Σ a[i] b[i] in double.
inline double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

/// Sequence of each row of a step.
inline std::vector<int32_t> sequence_of_rows(const ops::Ragged& batch) {
  const int64_t sequences = batch.sequences();
  const int32_t* const begin = batch.begin.i32();
  std::vector<int32_t> of(sequences > 0 ? static_cast<size_t>(begin[sequences]) : 0);
  for (int64_t s = 0; s < sequences; ++s) {
    for (int32_t t = begin[s]; t < begin[s + 1]; ++t) of[static_cast<size_t>(t)] = static_cast<int32_t>(s);
  }
  return of;
}

/// Absolute position of row t of sequence s.
inline int64_t position_of(const ops::Ragged& batch, int64_t s, int64_t t) { return batch.start.i32()[s] + t - batch.begin.i32()[s]; }

/// Pool row of row r of sequence s.
inline int64_t paged_row(const ops::Paged& paged, int64_t s, int64_t r) {
  const int32_t block = paged.table.i32()[s * paged.table.step(0) + r / paged.block_rows];
  return block * paged.block_rows + r % paged.block_rows;
}
/// The values of a pool row; codes times their scales are exact.
inline std::vector<double> load_row(const ops::Paged& paged, int64_t at) {
  std::vector<double> out;
  for (int64_t c = 0; c < paged.pool.dim(1); ++c) {
    const auto value = static_cast<double>(tensor::load_as_float(paged.pool.dtype, paged.pool.data, at * paged.pool.step(0) + c));
    out.push_back(paged.scales.present() ? value * static_cast<double>(row(paged.scales, at)[c / tensor::kRunValues]) : value);
  }
  return out;
}
inline void store_row(const ops::Paged& paged, int64_t at, const float* x) {
  const int64_t first = at * paged.pool.step(0);
  if (paged.scales.present()) {
    return tensor::quantise_row(x, paged.pool.dim(1), paged.pool.dtype, static_cast<std::byte*>(paged.pool.data) + first, row(paged.scales, at));
  }
  for (int64_t c = 0; c < paged.pool.dim(1); ++c) tensor::store_from_float(paged.pool.dtype, paged.pool.data, first + c, x[c]);
}
/// For counters: one row with its scales.
inline int64_t paged_row_bytes(const ops::Paged& paged) {
  return paged.pool.dim(1) * size_of(paged.pool) + (paged.scales.present() ? paged.scales.dim(1) * size_of(paged.scales) : 0);
}

}  // namespace lathe::kernels::ref
