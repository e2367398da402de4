// Vision tower: head norms with 2-D rotary embedding, and full attention inside segments.

#include "ops/vision.h"

#include <algorithm>
#include <limits>

#include "kernels/counting.h"
#include "kernels/ref/common.h"
#include "kernels/ref/kernels.h"

namespace lathe::kernels::ref {
namespace {

/// Head h of part 0 (q), 1 (k) or 2 (v) in row t.
float* head(const View& qkv, int64_t t, int64_t part, int64_t h) { return row(qkv, t, part) + h * qkv.step(2); }

void rotate(const ops::VisionRopeParams& p, int64_t t, float* x, const View& weight) {
  const int64_t hd = p.qkv.dim(3);
  const int64_t half = hd / 2;
  double squares = 0;
  for (int64_t d = 0; d < hd; ++d) squares += static_cast<double>(x[d]) * static_cast<double>(x[d]);
  const double factor = 1.0 / std::sqrt(squares / static_cast<double>(hd) + static_cast<double>(p.eps));
  const int32_t* const place = p.positions.i32() + t * p.positions.step(0);
  for (int64_t d = 0; d < half; ++d) {
    const int64_t quarter = half / 2;
    const double frequency = std::pow(10000.0, -2.0 * static_cast<double>(d % quarter) / static_cast<double>(half));
    const double angle = static_cast<double>(d < quarter ? place[0] : place[1]) * frequency;
    const double a = static_cast<double>(x[d]) * factor * at(weight, d);
    const double b = static_cast<double>(x[d + half]) * factor * at(weight, d + half);
    x[d] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
    x[d + half] = static_cast<float>(b * std::cos(angle) + a * std::sin(angle));
  }
}

/// Row t, head h, keys [begin, end).
void attend(const ops::VisionAttendParams& p, int64_t t, int64_t h, int64_t begin, int64_t end) {
  const int64_t hd = p.qkv.dim(3);
  std::vector<double> weights;
  double most = -std::numeric_limits<double>::infinity();
  for (int64_t key = begin; key < end; ++key) {
    double s = 0;
    for (int64_t d = 0; d < hd; ++d) s += static_cast<double>(head(p.qkv, t, 0, h)[d]) * static_cast<double>(head(p.qkv, key, 1, h)[d]);
    weights.push_back(s / std::sqrt(static_cast<double>(hd)));
    most = weights.back() <= most ? most : weights.back();
  }
  double sum = 0;
  for (double& w : weights) sum += w = std::exp(w - most);
  for (int64_t d = 0; d < hd; ++d) {
    double o = 0;
    for (int64_t key = begin; key < end; ++key) o += weights[static_cast<size_t>(key - begin)] * static_cast<double>(head(p.qkv, key, 2, h)[d]);
    row(p.out, t)[h * hd + d] = static_cast<float>(o / sum);
  }
}

}  // namespace

void LATHE_KERNEL(vision_rope)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::VisionRopeParams*>(params);
  const int64_t heads = p.qkv.dim(2);
  const int64_t hd = p.qkv.dim(3);
  LATHE_COUNT(context, kWeightBytes, hd * (size_of(p.q_norm) + size_of(p.k_norm)));
  LATHE_COUNT(context, kBytesRead, hd * (size_of(p.q_norm) + size_of(p.k_norm)));
  each(context, p.qkv.dim(0), [&](int64_t t) {
    for (int64_t h = 0; h < heads; ++h) {
      rotate(p, t, head(p.qkv, t, 0, h), p.q_norm);
      rotate(p, t, head(p.qkv, t, 1, h), p.k_norm);
    }
    LATHE_COUNT(context, kBytesRead, 8 + 2 * heads * hd * 4);
    LATHE_COUNT(context, kBytesWritten, 2 * heads * hd * 4);
    LATHE_COUNT(context, kFlops, 14 * heads * hd);
    LATHE_COUNT(context, kRowsNormalised, 2 * heads);
    LATHE_COUNT(context, kDivisions, 2 * heads);
  });
}

void LATHE_KERNEL(vision_attend)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::VisionAttendParams*>(params);
  const int64_t heads = p.qkv.dim(2);
  LATHE_COUNT(context, kBytesRead, p.segment_begin.dim(0) * 4);
  for (int64_t segment = 0; segment + 1 < p.segment_begin.dim(0); ++segment) {
    const int64_t begin = p.segment_begin.i32()[segment];
    const int64_t end = p.segment_begin.i32()[segment + 1];
    [[maybe_unused]] const int64_t rows = end - begin;
    each(context, end - begin, [&](int64_t i) {
      for (int64_t h = 0; h < heads; ++h) attend(p, begin + i, h, begin, end);
    });
    LATHE_COUNT(context, kBytesRead, rows * 3 * heads * p.qkv.dim(3) * 4);
    LATHE_COUNT(context, kBytesWritten, rows * heads * p.qkv.dim(3) * 4);
    LATHE_COUNT(context, kFlops, 4 * rows * rows * heads * p.qkv.dim(3));
    LATHE_COUNT(context, kExponentials, rows * rows * heads);
    LATHE_COUNT(context, kDivisions, rows * heads);
    LATHE_COUNT(context, kRowsNormalised, rows * heads);
  }
}

}  // namespace lathe::kernels::ref
