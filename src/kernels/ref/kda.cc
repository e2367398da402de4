// Kimi delta attention: convolution, gates, the recurrence as written in the contract, gated norm.

#include "ops/kda.h"

#include <algorithm>

#include "kernels/counting.h"
#include "kernels/ref/common.h"
#include "kernels/ref/head_state.h"
#include "kernels/ref/kernels.h"

namespace lathe::kernels::ref {
namespace {

/// Rows of sequence s for head h.
void recur(const ops::KdaRecurrenceParams& p, int64_t s, int64_t h, const LaunchContext& context) {
  const int64_t keys = p.q.dim(2);
  const int64_t width = p.v.dim(2);
  HeadState state(keys, width);
  HeadState pair_m(p.pair_m.present() ? keys : 0, keys);
  HeadState pair_h(p.pair_m.present() ? keys : 0, width);
  if (p.pair_m.present()) pair_m.identity();
  const int32_t in = p.state_in.i32()[s];
  if (in >= 0) {
    state.load({p.entering, p.entering_scales}, in, h);
    LATHE_COUNT(context, kBytesRead, state.bytes_in({p.entering, p.entering_scales}));
  }
  for (int64_t t = p.batch.begin.i32()[s]; t < p.batch.begin.i32()[s + 1]; ++t) {
    const std::vector<double> q = l2_normalised(row(p.q, t, h), keys, 1.0 / std::sqrt(static_cast<double>(keys)));
    const std::vector<double> k = l2_normalised(row(p.k, t, h), keys, 1.0);
    const float* const g = row(p.g, t) + h * keys;
    const auto beta = static_cast<double>(row(p.beta, t)[h]);
    state.step(g, k, beta, row(p.v, t, h));
    state.read(q, row(p.o, t, h));
    LATHE_COUNT(context, kBytesRead, (3 * keys + width + 1) * 4);
    LATHE_COUNT(context, kBytesWritten, width * 4);
    LATHE_COUNT(context, kFlops, 8 * keys * width + 6 * keys);
    LATHE_COUNT(context, kRowsNormalised, 2);
    LATHE_COUNT(context, kExponentials, keys);
    LATHE_COUNT(context, kDivisions, 2);
    if (const int32_t out = p.state_out.i32()[t]; out >= 0) {
      state.keep({p.states, p.states_scales}, out, h);
      LATHE_COUNT(context, kBytesWritten, state.bytes_in({p.states, p.states_scales}));
    }
    if (!p.pair_m.present()) continue;
    pair_m.step(g, k, beta, nullptr);
    pair_h.step(g, k, beta, row(p.v, t, h));
    LATHE_COUNT(context, kFlops, 6 * keys * (keys + width));
    LATHE_COUNT(context, kExponentials, 2 * keys);
  }
  if (!p.pair_m.present()) return;
  pair_m.store(row(p.pair_m, s, h));
  pair_h.store(row(p.pair_h, s, h));
  LATHE_COUNT(context, kBytesWritten, keys * (keys + width) * 4);
}

}  // namespace

void LATHE_KERNEL(short_conv)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::ShortConvParams*>(params);
  const int64_t channels = p.x.dim(1);
  const int64_t taps = p.weight.dim(0);
  const int64_t ring = p.ring.dim(1);
  LATHE_COUNT(context, kWeightBytes, channels * taps * size_of(p.weight));
  LATHE_COUNT(context, kBytesRead, channels * taps * size_of(p.weight) + (3 * p.batch.sequences() + 1) * 4);
  each(context, p.batch.sequences(), [&](int64_t s) {
    const int64_t begin = p.batch.begin.i32()[s];
    const int64_t end = p.batch.begin.i32()[s + 1];
    const int64_t start = p.batch.start.i32()[s];
    if (begin == end) return;
    const auto ring_index = [&](int64_t position, int64_t c) { return p.slot.i32()[s] * p.ring.step(0) + position % ring * p.ring.step(1) + c; };
    // What the token at `own` reads of `position`: other rows of the step as the ring will keep them.
    const auto raw = [&](int64_t position, int64_t own, int64_t c) -> double {
      if (position < 0) return 0.0;
      if (position < start) return static_cast<double>(tensor::load_as_float(p.ring.dtype, p.ring.data, ring_index(position, c)));
      const float value = row(p.x, begin + position - start)[c];
      if (position == own || p.ring.dtype == DType::kF32) return static_cast<double>(value);
      return static_cast<double>(tensor::bf16_to_float(tensor::float_to_bf16(value)));
    };
    for (int64_t t = begin; t < end; ++t) {
      const int64_t own = start + t - begin;
      for (int64_t c = 0; c < channels; ++c) {
        double z = 0;
        for (int64_t j = 0; j < taps; ++j) z += at(p.weight, j * p.weight.step(0) + c) * raw(own - (taps - 1) + j, own, c);
        row(p.out, t)[c] = static_cast<float>(silu(z));
      }
    }
    const int64_t kept = std::min(ring, end - begin);
    for (int64_t t = end - kept; t < end; ++t) {
      for (int64_t c = 0; c < channels; ++c) tensor::store_from_float(p.ring.dtype, p.ring.data, ring_index(start + t - begin, c), row(p.x, t)[c]);
    }
    LATHE_COUNT(context, kBytesRead, ((end - begin) * 4 + std::min(start, taps - 1) * size_of(p.ring)) * channels);
    LATHE_COUNT(context, kBytesWritten, ((end - begin) * 4 + kept * size_of(p.ring)) * channels);
    LATHE_COUNT(context, kFlops, (end - begin) * channels * (2 * taps + 1));
    LATHE_COUNT(context, kExponentials, (end - begin) * channels);
    LATHE_COUNT(context, kDivisions, (end - begin) * channels);
  });
}

void LATHE_KERNEL(kda_gate)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::KdaGateParams*>(params);
  const int64_t heads = p.beta.dim(1);
  const int64_t keys = heads > 0 ? p.g.dim(1) / heads : 0;
  std::vector<double> rate(static_cast<size_t>(heads));
  for (int64_t h = 0; h < heads; ++h) rate[static_cast<size_t>(h)] = std::exp(at(p.a_log, h));
  [[maybe_unused]] const int64_t weights = heads * size_of(p.a_log) + heads * keys * size_of(p.dt_bias);
  LATHE_COUNT(context, kWeightBytes, weights);
  LATHE_COUNT(context, kBytesRead, weights);
  LATHE_COUNT(context, kExponentials, heads);
  each(context, p.g.dim(0), [&](int64_t t) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t c = h * keys; c < (h + 1) * keys; ++c) {
        const double a = static_cast<double>(row(p.a, t)[c]) + at(p.dt_bias, c);
        const double softplus = a > 20.0 ? a : std::log1p(std::exp(a));
        const double r = rate[static_cast<size_t>(h)];
        row(p.g, t)[c] = static_cast<float>(p.bounded ? static_cast<double>(p.lower_bound) * sigmoid(r * a) : -r * softplus);
      }
      row(p.beta, t)[h] = static_cast<float>(sigmoid(static_cast<double>(row(p.b, t)[h])));
    }
    LATHE_COUNT(context, kBytesRead, heads * (keys + 1) * 4);
    LATHE_COUNT(context, kBytesWritten, heads * (keys + 1) * 4);
    LATHE_COUNT(context, kFlops, 3 * heads * keys);
    LATHE_COUNT(context, kExponentials, heads * (keys + 1));
    LATHE_COUNT(context, kDivisions, heads * ((p.bounded ? keys : 0) + 1));
  });
}

void LATHE_KERNEL(kda_recurrence)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::KdaRecurrenceParams*>(params);
  const int64_t heads = p.q.dim(1);
  LATHE_COUNT(context, kBytesRead, (3 * p.batch.sequences() + 1 + p.q.dim(0)) * 4);
  each(context, p.batch.sequences() * heads, [&](int64_t task) { recur(p, task / heads, task % heads, context); });
}

void LATHE_KERNEL(gated_norm)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::GatedNormParams*>(params);
  const int64_t heads = p.o.dim(1);
  const int64_t width = p.o.dim(2);
  LATHE_COUNT(context, kWeightBytes, width * size_of(p.weight));
  LATHE_COUNT(context, kBytesRead, width * size_of(p.weight));
  each(context, p.o.dim(0) * heads, [&](int64_t task) {
    const int64_t t = task / heads;
    const int64_t h = task % heads;
    const float* const o = row(p.o, t, h);
    double squares = 0;
    for (int64_t c = 0; c < width; ++c) squares += static_cast<double>(o[c]) * static_cast<double>(o[c]);
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(width) + static_cast<double>(p.eps));
    for (int64_t c = 0; c < width; ++c) {
      const double gate = sigmoid(static_cast<double>(row(p.gate, t)[h * width + c]));
      row(p.out, t)[h * width + c] = static_cast<float>(static_cast<double>(o[c]) * factor * at(p.weight, c) * gate);
    }
    LATHE_COUNT(context, kBytesRead, width * 8);
    LATHE_COUNT(context, kBytesWritten, width * 4);
    LATHE_COUNT(context, kFlops, 5 * width);
    LATHE_COUNT(context, kRowsNormalised, 1);
    LATHE_COUNT(context, kExponentials, width);
    LATHE_COUNT(context, kDivisions, width + 1);
  });
}

}  // namespace lathe::kernels::ref
