#pragma once
// One head's KDA state, and what a token does to it.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/ref/common.h"
#include "tensor/quantised.h"

namespace lathe::kernels::ref {

/// States of many sequences and heads as they are kept: [rows, H, K, V], and a scale for each column where they are codes.
struct StatePool {
  View values;
  View scales;
};

/// The state of one head, [K, width], with a double copy for the token being computed.
class HeadState {
 public:
  HeadState(int64_t keys, int64_t width) : keys_(keys), width_(width), s_(size(keys * width)), decayed_(size(keys * width)), guess_(size(width)) {}

  int64_t keys() const { return keys_; }
  int64_t width() const { return width_; }
  float& at(int64_t c, int64_t j) { return s_[size(c * width_ + j)]; }

  /// Bytes of this state in a pool.
  int64_t bytes_in(const StatePool& pool) const {
    return keys_ * width_ * size_of(pool.values) + (pool.scales.present() ? width_ * size_of(pool.scales) : 0);
  }
  void load(const StatePool& pool, int64_t at, int64_t h) {
    const int64_t first = at * pool.values.step(0) + h * pool.values.step(1);
    for (int64_t c = 0; c < keys_; ++c) {
      for (int64_t j = 0; j < width_; ++j) {
        const float value = tensor::load_as_float(pool.values.dtype, pool.values.data, first + c * width_ + j);
        s_[size(c * width_ + j)] = pool.scales.present() ? value * row(pool.scales, at, h)[j] : value;
      }
    }
  }
  /// Stores the state, and goes on with what was stored.
  void keep(const StatePool& pool, int64_t at, int64_t h) {
    const int64_t first = at * pool.values.step(0) + h * pool.values.step(1);
    for (int64_t j = 0; j < width_; ++j) {
      tensor::RunScale scale;
      if (pool.scales.present()) {
        scale = tensor::run_scale(tensor::largest_magnitude(s_.data() + j, keys_, width_), DType::kI8);
        row(pool.scales, at, h)[j] = scale.scale;
      }
      for (int64_t c = 0; c < keys_; ++c) {
        const float value = s_[size(c * width_ + j)];
        const int64_t index = first + c * width_ + j;
        switch (pool.values.dtype) {
          case DType::kI8: tensor::store_code(DType::kI8, pool.values.data, index, value, scale); break;
          case DType::kF16: static_cast<uint16_t*>(pool.values.data)[index] = tensor::float_to_f16_saturated(value); break;
          default: pool.values.f32()[index] = value;
        }
      }
    }
    if (pool.values.dtype != DType::kF32) load(pool, at, h);
  }
  /// What keep() would go on with, without storing it.
  void round(DType format) {
    if (format == DType::kF32) return;
    std::vector<uint16_t> values(s_.size());
    std::vector<float> scales(size(width_));
    StatePool pool{tensor::make_view(values.data(), format, {1, 1, keys_, width_}), {}};
    if (format == DType::kI8) pool.scales = tensor::make_view(scales.data(), DType::kF32, {1, 1, width_});
    keep(pool, 0, 0);
  }
  /// The stored bits of row `from_row` into another row of a pool of the same format.
  void copy(const StatePool& from, int64_t from_row, const StatePool& to, int64_t to_row, int64_t h) const {
    const auto move = [&](const View& a, const View& b, int64_t count) {
      const int64_t each = size_of(a);
      std::memmove(static_cast<char*>(b.data) + (to_row * b.step(0) + h * b.step(1)) * each,
                   static_cast<const char*>(a.data) + (from_row * a.step(0) + h * a.step(1)) * each, size(count * each));
    };
    move(from.values, to.values, keys_ * width_);
    if (from.scales.present()) move(from.scales, to.scales, width_);
  }
  void store(float* to) const { std::copy_n(s_.begin(), s_.size(), to); }
  void identity() {
    std::fill(s_.begin(), s_.end(), 0.0f);
    for (int64_t i = 0; i < keys_; ++i) s_[size(i * width_ + i)] = 1.0f;
  }
  void zero() { std::fill(s_.begin(), s_.end(), 0.0f); }

  /// One token: decay by g, then the delta rule towards v (null: zeros).
  void step(const float* g, const std::vector<double>& k, double beta, const float* v) {
    std::fill(guess_.begin(), guess_.end(), 0.0);
    for (int64_t c = 0; c < keys_; ++c) {
      const double loss = std::expm1(static_cast<double>(g[c]));
      for (int64_t j = 0; j < width_; ++j) {
        const auto s = static_cast<double>(s_[size(c * width_ + j)]);
        decayed_[size(c * width_ + j)] = s + loss * s;
        guess_[size(j)] += decayed_[size(c * width_ + j)] * k[size(c)];
      }
    }
    for (int64_t j = 0; j < width_; ++j) guess_[size(j)] = beta * ((v == nullptr ? 0.0 : static_cast<double>(v[j])) - guess_[size(j)]);
    for (int64_t c = 0; c < keys_; ++c) {
      for (int64_t j = 0; j < width_; ++j)
        s_[size(c * width_ + j)] = static_cast<float>(decayed_[size(c * width_ + j)] + k[size(c)] * guess_[size(j)]);
    }
  }

  /// o = Sᵀ q
  void read(const std::vector<double>& q, float* o) const {
    for (int64_t j = 0; j < width_; ++j) {
      double sum = 0;
      for (int64_t c = 0; c < keys_; ++c) sum += static_cast<double>(s_[size(c * width_ + j)]) * q[size(c)];
      o[j] = static_cast<float>(sum);
    }
  }

 private:
  static size_t size(int64_t n) { return static_cast<size_t>(n); }
  int64_t keys_, width_;
  std::vector<float> s_;
  std::vector<double> decayed_, guess_;
};

inline std::vector<double> l2_normalised(const float* x, int64_t n, double scale) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const double factor = scale / std::sqrt(squares + 1e-6);
  std::vector<double> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) out[static_cast<size_t>(i)] = static_cast<double>(x[i]) * factor;
  return out;
}

}  // namespace lathe::kernels::ref
