// Hyper-connections: token by token.

#include "ops/mhc.h"

#include "kernels/counting.h"
#include "kernels/ref/common.h"
#include "kernels/ref/kernels.h"

namespace lathe::kernels::ref {
namespace {

/// Softmax of each row (source) over its destinations, then alternating divisions by column and row sums.
void sinkhorn(std::vector<double>& c, int64_t s, int32_t iterations, double hc_eps) {
  const auto cell = [&](int64_t a, int64_t b) -> double& { return c[static_cast<size_t>(a * s + b)]; };
  for (int64_t a = 0; a < s; ++a) {
    double most = cell(a, 0);
    for (int64_t b = 1; b < s; ++b) most = std::max(most, cell(a, b));
    double sum = 0;
    for (int64_t b = 0; b < s; ++b) sum += cell(a, b) = std::exp(cell(a, b) - most);
    for (int64_t b = 0; b < s; ++b) cell(a, b) = cell(a, b) / sum + hc_eps;
  }
  for (int32_t i = 0; i < 2 * iterations - 1; ++i) {
    const bool columns = i % 2 == 0;  // the first and the last pass are columns
    for (int64_t fixed = 0; fixed < s; ++fixed) {
      double sum = 0;
      for (int64_t j = 0; j < s; ++j) sum += columns ? cell(j, fixed) : cell(fixed, j);
      for (int64_t j = 0; j < s; ++j) (columns ? cell(j, fixed) : cell(fixed, j)) /= sum + hc_eps;
    }
  }
}

/// fn with its rows as doubles, [2S + S², S·D].
std::vector<double> whole_matrix(const MatrixView& m) {
  std::vector<double> out(static_cast<size_t>(m.rows() * m.cols()));
  for (int64_t r = 0; r < m.rows(); ++r) weight_row(m, r, ops::Compute::kF32, out.data() + r * m.cols());
  return out;
}

}  // namespace

void LATHE_KERNEL(mhc_in)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::MhcInParams*>(params);
  const int64_t s = p.streams.dim(1);
  const int64_t d = p.streams.dim(2);
  if (p.streams.dim(0) == 0) return;
  const std::vector<double> fn = whole_matrix(p.fn);
  [[maybe_unused]] const int64_t weights = p.fn.bytes() + p.fn.rows() * size_of(p.base) + 3 * size_of(p.scale);
  LATHE_COUNT(context, kWeightBytes, weights);
  LATHE_COUNT(context, kBytesRead, weights);
  each(context, p.streams.dim(0), [&](int64_t t) {
    std::vector<double> f(static_cast<size_t>(s * d));
    double squares = 0;
    for (int64_t i = 0; i < s * d; ++i) {
      const auto value = static_cast<double>(row(p.streams, t, i / d)[i % d]);
      f[static_cast<size_t>(i)] = value;
      squares += value * value;
    }
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(s * d) + static_cast<double>(p.eps));
    std::vector<double> m(static_cast<size_t>(p.fn.rows()));
    for (int64_t i = 0; i < p.fn.rows(); ++i) {
      const int64_t third = i < s ? 0 : (i < 2 * s ? 1 : 2);
      m[static_cast<size_t>(i)] = dot(fn.data() + i * s * d, f.data(), s * d) * factor * at(p.scale, third) + at(p.base, i);
    }
    const auto hc_eps = static_cast<double>(p.hc_eps);
    std::vector<double> pre(static_cast<size_t>(s));
    for (int64_t i = 0; i < s; ++i) {
      pre[static_cast<size_t>(i)] = sigmoid(m[static_cast<size_t>(i)]) + hc_eps;
      row(p.post, t)[i] = static_cast<float>(2.0 * sigmoid(m[static_cast<size_t>(s + i)]));
    }
    std::vector<double> comb(m.begin() + 2 * s, m.end());
    sinkhorn(comb, s, p.iterations, hc_eps);
    for (int64_t i = 0; i < s * s; ++i) row(p.comb, t)[i] = static_cast<float>(comb[static_cast<size_t>(i)]);
    for (int64_t c = 0; c < d; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < s; ++i) sum += pre[static_cast<size_t>(i)] * f[static_cast<size_t>(i * d + c)];
      row(p.x, t)[c] = static_cast<float>(sum);
    }
    [[maybe_unused]] const int64_t passes = 2 * int64_t{p.iterations};
    LATHE_COUNT(context, kBytesRead, (p.streams.step(1) == 0 ? 1 : s) * d * 4);
    LATHE_COUNT(context, kBytesWritten, (d + s + s * s) * 4);
    LATHE_COUNT(context, kFlops, 2 * p.fn.rows() * s * d + 4 * s * d + 3 * p.fn.rows() + 2 * s * s * passes);
    LATHE_COUNT(context, kRowsNormalised, 1);
    LATHE_COUNT(context, kExponentials, p.fn.rows());
    LATHE_COUNT(context, kDivisions, 1 + 2 * s + s * s * passes);
  });
}

void LATHE_KERNEL(mhc_out)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::MhcOutParams*>(params);
  const int64_t s = p.streams.dim(1);
  const int64_t d = p.streams.dim(2);
  each(context, p.streams.dim(0), [&](int64_t t) {
    std::vector<double> before(static_cast<size_t>(s));  // out may be the streams: a channel is read before it is written
    for (int64_t c = 0; c < d; ++c) {
      for (int64_t a = 0; a < s; ++a) before[static_cast<size_t>(a)] = static_cast<double>(row(p.streams, t, a)[c]);
      for (int64_t b = 0; b < s; ++b) {
        double sum = static_cast<double>(row(p.post, t)[b]) * static_cast<double>(row(p.y, t)[c]);
        for (int64_t a = 0; a < s; ++a) sum += static_cast<double>(row(p.comb, t)[a * s + b]) * before[static_cast<size_t>(a)];
        row(p.out, t, b)[c] = static_cast<float>(sum);
      }
    }
    LATHE_COUNT(context, kBytesRead, ((p.streams.step(1) == 0 ? 1 : s) * d + d + s + s * s) * 4);
    LATHE_COUNT(context, kBytesWritten, s * d * 4);
    LATHE_COUNT(context, kFlops, s * d * (2 * s + 1));
  });
}

void LATHE_KERNEL(stream_mean)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::StreamMeanParams*>(params);
  const int64_t s = p.streams.dim(1);
  const int64_t d = p.streams.dim(2);
  each(context, p.streams.dim(0), [&](int64_t t) {
    for (int64_t c = 0; c < d; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < s; ++i) sum += static_cast<double>(row(p.streams, t, i)[c]);
      row(p.out, t)[c] = static_cast<float>(sum / static_cast<double>(s));
    }
    LATHE_COUNT(context, kBytesRead, (p.streams.step(1) == 0 ? 1 : s) * d * 4);
    LATHE_COUNT(context, kBytesWritten, d * 4);
    LATHE_COUNT(context, kFlops, s * d);
  });
}

}  // namespace lathe::kernels::ref
