// Latent attention: absorb, attend, unabsorb, and the expanded form.

#include "ops/mla.h"

#include <algorithm>
#include <limits>

#include "kernels/counting.h"
#include "kernels/ref/common.h"
#include "kernels/ref/kernels.h"

namespace lathe::kernels::ref {
namespace {

/// Rows [first, first + count) of kv_b as doubles.
std::vector<double> head_rows(const ops::KvB& kv_b, int64_t first, int64_t count, ops::Compute compute, const LaunchContext& context) {
  const int64_t width = kv_b.matrix.cols();
  std::vector<double> out(static_cast<size_t>(count * width));
  for (int64_t r = 0; r < count; ++r) weight_row(kv_b.matrix, first + r, compute, out.data() + r * width);
  [[maybe_unused]] const int64_t read = tensor::slice_matrix(kv_b.matrix, {first, first + count}, {0, width}).bytes();
  LATHE_COUNT(context, kWeightBytes, read);
  LATHE_COUNT(context, kBytesRead, read);
  return out;
}

/// Positions that row t attends to, ascending.
std::vector<int64_t> keys_of_row(const ops::Selection& selection, int64_t t, int64_t position) {
  std::vector<int64_t> keys;
  const int32_t* const pools = selection.pools.i32() + t * selection.pools.step(0);
  for (int64_t i = 0; i < selection.pools.dim(1); ++i) {
    for (int64_t j = 0; pools[i] >= 0 && j < selection.kpool; ++j) keys.push_back(int64_t{pools[i]} * selection.kpool + j);
  }
  int64_t tail = (position + 1) / selection.kpool * selection.kpool;
  if (selection.tail_begin.present()) tail = selection.tail_begin.i32()[t];
  for (; tail <= position; ++tail) keys.push_back(tail);
  return keys;
}

/// Turns scores into weights exp(s − max); returns {max, sum}, max rounded to float first so that stored pairs fit together.
std::pair<float, double> soften(std::vector<double>& scores) {
  double most = -std::numeric_limits<double>::infinity();
  for (const double s : scores) most = s <= most ? most : s;  // NaN goes on
  const auto stored = static_cast<float>(most);
  double sum = 0;
  for (double& s : scores) sum += s = std::exp(s - static_cast<double>(stored));
  return {stored, sum};
}

void attend_row(const ops::MlaAttendParams& p, int64_t t, int64_t s, const LaunchContext& context) {
  const int64_t width = p.q.dim(2);
  const std::vector<int64_t> keys = keys_of_row(p.selection, t, position_of(p.batch, s, t));
  std::vector<std::vector<double>> latents;
  for (const int64_t position : keys) latents.push_back(load_row(p.latents, paged_row(p.latents, s, position)));
  LATHE_COUNT(context, kBytesRead, static_cast<int64_t>(keys.size()) * paged_row_bytes(p.latents));
  for (int64_t h = 0; h < p.q.dim(1); ++h) {
    const std::vector<double> q(row(p.q, t, h), row(p.q, t, h) + width);
    std::vector<double> weights;
    for (const std::vector<double>& latent : latents) weights.push_back(static_cast<double>(p.scale) * dot(q.data(), latent.data(), width));
    const auto [most, sum] = soften(weights);
    for (int64_t c = 0; c < width; ++c) {
      double z = 0;
      for (size_t i = 0; i < weights.size(); ++i) z += weights[i] * latents[i][static_cast<size_t>(c)];
      row(p.out, t, h)[c] = weights.empty() ? 0.0f : static_cast<float>(z / sum);
    }
    if (p.row_max.present()) row(p.row_max, t)[h] = most;
    if (p.row_sum.present()) row(p.row_sum, t)[h] = static_cast<float>(sum);
    LATHE_COUNT(context, kBytesRead, width * 4);
    LATHE_COUNT(context, kBytesWritten, width * 4 + (p.row_max.present() ? 4 : 0) + (p.row_sum.present() ? 4 : 0));
    LATHE_COUNT(context, kFlops, static_cast<int64_t>(keys.size()) * 4 * width);
    LATHE_COUNT(context, kExponentials, keys.size());
    LATHE_COUNT(context, kDivisions, 1);
    LATHE_COUNT(context, kRowsNormalised, 1);
  }
}

/// Keys and values of one head and sequence, made when first asked for.
class ExpandedHead {
 public:
  ExpandedHead(const ops::MlaExpandedParams& p, int64_t s, int64_t h, const LaunchContext& context)
      : p_(p), s_(s), context_(context), rows_(p.kv_b.nope + p.kv_b.value), matrix_(head_rows(p.kv_b, h * rows_, rows_, p.compute, context)) {}

  /// k (nope floats), then v (value floats) of the token at `position`.
  const float* at(int64_t position) {
    if (static_cast<size_t>(position) >= tokens_.size()) tokens_.resize(static_cast<size_t>(position) + 1);
    std::vector<float>& token = tokens_[static_cast<size_t>(position)];
    if (!token.empty()) return token.data();
    const int64_t width = p_.kv_b.matrix.cols();
    std::vector<double> latent = load_row(p_.latents, paged_row(p_.latents, s_, position));
    if (!p_.latents.scales.present()) {
      for (double& c : latent) c = activation(static_cast<float>(c), p_.compute);
    }
    for (int64_t r = 0; r < rows_; ++r) token.push_back(static_cast<float>(dot(latent.data(), matrix_.data() + r * width, width)));
    LATHE_COUNT(context_, kFlops, 2 * rows_ * width);
    LATHE_COUNT(context_, kBytesRead, paged_row_bytes(p_.latents));
    return token.data();
  }

 private:
  const ops::MlaExpandedParams& p_;
  int64_t s_;
  [[maybe_unused]] const LaunchContext& context_;
  int64_t rows_;
  std::vector<double> matrix_;
  std::vector<std::vector<float>> tokens_;
};

void attend_expanded(const ops::MlaExpandedParams& p, int64_t s, int64_t h, const LaunchContext& context) {
  const int64_t nope = p.kv_b.nope;
  const int64_t value = p.kv_b.value;
  if (p.batch.begin.i32()[s] == p.batch.begin.i32()[s + 1]) return;
  ExpandedHead head(p, s, h, context);
  for (int64_t t = p.batch.begin.i32()[s]; t < p.batch.begin.i32()[s + 1]; ++t) {
    const std::vector<int64_t> keys = keys_of_row(p.selection, t, position_of(p.batch, s, t));
    std::vector<double> weights;
    for (const int64_t position : keys) {
      const float* const k = head.at(position);
      double product = 0;
      for (int64_t c = 0; c < nope; ++c) product += static_cast<double>(row(p.q, t, h)[c]) * static_cast<double>(k[c]);
      weights.push_back(static_cast<double>(p.scale) * product);
    }
    const double sum = soften(weights).second;
    for (int64_t c = 0; c < value; ++c) {
      double o = 0;
      for (size_t i = 0; i < weights.size(); ++i) o += weights[i] * static_cast<double>(head.at(keys[i])[nope + c]);
      row(p.out, t, h)[c] = weights.empty() ? 0.0f : static_cast<float>(o / sum);
    }
    LATHE_COUNT(context, kBytesRead, nope * 4);
    LATHE_COUNT(context, kBytesWritten, value * 4);
    LATHE_COUNT(context, kFlops, static_cast<int64_t>(keys.size()) * 2 * (nope + value));
    LATHE_COUNT(context, kExponentials, keys.size());
    LATHE_COUNT(context, kDivisions, 1);
    LATHE_COUNT(context, kRowsNormalised, 1);
  }
}

}  // namespace

void LATHE_KERNEL(mla_absorb)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::MlaAbsorbParams*>(params);
  const int64_t nope = p.kv_b.nope;
  const int64_t width = p.kv_b.matrix.cols();
  if (p.q.dim(0) == 0) return;
  each(context, p.q.dim(1), [&](int64_t h) {
    const std::vector<double> matrix = head_rows(p.kv_b, h * (nope + p.kv_b.value), nope, p.compute, context);
    for (int64_t t = 0; t < p.q.dim(0); ++t) {
      for (int64_t c = 0; c < width; ++c) {
        double sum = 0;
        for (int64_t r = 0; r < nope; ++r) sum += activation(row(p.q, t, h)[r], p.compute) * matrix[static_cast<size_t>(r * width + c)];
        row(p.out, t, h)[c] = static_cast<float>(sum);
      }
      LATHE_COUNT(context, kBytesRead, nope * 4);
      LATHE_COUNT(context, kBytesWritten, width * 4);
      LATHE_COUNT(context, kFlops, 2 * nope * width);
    }
  });
}

void LATHE_KERNEL(mla_attend)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::MlaAttendParams*>(params);
  const std::vector<int32_t> sequence = sequence_of_rows(p.batch);
  LATHE_COUNT(context, kBytesRead, (2 * p.batch.sequences() + 1 + p.selection.pools.elements() + p.latents.table.elements()) * 4);
  LATHE_COUNT(context, kBytesRead, p.selection.tail_begin.elements() * 4);
  each(context, p.q.dim(0), [&](int64_t t) { attend_row(p, t, sequence[static_cast<size_t>(t)], context); });
}

void LATHE_KERNEL(mla_unabsorb)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::MlaUnabsorbParams*>(params);
  const int64_t value = p.kv_b.value;
  const int64_t width = p.kv_b.matrix.cols();
  if (p.z.dim(0) == 0) return;
  each(context, p.z.dim(1), [&](int64_t h) {
    const std::vector<double> matrix = head_rows(p.kv_b, h * (p.kv_b.nope + value) + p.kv_b.nope, value, p.compute, context);
    std::vector<double> z(static_cast<size_t>(width));
    for (int64_t t = 0; t < p.z.dim(0); ++t) {
      for (int64_t c = 0; c < width; ++c) z[static_cast<size_t>(c)] = activation(row(p.z, t, h)[c], p.compute);
      for (int64_t r = 0; r < value; ++r) row(p.out, t, h)[r] = static_cast<float>(dot(z.data(), matrix.data() + r * width, width));
      LATHE_COUNT(context, kBytesRead, width * 4);
      LATHE_COUNT(context, kBytesWritten, value * 4);
      LATHE_COUNT(context, kFlops, 2 * value * width);
    }
  });
}

void LATHE_KERNEL(mla_expanded)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::MlaExpandedParams*>(params);
  const int64_t heads = p.q.dim(1);
  LATHE_COUNT(context, kBytesRead, (2 * p.batch.sequences() + 1 + p.selection.pools.elements() + p.latents.table.elements()) * 4);
  LATHE_COUNT(context, kBytesRead, p.selection.tail_begin.elements() * 4);
  each(context, p.batch.sequences() * heads, [&](int64_t task) { attend_expanded(p, task / heads, task % heads, context); });
}

}  // namespace lathe::kernels::ref
