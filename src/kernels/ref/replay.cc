// Replay decoding: rows over a checkpoint and a ring, and the fold that moves the checkpoint.

#include "base/check.h"
#include "kernels/counting.h"
#include "kernels/ref/head_state.h"
#include "kernels/ref/kernels.h"
#include "ops/kda_replay.h"

namespace lathe::kernels::ref {
namespace {

size_t size(int64_t n) { return static_cast<size_t>(n); }

/// The ring rows of one sequence and head.
class HeadRing {
 public:
  HeadRing(const ops::ReplayRing& ring, int64_t slot, int64_t h) : ring_(ring), slot_(slot), h_(h) {}

  double key(int64_t position, int64_t c) const { return load(ring_.keys, position, c); }
  double value(int64_t position, int64_t j) const { return load(ring_.values, position, j); }
  float decay(int64_t position, int64_t c) const { return ring_.decay.f32()[index(ring_.decay, position, c)]; }
  void put(int64_t position, const std::vector<double>& key, const std::vector<float>& value, const std::vector<float>& decay) const {
    for (size_t c = 0; c < key.size(); ++c) {
      const auto at = static_cast<int64_t>(c);
      tensor::store_from_float(ring_.keys.dtype, ring_.keys.data, index(ring_.keys, position, at), static_cast<float>(key[c]));
      ring_.decay.f32()[index(ring_.decay, position, at)] = decay[c];
    }
    for (size_t j = 0; j < value.size(); ++j) {
      tensor::store_from_float(ring_.values.dtype, ring_.values.data, index(ring_.values, position, static_cast<int64_t>(j)), value[j]);
    }
  }
  /// Σ_c x[c] k̃[c] of one entry.
  double match(int64_t position, const std::vector<double>& x) const {
    double sum = 0;
    for (size_t c = 0; c < x.size(); ++c) sum += x[c] * key(position, static_cast<int64_t>(c));
    return sum;
  }

 private:
  int64_t index(const View& view, int64_t position, int64_t at) const {
    return slot_ * view.step(0) + position % view.dim(1) * view.step(1) + h_ * view.step(2) + at;
  }
  double load(const View& view, int64_t position, int64_t at) const {
    return static_cast<double>(tensor::load_as_float(view.dtype, view.data, index(view, position, at)));
  }

  const ops::ReplayRing& ring_;
  int64_t slot_, h_;
};

/// Moves the state from `begin` to `end` by the ring's entries; decay: that of the last one. f32, not yet rounded to a narrower format.
void fold(HeadState& state, const HeadRing& ring, int64_t begin, int64_t end, const std::vector<float>& decay) {
  for (int64_t c = 0; c < state.keys(); ++c) {
    const auto g = static_cast<double>(decay[size(c)]);
    const double loss = std::expm1(g), grown = std::exp(g);  // not 1 + loss: entries as large as e^80 meet it
    for (int64_t j = 0; j < state.width(); ++j) {
      double added = 0;
      for (int64_t p = begin; p < end; ++p) added += ring.key(p, c) * ring.value(p, j);
      const auto s = static_cast<double>(state.at(c, j));
      state.at(c, j) = static_cast<float>(s + loss * s + grown * added);
    }
  }
}

/// The rows of sequence s for head h.
class Window {
 public:
  Window(const ops::KdaVerifyParams& p, int64_t s, int64_t h)
      : p_(p), s_(s), h_(h), keys_(p.q.dim(2)), width_(p.v.dim(2)), ring_(p.ring, p.slot.i32()[s], h), state_(keys_, width_), decay_(size(keys_)) {}

  void run(const LaunchContext& context) {
    const int32_t row_of_state = p_.state.i32()[s_];
    const int64_t begin = p_.batch.begin.i32()[s_], end = p_.batch.begin.i32()[s_ + 1], start = p_.batch.start.i32()[s_];
    if (begin == end) return;
    checkpoint_ = p_.checkpoint.i32()[s_];
    LATHE_CHECK(0 <= checkpoint_ && checkpoint_ <= start, "checkpoint {} of a window at {}", checkpoint_, start);
    const StatePool pool{p_.states, p_.states_scales};
    if (row_of_state >= 0) state_.load(pool, row_of_state, h_);
    [[maybe_unused]] const int64_t entry = keys_ * size_of(p_.ring.keys) + width_ * size_of(p_.ring.values);
    LATHE_COUNT(context, kBytesRead,
                (row_of_state >= 0 ? state_.bytes_in(pool) : 0) + (start - checkpoint_) * entry + (start > checkpoint_ ? keys_ * 4 : 0));
    for (int64_t c = 0; start > checkpoint_ && c < keys_; ++c) decay_[size(c)] = ring_.decay(start - 1, c);
    for (int64_t t = begin; t < end; ++t) {
      [[maybe_unused]] const int64_t entries = token(t, start + t - begin);
      LATHE_COUNT(context, kBytesRead, (3 * keys_ + width_ + 1) * 4);
      LATHE_COUNT(context, kBytesWritten, entry + keys_ * 4 + width_ * 4);
      LATHE_COUNT(context, kFlops, 4 * keys_ * width_ + entries * 4 * (keys_ + width_) + 12 * keys_ + 4 * width_);
      LATHE_COUNT(context, kRowsNormalised, 2);
      LATHE_COUNT(context, kExponentials, 2 * keys_);
      LATHE_COUNT(context, kDivisions, 2);
    }
  }

 private:
  /// Returns how many entries it read.
  int64_t token(int64_t t, int64_t position) {
    if (p_.fold.i32()[t] != 0 && position > checkpoint_) {
      fold(state_, ring_, checkpoint_, position, decay_);
      state_.round(p_.states.dtype);
      checkpoint_ = position;
      std::fill(decay_.begin(), decay_.end(), 0.0f);
    }
    LATHE_CHECK(position - checkpoint_ < p_.ring.keys.dim(1), "{} tokens since the checkpoint in a ring of {}", position - checkpoint_ + 1,
                p_.ring.keys.dim(1));
    const std::vector<double> q = l2_normalised(row(p_.q, t, h_), keys_, 1.0 / std::sqrt(static_cast<double>(keys_)));
    const std::vector<double> k = l2_normalised(row(p_.k, t, h_), keys_, 1.0);
    std::vector<double> q_hat(size(keys_)), k_hat(size(keys_)), stored(size(keys_));
    double qk = 0;
    for (size_t c = 0; c < k.size(); ++c) {
      decay_[c] += row(p_.g, t)[h_ * keys_ + static_cast<int64_t>(c)];
      const double grown = std::exp(static_cast<double>(decay_[c]));
      q_hat[c] = q[c] * grown, k_hat[c] = k[c] * grown, stored[c] = k[c] * std::exp(-static_cast<double>(decay_[c]));
      qk += q[c] * k[c];
    }
    std::vector<double> a(size(width_)), b(size(width_));
    for (int64_t c = 0; c < keys_; ++c) {
      for (int64_t j = 0; j < width_; ++j) {
        const auto s = static_cast<double>(state_.at(c, j));
        a[size(j)] += s * k_hat[size(c)], b[size(j)] += s * q_hat[size(c)];
      }
    }
    for (int64_t p = checkpoint_; p < position; ++p) {
      const double to_a = ring_.match(p, k_hat), to_b = ring_.match(p, q_hat);
      for (int64_t j = 0; j < width_; ++j) a[size(j)] += to_a * ring_.value(p, j), b[size(j)] += to_b * ring_.value(p, j);
    }
    std::vector<float> u(size(width_));
    const auto beta = static_cast<double>(row(p_.beta, t)[h_]);
    for (size_t j = 0; j < u.size(); ++j) {
      u[j] = static_cast<float>(beta * (static_cast<double>(row(p_.v, t, h_)[j]) - a[j]));
      row(p_.o, t, h_)[j] = static_cast<float>(b[j] + qk * static_cast<double>(u[j]));
    }
    ring_.put(position, stored, u, decay_);
    return position - checkpoint_;
  }

  const ops::KdaVerifyParams& p_;
  int64_t s_, h_, keys_, width_;
  HeadRing ring_;
  HeadState state_;
  std::vector<float> decay_;
  int64_t checkpoint_ = 0;
};

void flush(const ops::KdaFlushParams& p, int64_t s, int64_t h, const LaunchContext& context) {
  const int32_t in = p.state_in.i32()[s];
  const int32_t into = p.into.i32()[s];
  const int64_t begin = p.checkpoint.i32()[s], end = p.to.i32()[s];
  if (into < 0) return;
  LATHE_CHECK(0 <= begin && begin <= end && end - begin <= p.ring.keys.dim(1), "a fold of [{}, {}) in a ring of {}", begin, end, p.ring.keys.dim(1));
  HeadState state(p.entering.dim(2), p.entering.dim(3));
  const StatePool from{p.entering, p.entering_scales}, to{p.states, p.states_scales};
  if (in >= 0) state.load(from, in, h);
  LATHE_COUNT(context, kBytesRead, in >= 0 ? state.bytes_in(from) : 0);
  LATHE_COUNT(context, kBytesWritten, state.bytes_in(to));
  if (begin == end && in >= 0 && p.entering.dtype == p.states.dtype) return state.copy(from, in, to, into, h);
  const HeadRing ring(p.ring, p.slot.i32()[s], h);
  if (begin < end) {
    std::vector<float> decay;
    for (int64_t c = 0; c < state.keys(); ++c) decay.push_back(ring.decay(end - 1, c));
    fold(state, ring, begin, end, decay);
    LATHE_COUNT(context, kBytesRead,
                (end - begin) * (state.keys() * size_of(p.ring.keys) + state.width() * size_of(p.ring.values)) + state.keys() * 4);
    LATHE_COUNT(context, kFlops, (2 * (end - begin) + 4) * state.keys() * state.width());
    LATHE_COUNT(context, kExponentials, state.keys());
  }
  state.keep(to, into, h);
}

}  // namespace

void LATHE_KERNEL(kda_verify)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::KdaVerifyParams*>(params);
  const int64_t heads = p.q.dim(1);
  LATHE_COUNT(context, kBytesRead, (5 * p.batch.sequences() + 1 + p.q.dim(0)) * 4);
  each(context, p.batch.sequences() * heads, [&](int64_t task) { Window(p, task / heads, task % heads).run(context); });
}

void LATHE_KERNEL(kda_flush)(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const ops::KdaFlushParams*>(params);
  const int64_t heads = p.entering.dim(1);
  LATHE_COUNT(context, kBytesRead, 5 * p.slot.dim(0) * 4);
  each(context, p.slot.dim(0) * heads, [&](int64_t task) { flush(p, task / heads, task % heads, context); });
}

}  // namespace lathe::kernels::ref
