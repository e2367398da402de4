// Latent rows, pooled index keys, and the choice of pools.

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "kernels/counting.h"
#include "kernels/ref/common.h"
#include "kernels/ref/kernels.h"
#include "ops/mla.h"

namespace lathe::kernels::ref {
namespace {

/// LayerNorm of one raw key, as floats.
std::vector<float> normalised_key(const ops::IndexKeysParams& p, int64_t t) {
  const int64_t width = p.k.dim(1);
  const float* const k = row(p.k, t);
  double sum = 0;
  for (int64_t c = 0; c < width; ++c) sum += static_cast<double>(k[c]);
  const double mean = sum / static_cast<double>(width);
  double squares = 0;
  for (int64_t c = 0; c < width; ++c) squares += (static_cast<double>(k[c]) - mean) * (static_cast<double>(k[c]) - mean);
  const double factor = 1.0 / std::sqrt(squares / static_cast<double>(width) + static_cast<double>(p.eps));
  std::vector<float> out(static_cast<size_t>(width));
  for (int64_t c = 0; c < width; ++c) {
    out[static_cast<size_t>(c)] = static_cast<float>((static_cast<double>(k[c]) - mean) * factor * at(p.norm_weight, c) + at(p.norm_bias, c));
  }
  return out;
}

/// Σ_j softmax_j(gate_j + ape_j) · k_j of one channel. keys and gates: one pointer per token of the pool.
float pooled(const ops::IndexKeysParams& p, const std::vector<const float*>& keys, const std::vector<const float*>& gates, int64_t c) {
  const auto tokens = static_cast<int64_t>(keys.size());
  const auto gate = [&](int64_t j) { return static_cast<double>(gates[static_cast<size_t>(j)][c]) + at(p.ape, j * p.ape.step(0) + c); };
  double most = gate(0);
  for (int64_t j = 1; j < tokens; ++j) most = std::max(most, gate(j));
  double sum = 0;
  double key = 0;
  for (int64_t j = 0; j < tokens; ++j) {
    const double weight = std::exp(gate(j) - most);
    sum += weight;
    key += weight * static_cast<double>(keys[static_cast<size_t>(j)][c]);
  }
  return static_cast<float>(key / sum);
}

void index_sequence(const ops::IndexKeysParams& p, int64_t s, const LaunchContext& context) {
  const int64_t begin = p.batch.begin.i32()[s];
  const int64_t end = p.batch.begin.i32()[s + 1];
  const int64_t start = p.batch.start.i32()[s];
  const int64_t width = p.k.dim(1);
  const int64_t pool = p.ape.dim(0);
  const int64_t ring = p.ring.dim(1);
  const auto ring_row = [&](int64_t position) { return row(p.ring, p.slot.i32()[s]) + position % ring * p.ring.step(1); };  // key, then gate
  std::vector<std::vector<float>> fresh;
  for (int64_t t = begin; t < end; ++t) fresh.push_back(normalised_key(p, t));
  LATHE_COUNT(context, kRowsNormalised, end - begin);
  LATHE_COUNT(context, kDivisions, end - begin);
  LATHE_COUNT(context, kFlops, 7 * (end - begin) * width);
  LATHE_COUNT(context, kBytesRead, (end - begin) * width * 8);
  for (int64_t q = start / pool; (q + 1) * pool <= start + end - begin; ++q) {
    std::vector<const float*> keys;
    std::vector<const float*> gates;
    for (int64_t position = q * pool; position < (q + 1) * pool; ++position) {
      if (position < start) {
        keys.push_back(ring_row(position));
        gates.push_back(ring_row(position) + p.ring.step(2));
        LATHE_COUNT(context, kBytesRead, 2 * width * 4);
      } else {
        keys.push_back(fresh[static_cast<size_t>(position - start)].data());
        gates.push_back(row(p.gate, begin + position - start));
      }
    }
    std::vector<float> key;
    for (int64_t c = 0; c < width; ++c) key.push_back(pooled(p, keys, gates, c));
    store_row(p.keys, paged_row(p.keys, s, q), key.data());
    LATHE_COUNT(context, kBytesWritten, paged_row_bytes(p.keys));
    LATHE_COUNT(context, kFlops, 5 * pool * width);
    LATHE_COUNT(context, kExponentials, pool * width);
    LATHE_COUNT(context, kDivisions, width);
  }
  for (int64_t t = std::max(begin, end - ring); t < end; ++t) {
    float* const to = ring_row(start + t - begin);
    std::copy_n(fresh[static_cast<size_t>(t - begin)].begin(), width, to);
    std::copy_n(row(p.gate, t), width, to + p.ring.step(2));
    LATHE_COUNT(context, kBytesWritten, 2 * width * 4);
  }
}

/// score(p) for one row; NaN is kept.
float score(const ops::IndexSelectParams& p, int64_t t, int64_t s, int64_t pool) {
  const int64_t heads = p.q.dim(1);
  const int64_t width = p.q.dim(2);
  const std::vector<double> key = load_row(p.keys, paged_row(p.keys, s, pool));
  double total = 0;
  for (int64_t h = 0; h < heads; ++h) {
    double product = 0;
    for (int64_t c = 0; c < width; ++c) {
      product += static_cast<double>(row(p.q, t, h)[c]) * key[static_cast<size_t>(c)];
    }
    product /= std::sqrt(static_cast<double>(width));
    total += static_cast<double>(row(p.weights, t)[h]) / std::sqrt(static_cast<double>(heads)) * (product < 0.0 ? 0.0 : product);
  }
  return static_cast<float>(total);
}

}  // namespace

void LATHE_KERNEL(write_latents)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::WriteLatentsParams*>(params);
  const int64_t width = p.x.dim(1);
  const std::vector<int32_t> sequence = sequence_of_rows(p.batch);
  LATHE_COUNT(context, kBytesRead, (2 * p.batch.sequences() + 1) * 4);
  each(context, p.x.dim(0), [&](int64_t t) {
    const int64_t s = sequence[static_cast<size_t>(t)];
    store_row(p.pool, paged_row(p.pool, s, position_of(p.batch, s, t)), row(p.x, t));
    LATHE_COUNT(context, kBytesRead, width * 4);
    LATHE_COUNT(context, kBytesWritten, paged_row_bytes(p.pool));
  });
}

void LATHE_KERNEL(index_keys)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::IndexKeysParams*>(params);
  [[maybe_unused]] const int64_t weights = p.k.dim(1) * (size_of(p.norm_weight) + size_of(p.norm_bias) + p.ape.dim(0) * size_of(p.ape));
  LATHE_COUNT(context, kWeightBytes, weights);
  LATHE_COUNT(context, kBytesRead, weights + (3 * p.batch.sequences() + 1) * 4);
  each(context, p.batch.sequences(), [&](int64_t s) { index_sequence(p, s, context); });
}

void LATHE_KERNEL(index_select)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::IndexSelectParams*>(params);
  const int64_t most = p.selection.dim(1);
  const std::vector<int32_t> sequence = sequence_of_rows(p.batch);
  LATHE_COUNT(context, kBytesRead, (2 * p.batch.sequences() + 1) * 4);
  each(context, p.q.dim(0), [&](int64_t t) {
    const int64_t s = sequence[static_cast<size_t>(t)];
    const int64_t pools = (position_of(p.batch, s, t) + 1) / p.kpool;
    int32_t* const selection = p.selection.i32() + t * p.selection.step(0);
    std::vector<int32_t> chosen(static_cast<size_t>(pools));
    for (int64_t i = 0; i < pools; ++i) chosen[static_cast<size_t>(i)] = static_cast<int32_t>(i);
    if (pools > most || p.scores.present()) {
      std::vector<float> scores(static_cast<size_t>(pools));
      for (int64_t i = 0; i < pools; ++i) scores[static_cast<size_t>(i)] = score(p, t, s, i);
      LATHE_COUNT(context, kBytesRead, p.q.dim(1) * (p.q.dim(2) + 1) * 4 + pools * paged_row_bytes(p.keys));
      LATHE_COUNT(context, kFlops, pools * p.q.dim(1) * (2 * p.q.dim(2) + 2));
      if (p.scores.present()) {
        LATHE_CHECK(pools <= p.scores.dim(1), "{} pools, room for {} scores", pools, p.scores.dim(1));
        std::fill_n(row(p.scores, t), p.scores.dim(1), -std::numeric_limits<float>::infinity());
        std::copy(scores.begin(), scores.end(), row(p.scores, t));
        LATHE_COUNT(context, kBytesWritten, p.scores.dim(1) * 4);
      }
      std::sort(chosen.begin(), chosen.end(), [&](int32_t a, int32_t b) {
        const float sa = scores[static_cast<size_t>(a)];
        const float sb = scores[static_cast<size_t>(b)];
        if (std::isnan(sa) != std::isnan(sb)) return std::isnan(sb);
        return sa > sb || (!(sb > sa) && a < b);  // ties, NaN too: the lower pool
      });
      chosen.resize(static_cast<size_t>(std::min(pools, most)));
      std::sort(chosen.begin(), chosen.end());
    }
    for (int64_t i = 0; i < most; ++i) selection[i] = i < static_cast<int64_t>(chosen.size()) ? chosen[static_cast<size_t>(i)] : -1;
    LATHE_COUNT(context, kBytesWritten, most * 4);
  });
}

}  // namespace lathe::kernels::ref
