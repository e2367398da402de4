// rms_norm, layer_norm, gelu, swiglu, add and stream_mean, all levels: row by row, a row stays in the first-level cache between its passes.
//
// Floor   bytes of the rows in and out.
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/vectors.h"
#include "ops/basic.h"
#include "ops/mhc.h"

namespace lathe::kernels::cpu {
namespace {

/// What one row takes: floats in and out, operations.
struct RowCost {
  int64_t in, out, flops;
};

void count_row([[maybe_unused]] const ops::LaunchContext& context, [[maybe_unused]] int64_t rows, [[maybe_unused]] const RowCost& cost) {
  LATHE_COUNT(context, kBytesRead, rows * cost.in * 4);
  LATHE_COUNT(context, kBytesWritten, rows * cost.out * 4);
  LATHE_COUNT(context, kFlops, rows * cost.flops);
}

void rms_norm(const RowIsa& isa, const ops::RmsNormParams& p, const ops::LaunchContext& context) {
  const int64_t width = p.x.dim(1);
  LATHE_COUNT(context, kWeightBytes, width * size_of(p.weight));
  LATHE_COUNT(context, kBytesRead, width * size_of(p.weight));
  if (p.x.dim(0) == 0) return;
  const int64_t bytes = float_bytes(p.weight);
  void* const memory = bytes > 0 ? context.scratch->shared(bytes) : nullptr;
  if (bytes > 0 && memory == nullptr) return;
  const float* const weight = as_floats(isa, p.weight, memory);
  for_pieces(context, p.x.dim(0), width, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) isa.rms_norm(row(p.x, t), weight, p.eps, width, row(p.out, t));
    count_row(context, end - begin, {width, width, 4 * width});
    LATHE_COUNT(context, kRowsNormalised, end - begin);
    LATHE_COUNT(context, kDivisions, end - begin);
  });
}

void layer_norm(const RowIsa& isa, const ops::LayerNormParams& p, const ops::LaunchContext& context) {
  const int64_t width = p.x.dim(1);
  LATHE_COUNT(context, kWeightBytes, width * (size_of(p.weight) + size_of(p.bias)));
  LATHE_COUNT(context, kBytesRead, width * (size_of(p.weight) + size_of(p.bias)));
  if (p.x.dim(0) == 0) return;
  const int64_t bytes = float_bytes(p.weight);
  char* const memory = bytes + float_bytes(p.bias) > 0 ? static_cast<char*>(context.scratch->shared(bytes + float_bytes(p.bias))) : nullptr;
  if (bytes + float_bytes(p.bias) > 0 && memory == nullptr) return;
  const float* const weight = as_floats(isa, p.weight, memory);
  const float* const bias = as_floats(isa, p.bias, memory + bytes);
  for_pieces(context, p.x.dim(0), width, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) isa.layer_norm(row(p.x, t), weight, bias, p.eps, width, row(p.out, t));
    count_row(context, end - begin, {width, width, 7 * width});
    LATHE_COUNT(context, kRowsNormalised, end - begin);
    LATHE_COUNT(context, kDivisions, end - begin);
  });
}

void gelu(const RowIsa& isa, const ops::GeluParams& p, const ops::LaunchContext& context) {
  const int64_t width = p.x.dim(1);
  for_pieces(context, p.x.dim(0), 4 * width, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) isa.gelu(row(p.x, t), width, row(p.out, t));
    count_row(context, end - begin, {width, width, 4 * width});
    LATHE_COUNT(context, kExponentials, (end - begin) * width);
  });
}

void swiglu(const MatmulIsa& isa, const ops::SwigluParams& p, const ops::LaunchContext& context) {
  const int64_t width = p.out.dim(1);
  for_pieces(context, p.out.dim(0), 4 * width, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) isa.swiglu(row(p.gate, t), row(p.up, t), p.limit, width, row(p.out, t));
    count_row(context, end - begin, {2 * width, width, 3 * width});
    LATHE_COUNT(context, kExponentials, (end - begin) * width);
    LATHE_COUNT(context, kDivisions, (end - begin) * width);
  });
}

void add(const RowIsa& isa, const ops::AddParams& p, const ops::LaunchContext& context) {
  const int64_t width = p.out.dim(1);
  for_pieces(context, p.out.dim(0), width, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) isa.add(row(p.a, t), row(p.b, t), width, row(p.out, t));
    count_row(context, end - begin, {2 * width, width, width});
  });
}

void stream_mean(const RowIsa& isa, const ops::StreamMeanParams& p, const ops::LaunchContext& context) {
  const int64_t streams = p.streams.dim(1), width = p.streams.dim(2);
  float weights[kStreamsMax];
  std::fill_n(weights, streams, 1.0f / static_cast<float>(streams));
  for_pieces(context, p.out.dim(0), streams * width, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const float* rows[kStreamsMax];
      for (int64_t s = 0; s < streams; ++s) rows[s] = row(p.streams, t, s);
      isa.combine(rows, weights, streams, width, row(p.out, t));
    }
    count_row(context, end - begin, {(p.streams.step(1) == 0 ? 1 : streams) * width, width, streams * width});
  });
}

}  // namespace

#define LATHE_ROW_KERNEL(name, Params)                                                      \
  void LATHE_KERNEL(name##_scalar)(const void* params, const ops::LaunchContext& context) { \
    name(kRowScalar, *static_cast<const ops::Params*>(params), context);                    \
  }                                                                                         \
  void LATHE_KERNEL(name##_avx2)(const void* params, const ops::LaunchContext& context) {   \
    name(kRowAvx2, *static_cast<const ops::Params*>(params), context);                      \
  }                                                                                         \
  void LATHE_KERNEL(name##_avx512)(const void* params, const ops::LaunchContext& context) { \
    name(kRowAvx512, *static_cast<const ops::Params*>(params), context);                    \
  }

LATHE_ROW_KERNEL(rms_norm, RmsNormParams)
LATHE_ROW_KERNEL(layer_norm, LayerNormParams)
LATHE_ROW_KERNEL(gelu, GeluParams)
LATHE_ROW_KERNEL(add, AddParams)
LATHE_ROW_KERNEL(stream_mean, StreamMeanParams)

#undef LATHE_ROW_KERNEL

void LATHE_KERNEL(swiglu_scalar)(const void* params, const ops::LaunchContext& context) {
  swiglu(kMatmulScalar, *static_cast<const ops::SwigluParams*>(params), context);
}
void LATHE_KERNEL(swiglu_avx2)(const void* params, const ops::LaunchContext& context) {
  swiglu(kMatmulAvx2, *static_cast<const ops::SwigluParams*>(params), context);
}
void LATHE_KERNEL(swiglu_avx512)(const void* params, const ops::LaunchContext& context) {
  swiglu(kMatmulAvx512, *static_cast<const ops::SwigluParams*>(params), context);
}

}  // namespace lathe::kernels::cpu
