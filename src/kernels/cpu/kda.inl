// Kimi delta attention, for every level (kda_isa.h). Included once per level by kda_<level>.cc, after simd.h.

#include "kernels/cpu/kda_kept.inl"

namespace lathe::kernels::cpu::LATHE_ISA {
namespace {

/// What a sweep over the keys needs of one token.
struct Token {
  const float* q;
  const float* k;
  const float* loss;
};
LATHE_INLINE Token token(const StateArgs& args, int64_t t) {
  const float* const q = args.prepared + t * args.prepared_stride;
  return {q, q + args.part, q + 2 * args.part};
}

/// kVectors vectors of columns through all tokens. Sweep t writes the state after token t − 1, decayed by token t: update and read of one token and decay and
/// guess of the next share one load and one store of the state. An element sees the same operations in the same order however the tokens are split.
template <int kVectors>
LATHE_INLINE void state_columns(const StateArgs& args, int64_t column) {
  // Copies: the compiler must take every store for one into args.
  const int64_t keys = args.keys, stride = args.to_stride, left = args.width - column, count = args.tokens;
  float* const to = args.to + column;
  Vf guess[kVectors], out[kVectors], u[kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) guess[i] = zero();
  {
    const Token next = token(args, 0);
    const float* from = args.from + column;
    float* at = to;
    const int64_t from_stride = args.from_stride;
    for (int64_t c = 0; c < keys; ++c, from += from_stride, at += stride) {
      const Vf e = set1(next.loss[c]), kc = set1(next.k[c]);
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) {
        const Vf s = load(from + i * kLanes);
        const Vf decayed = fma(e, s, s);
        store(at + i * kLanes, decayed);
        guess[i] = fma(decayed, kc, guess[i]);
      }
    }
  }
  for (int64_t t = 0; t < count; ++t) {
    const Vf beta = set1(args.beta[t * args.beta_stride]);
    const float* const v = args.v != nullptr ? args.v + t * args.v_stride + column : nullptr;
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      u[i] = mul(beta, sub(v != nullptr ? load_first(v + i * kLanes, left - i * kLanes) : zero(), guess[i]));
      guess[i] = out[i] = zero();
    }
    const Token now = token(args, t);
    float* at = to;
    if (t + 1 < count) {
      const Token next = token(args, t + 1);
      for (int64_t c = 0; c < keys; ++c, at += stride) {
        const Vf kc = set1(now.k[c]), qc = set1(now.q[c]), e = set1(next.loss[c]), kn = set1(next.k[c]);
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) {
          const Vf s = fma(kc, u[i], load(at + i * kLanes));
          out[i] = fma(s, qc, out[i]);
          const Vf decayed = fma(e, s, s);
          store(at + i * kLanes, decayed);
          guess[i] = fma(decayed, kn, guess[i]);
        }
      }
    } else {
      for (int64_t c = 0; c < keys; ++c, at += stride) {
        const Vf kc = set1(now.k[c]), qc = set1(now.q[c]);
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) {
          const Vf s = fma(kc, u[i], load(at + i * kLanes));
          store(at + i * kLanes, s);
          out[i] = fma(s, qc, out[i]);
        }
      }
    }
    if (args.o == nullptr) continue;
    float* const o = args.o + t * args.o_stride + column;
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) store_first(o + i * kLanes, out[i], left - i * kLanes);
  }
}

void tokens(const StateArgs& args) {
  constexpr int kTogether = kLanes == 16 ? 4 : 2;  // 16 registers hold no more
  if (args.tokens == 0) return;
  int64_t column = 0;
  for (; column + kTogether * kLanes <= args.width; column += kTogether * kLanes) state_columns<kTogether>(args, column);
  for (; column < args.width; column += kLanes) state_columns<1>(args, column);
}

LATHE_INLINE float sum_of_squares(const float* x, int64_t count) {
  Vf sum = zero();
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Vf v = load(x + i);
    sum = fma(v, v, sum);
  }
  if (i < count) {
    const Vf v = load_first(x + i, count - i);
    sum = fma(v, v, sum);
  }
  return hsum(sum);
}

void l2_norm(const float* x, int64_t count, float scale, float eps, float* out) {
  const Vf factor = set1(scale / __builtin_sqrtf(sum_of_squares(x, count) + eps));
  for (int64_t i = 0; i < count; i += kLanes) store_first(out + i, mul(load_first(x + i, count - i), factor), count - i);
}

void expm1_row(const float* x, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) store_first(out + i, vexpm1(load_first(x + i, count - i)), count - i);
}

void sigmoid_row(const float* x, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) store_first(out + i, vsigmoid(load_first(x + i, count - i)), count - i);
}

void gate_bounded(const float* a, const float* bias, float rate, float factor, int64_t count, float* g) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vf x = add(load_first(a + i, count - i), load_first(bias + i, count - i));
    store_first(g + i, mul(set1(factor), vsigmoid(mul(set1(rate), x))), count - i);
  }
}

/// log(1 + e^x), x itself above 20: max(x, 0) + log1p(e^−|x|), and log1p(y) = 2·atanh(y / (2 + y)) as a series in at most 1/3.
LATHE_INLINE Vf softplus(Vf x) {
  const Vf above = vmax(zero(), x);
  const Vf y = vexp(vmin(x, sub(zero(), x)));
  const Vf s = div(y, add(set1(2.0f), y)), s2 = mul(s, s);
  Vf p = set1(2.0f / 15.0f);
  p = fma(p, s2, set1(2.0f / 13.0f));
  p = fma(p, s2, set1(2.0f / 11.0f));
  p = fma(p, s2, set1(2.0f / 9.0f));
  p = fma(p, s2, set1(2.0f / 7.0f));
  p = fma(p, s2, set1(2.0f / 5.0f));
  p = fma(p, s2, set1(2.0f / 3.0f));
  p = fma(p, s2, set1(2.0f));
  return select(less(set1(20.0f), x), x, fma(p, s, above));
}

void gate_unbounded(const float* a, const float* bias, float rate, int64_t count, float* g) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vf x = add(load_first(a + i, count - i), load_first(bias + i, count - i));
    store_first(g + i, mul(set1(-rate), softplus(x)), count - i);
  }
}

void gated_norm(const float* o, const float* gate, const float* weight, float eps, int64_t count, float* out) {
  const Vf factor = set1(1.0f / __builtin_sqrtf(sum_of_squares(o, count) / static_cast<float>(count) + eps));
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t n = count - i;
    const Vf normed = mul(mul(load_first(o + i, n), factor), load_first(weight + i, n));
    store_first(out + i, mul(normed, vsigmoid(load_first(gate + i, n))), n);
  }
}

/// Lanes [i, i + n) of the convolution; kTaps 0: any number of them.
template <int kTaps, bool kWhole>
LATHE_INLINE void conv_lanes(const ConvArgs& args, int64_t i, int64_t n) {
  const int64_t taps = kTaps > 0 ? kTaps : args.taps;
  Vf z = zero();
#pragma GCC unroll 4
  for (int64_t j = 0; j < taps; ++j) {
    const float* const w = args.weight + j * args.weight_stride + i;
    const float* const x = args.rows[j] + i;
    z = kWhole ? fma(load(w), load(x), z) : fma(load_first(w, n), load_first(x, n), z);
  }
  if (kWhole) {
    store(args.out + i, vsilu(z));
  } else {
    store_first(args.out + i, vsilu(z), n);
  }
}

template <int kTaps>
LATHE_INLINE void conv_taps(const ConvArgs& args) {
  int64_t i = 0;
  for (; i + kLanes <= args.channels; i += kLanes) conv_lanes<kTaps, true>(args, i, kLanes);
  if (i < args.channels) conv_lanes<kTaps, false>(args, i, args.channels - i);
}

void conv(const ConvArgs& args) {
  if (args.taps == 4) return conv_taps<4>(args);
  conv_taps<0>(args);
}

constexpr KdaIsa kda_level() {
  KdaIsa isa;
  isa.lanes = kLanes;
  isa.tokens = tokens;
  isa.l2_norm = l2_norm;
  isa.expm1 = expm1_row;
  isa.sigmoid = sigmoid_row;
  isa.gate_bounded = gate_bounded;
  isa.gate_unbounded = gate_unbounded;
  isa.gated_norm = gated_norm;
  isa.conv = conv;
  isa.load_f16 = load_f16;
  isa.keep_f16 = keep_f16;
  isa.load_i8 = load_i8;
  isa.keep_i8 = keep_i8;
  return isa;
}

}  // namespace
}  // namespace lathe::kernels::cpu::LATHE_ISA
