// Norms, elementwise functions and hyper-connections, for every level (row_isa.h). Included once per level by row_<level>.cc, after simd.h.

#include "kernels/cpu/row_codes.inl"

namespace lathe::kernels::cpu::LATHE_ISA {
namespace {

/// Σ f(x), one lane per position modulo the vector, lanes by hsum.
template <class F>
LATHE_INLINE float sum_row(const float* x, int64_t count, const F& f) {
  Vf sum = zero();
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) sum = add(sum, f(load(x + i)));
  if (i < count) {
    // Lanes behind the end must add 0 whatever f makes of 0.
    float part[kLanes] = {};
    store_first(part, f(load_first(x + i, count - i)), count - i);
    sum = add(sum, load(part));
  }
  return hsum(sum);
}

float sum_of_squares(const float* x, int64_t count) {
  return sum_row(x, count, [](Vf v) __attribute__((always_inline)) { return mul(v, v); });
}

void rms_norm(const float* x, const float* weight, float eps, int64_t count, float* out) {
  const Vf factor = set1(1.0f / __builtin_sqrtf(sum_of_squares(x, count) / static_cast<float>(count) + eps));
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t n = count - i;
    store_first(out + i, mul(mul(load_first(x + i, n), factor), load_first(weight + i, n)), n);
  }
}

void layer_norm(const float* x, const float* weight, const float* bias, float eps, int64_t count, float* out) {
  const float inverse = 1.0f / static_cast<float>(count);
  const Vf mean = set1(sum_row(x, count, [](Vf v) __attribute__((always_inline)) { return v; }) * inverse);
  const float variance = sum_row(x, count,
                                 [mean](Vf v) __attribute__((always_inline)) {
                                   const Vf d = sub(v, mean);
                                   return mul(d, d);
                                 }) *
                         inverse;
  const Vf factor = set1(1.0f / __builtin_sqrtf(variance + eps));
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t n = count - i;
    const Vf normed = mul(sub(load_first(x + i, n), mean), factor);
    store_first(out + i, fma(normed, load_first(weight + i, n), load_first(bias + i, n)), n);
  }
}

/// erfc(z) for z ≥ 0, relative error < 1.2e-7 plus rounding: t·e^(−z² + P(t)), t = 1/(1 + z/2), P by Chebyshev fit (W. J. Cody's form, coefficients as
/// published in "Numerical Recipes").
LATHE_INLINE Vf erfc_positive(Vf z) {
  const Vf t = div(set1(1.0f), fma(set1(0.5f), z, set1(1.0f)));
  Vf p = set1(0.17087277f);
  p = fma(p, t, set1(-0.82215223f));
  p = fma(p, t, set1(1.48851587f));
  p = fma(p, t, set1(-1.13520398f));
  p = fma(p, t, set1(0.27886807f));
  p = fma(p, t, set1(-0.18628806f));
  p = fma(p, t, set1(0.09678418f));
  p = fma(p, t, set1(0.37409196f));
  p = fma(p, t, set1(1.00002368f));
  p = fma(p, t, set1(-1.26551223f));
  return mul(t, vexp(fma(sub(zero(), z), z, p)));
}

void gelu(const float* x, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vf v = load_first(x + i, count - i);
    const Vf z = mul(v, set1(0.70710678f));
    const Vf c = erfc_positive(vmax(sub(zero(), z), z));
    // 1 + erf(z) is erfc(−z): without cancellation on either side.
    const Vf both = select(less(v, zero()), c, sub(set1(2.0f), c));
    store_first(out + i, mul(mul(set1(0.5f), v), both), count - i);
  }
}

void add_rows(const float* a, const float* b, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) store_first(out + i, add(load_first(a + i, count - i), load_first(b + i, count - i)), count - i);
}

void from_bf16(const uint16_t* x, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(out + i, load_bf16(x + i));
  if (i < count) store_first(out + i, load_bf16_first(x + i, count - i), count - i);
}

void combine(const float* const* rows, const float* weights, int64_t streams, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) {
    Vf sum = zero();
    for (int64_t s = 0; s < streams; ++s) sum = fma(set1(weights[s]), load_first(rows[s] + i, count - i), sum);
    store_first(out + i, sum, count - i);
  }
}

template <int kStreams>
LATHE_INLINE void spread_streams(const float* const* rows, const float* y, const float* post, const float* comb, int64_t streams, int64_t count,
                                 float* const* out) {
  const float* from[kStreams];
  float* to[kStreams];
  float factor[kStreams], mixed[kStreams * kStreams];  // copies: a store to `out` may not touch them
  for (int64_t a = 0; a < streams; ++a) from[a] = rows[a], to[a] = out[a], factor[a] = post[a];
  for (int64_t i = 0; i < streams * streams; ++i) mixed[i] = comb[i];
  const auto piece = [&](int64_t i, auto read, auto write) __attribute__((always_inline)) {
    Vf x[kStreams];
    for (int64_t a = 0; a < streams; ++a) x[a] = read(from[a] + i);
    const Vf v = read(y + i);
    for (int64_t b = 0; b < streams; ++b) {
      Vf sum = mul(set1(factor[b]), v);
      for (int64_t a = 0; a < streams; ++a) sum = fma(set1(mixed[a * streams + b]), x[a], sum);
      write(to[b] + i, sum);
    }
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    piece(
        i, [](const float* p) __attribute__((always_inline)) { return load(p); }, [](float* p, Vf a) __attribute__((always_inline)) { store(p, a); });
  }
  if (i == count) return;
  const int64_t n = count - i;
  piece(
      i, [n](const float* p) __attribute__((always_inline)) { return load_first(p, n); },
      [n](float* p, Vf a) __attribute__((always_inline)) { store_first(p, a, n); });
}

void spread(const float* const* rows, const float* y, const float* post, const float* comb, int64_t streams, int64_t count, float* const* out) {
  if (streams == 4) return spread_streams<4>(rows, y, post, comb, 4, count, out);
  spread_streams<kStreamsMax>(rows, y, post, comb, streams, count, out);
}

/// Divides the S entries c[at + j · step] by their sum plus eps.
LATHE_INLINE void normalise(Vf* c, int64_t at, int64_t step, int64_t s, Vf eps) {
  Vf sum = c[at];
  for (int64_t j = 1; j < s; ++j) sum = add(sum, c[at + j * step]);
  const Vf inverse = div(set1(1.0f), add(sum, eps));
  for (int64_t j = 0; j < s; ++j) c[at + j * step] = mul(c[at + j * step], inverse);
}

template <int kStreams>
LATHE_INLINE void sinkhorn(const MhcArgs& args, int64_t s) {
  const Vf factor = load(args.factor), eps = set1(args.hc_eps);
  const auto logit = [&](int64_t i, float scale)
                         __attribute__((always_inline)) { return fma(mul(load(args.m + i * kLanes), factor), set1(scale), set1(args.base[i])); };
  for (int64_t i = 0; i < s; ++i) {
    store(args.pre + i * kLanes, add(vsigmoid(logit(i, args.scale[0])), eps));
    store(args.post + i * kLanes, mul(set1(2.0f), vsigmoid(logit(s + i, args.scale[1]))));
  }
  Vf c[kStreams * kStreams];
  for (int64_t a = 0; a < s; ++a) {
    Vf most = set1(-__builtin_inff());
    for (int64_t b = 0; b < s; ++b) c[a * s + b] = logit(2 * s + a * s + b, args.scale[2]), most = vmax(most, c[a * s + b]);
    Vf sum = zero();
    for (int64_t b = 0; b < s; ++b) c[a * s + b] = vexp(sub(c[a * s + b], most)), sum = add(sum, c[a * s + b]);
    const Vf inverse = div(set1(1.0f), sum);
    for (int64_t b = 0; b < s; ++b) c[a * s + b] = fma(c[a * s + b], inverse, eps);
  }
  for (int64_t b = 0; b < s; ++b) normalise(c, b, s, s, eps);
  for (int64_t i = 1; i < args.iterations; ++i) {
    for (int64_t a = 0; a < s; ++a) normalise(c, a * s, 1, s, eps);
    for (int64_t b = 0; b < s; ++b) normalise(c, b, s, s, eps);
  }
  for (int64_t i = 0; i < s * s; ++i) store(args.comb + i * kLanes, c[i]);
}

void mhc(const MhcArgs& args) {
  if (args.streams == 4) return sinkhorn<4>(args, 4);
  sinkhorn<kStreamsMax>(args, args.streams);
}

constexpr RowIsa row_level() {
  RowIsa isa;
  isa.lanes = kLanes;
  isa.rms_norm = rms_norm;
  isa.layer_norm = layer_norm;
  isa.gelu = gelu;
  isa.add = add_rows;
  isa.sum_of_squares = sum_of_squares;
  isa.from_bf16 = from_bf16;
  isa.from_codes = from_codes;
  isa.to_codes = to_codes;
  isa.combine = combine;
  isa.spread = spread;
  isa.mhc = mhc;
  return isa;
}

}  // namespace
}  // namespace lathe::kernels::cpu::LATHE_ISA
