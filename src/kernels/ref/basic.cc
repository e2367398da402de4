// Embedding, gather, add, norms, GELU, SwiGLU: row by row.

#include "ops/basic.h"

#include "base/check.h"
#include "kernels/counting.h"
#include "kernels/ref/common.h"
#include "kernels/ref/kernels.h"

namespace lathe::kernels::ref {

void LATHE_KERNEL(embed)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::EmbedParams*>(params);
  const int64_t width = p.table.cols();
  each(context, p.out.dim(0), [&](int64_t t) {
    float* const out = row(p.out, t);
    const int32_t image = p.override_row.present() ? p.override_row.i32()[t] : -1;
    LATHE_COUNT(context, kBytesRead, 4 + (p.override_row.present() ? 4 : 0) + width * (image >= 0 ? 4 : size_of(p.table.values)));
    LATHE_COUNT(context, kBytesWritten, width * 4);
    if (image >= 0) {
      for (int64_t c = 0; c < width; ++c) out[c] = row(p.overrides, image)[c];
      return;
    }
    const int32_t id = p.ids.i32()[t];
    LATHE_CHECK(0 <= id && id < p.table.rows(), "id {} of {}", id, p.table.rows());
    LATHE_COUNT(context, kWeightBytes, width * size_of(p.table.values));
    for (int64_t c = 0; c < width; ++c) out[c] = tensor::load_as_float(p.table.values.dtype, p.table.values.data, id * p.table.values.step(0) + c);
  });
}

void LATHE_KERNEL(gather_rows)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::GatherRowsParams*>(params);
  const int64_t width = p.out.dim(1);
  each(context, p.out.dim(0), [&](int64_t i) {
    const int32_t from = p.rows.i32()[i];
    LATHE_CHECK(0 <= from && from < p.x.dim(0), "row {} of {}", from, p.x.dim(0));
    LATHE_COUNT(context, kBytesRead, 4 + width * 4);
    LATHE_COUNT(context, kBytesWritten, width * 4);
    for (int64_t c = 0; c < width; ++c) row(p.out, i)[c] = row(p.x, from)[c];
  });
}

void LATHE_KERNEL(add)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::AddParams*>(params);
  const int64_t width = p.out.dim(1);
  each(context, p.out.dim(0), [&](int64_t t) {
    LATHE_COUNT(context, kBytesRead, width * 8);
    LATHE_COUNT(context, kBytesWritten, width * 4);
    LATHE_COUNT(context, kFlops, width);
    for (int64_t c = 0; c < width; ++c) row(p.out, t)[c] = row(p.a, t)[c] + row(p.b, t)[c];
  });
}

void LATHE_KERNEL(rms_norm)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::RmsNormParams*>(params);
  const int64_t width = p.x.dim(1);
  LATHE_COUNT(context, kWeightBytes, width * size_of(p.weight));
  LATHE_COUNT(context, kBytesRead, width * size_of(p.weight));
  each(context, p.x.dim(0), [&](int64_t t) {
    const float* const x = row(p.x, t);
    double squares = 0;
    for (int64_t c = 0; c < width; ++c) squares += static_cast<double>(x[c]) * static_cast<double>(x[c]);
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(width) + static_cast<double>(p.eps));
    for (int64_t c = 0; c < width; ++c) row(p.out, t)[c] = static_cast<float>(static_cast<double>(x[c]) * factor * at(p.weight, c));
    LATHE_COUNT(context, kBytesRead, width * 4);
    LATHE_COUNT(context, kBytesWritten, width * 4);
    LATHE_COUNT(context, kFlops, 4 * width);
    LATHE_COUNT(context, kRowsNormalised, 1);
    LATHE_COUNT(context, kDivisions, 1);
  });
}

void LATHE_KERNEL(layer_norm)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::LayerNormParams*>(params);
  const int64_t width = p.x.dim(1);
  LATHE_COUNT(context, kWeightBytes, width * (size_of(p.weight) + size_of(p.bias)));
  LATHE_COUNT(context, kBytesRead, width * (size_of(p.weight) + size_of(p.bias)));
  each(context, p.x.dim(0), [&](int64_t t) {
    const float* const x = row(p.x, t);
    double sum = 0;
    for (int64_t c = 0; c < width; ++c) sum += static_cast<double>(x[c]);
    const double mean = sum / static_cast<double>(width);
    double squares = 0;
    for (int64_t c = 0; c < width; ++c) squares += (static_cast<double>(x[c]) - mean) * (static_cast<double>(x[c]) - mean);
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(width) + static_cast<double>(p.eps));
    for (int64_t c = 0; c < width; ++c) {
      row(p.out, t)[c] = static_cast<float>((static_cast<double>(x[c]) - mean) * factor * at(p.weight, c) + at(p.bias, c));
    }
    LATHE_COUNT(context, kBytesRead, width * 4);
    LATHE_COUNT(context, kBytesWritten, width * 4);
    LATHE_COUNT(context, kFlops, 7 * width);
    LATHE_COUNT(context, kRowsNormalised, 1);
    LATHE_COUNT(context, kDivisions, 1);
  });
}

void LATHE_KERNEL(gelu)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::GeluParams*>(params);
  const int64_t width = p.x.dim(1);
  each(context, p.x.dim(0), [&](int64_t t) {
    for (int64_t c = 0; c < width; ++c) {
      const auto x = static_cast<double>(row(p.x, t)[c]);
      row(p.out, t)[c] = static_cast<float>(0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0))));
    }
    LATHE_COUNT(context, kBytesRead, width * 4);
    LATHE_COUNT(context, kBytesWritten, width * 4);
    LATHE_COUNT(context, kFlops, 4 * width);
    LATHE_COUNT(context, kExponentials, width);
  });
}

void LATHE_KERNEL(swiglu)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::SwigluParams*>(params);
  const int64_t width = p.out.dim(1);
  each(context, p.out.dim(0), [&](int64_t t) {
    for (int64_t c = 0; c < width; ++c) {
      row(p.out, t)[c] = swiglu(static_cast<double>(row(p.gate, t)[c]), static_cast<double>(row(p.up, t)[c]), static_cast<double>(p.limit));
    }
    LATHE_COUNT(context, kBytesRead, width * 8);
    LATHE_COUNT(context, kBytesWritten, width * 4);
    LATHE_COUNT(context, kFlops, 3 * width);
    LATHE_COUNT(context, kExponentials, width);
    LATHE_COUNT(context, kDivisions, width);
  });
}

}  // namespace lathe::kernels::ref
