// Kimi delta attention, for every level (kda_isa.h). Included once per level by kda_<level>.cc, after simd.h.

#include "kernels/cpu/state.inl"

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

template <int kVectors>
LATHE_INLINE void clear(Vf (&sums)[kVectors]) {
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) sums[i] = zero();
}

/// tile = the state as it is kept, decayed by the first token.
template <StateFormat kFormat, int kVectors, bool kWhole>
LATHE_INLINE void first_sweep(const StateArgs& args, int64_t column, Vf (&guess)[kVectors]) {
  const Token next = token(args, 0);
  const void* const values = args.from.values;
  const int64_t stride = args.from.stride, keys = args.keys, left = args.width - column;
  Vf scale[kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) scale[i] = load_scale<kFormat, kWhole>(args.from, column + i * kLanes, left - i * kLanes);
  float* at = args.tile + column;
  for (int64_t c = 0; c < keys; ++c, at += kStateTile) {
    const Vf e = set1(next.loss[c]), kc = set1(next.k[c]);
    if (kWhole) ask_ahead<kFormat, kVectors>(values, c * stride + column);
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const Vf s = load_state<kFormat, kWhole>(values, c * stride + column + i * kLanes, scale[i], left - i * kLanes);
      const Vf decayed = fma(e, s, s);
      store(at + i * kLanes, decayed);
      guess[i] = fma(decayed, kc, guess[i]);
    }
  }
}
template <int kVectors, bool kWhole>
LATHE_INLINE void first_sweep(const StateArgs& args, int64_t column, Vf (&guess)[kVectors]) {
  switch (args.from.format) {
    case StateFormat::kZeros: return first_sweep<StateFormat::kZeros, kVectors, kWhole>(args, column, guess);
    case StateFormat::kF32: return first_sweep<StateFormat::kF32, kVectors, kWhole>(args, column, guess);
    case StateFormat::kF16: return first_sweep<StateFormat::kF16, kVectors, kWhole>(args, column, guess);
    case StateFormat::kI8: return first_sweep<StateFormat::kI8, kVectors, kWhole>(args, column, guess);
  }
}

/// Update and read of token t, decay and guess of the next.
template <int kVectors>
LATHE_INLINE void middle_sweep(const StateArgs& args, int64_t column, int64_t t, const Vf (&u)[kVectors], Vf (&out)[kVectors],
                               Vf (&guess)[kVectors]) {
  const Token now = token(args, t), next = token(args, t + 1);
  const int64_t keys = args.keys;
  float* at = args.tile + column;
  for (int64_t c = 0; c < keys; ++c, at += kStateTile) {
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
}

constexpr bool is_half(StateTarget target) { return target == StateTarget::kF16 || target == StateTarget::kF16Both; }
constexpr bool fills_tile(StateTarget target) { return target != StateTarget::kF32 && target != StateTarget::kF16; }

/// A row of the state behind the last token goes where it is kept.
template <StateTarget kTarget, int kVectors, bool kWhole>
LATHE_INLINE void keep_row(void* to, int64_t offset, float* tile, Vf (&s)[kVectors], int64_t left) {
  if constexpr (is_half(kTarget)) {
    Vf most = zero();
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) most = vmax_magnitude(most, s[i]);
    if (bits(less(set1(kHalfMost), most)) != 0) [[unlikely]] {
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) s[i] = saturated(s[i]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    const int64_t at = offset + i * kLanes, n = kWhole ? kLanes : left - i * kLanes;
    if constexpr (is_half(kTarget)) store_half_first(static_cast<uint16_t*>(to) + at, s[i], n);
    if constexpr (kTarget == StateTarget::kF32 || kTarget == StateTarget::kF32Both) {
      if (kWhole) {
        store(static_cast<float*>(to) + at, s[i]);
      } else {
        store_first(static_cast<float*>(to) + at, s[i], n);
      }
    }
    if constexpr (fills_tile(kTarget)) store(tile + i * kLanes, is_half(kTarget) ? half_to_float(float_to_half(s[i])) : s[i]);
  }
}

/// Update and read of the last token; the state goes where it is kept.
template <StateTarget kTarget, int kVectors, bool kWhole>
LATHE_INLINE void last_sweep(const StateArgs& args, int64_t column, const Vf (&u)[kVectors], Vf (&out)[kVectors]) {
  const Token now = token(args, args.tokens - 1);
  const int64_t keys = args.keys, stride = args.to_stride, left = args.width - column;
  void* const to = args.to;
  float* at = args.tile + column;
  for (int64_t c = 0; c < keys; ++c, at += kStateTile) {
    const Vf kc = set1(now.k[c]), qc = set1(now.q[c]);
    Vf s[kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      s[i] = fma(kc, u[i], load(at + i * kLanes));
      out[i] = fma(s[i], qc, out[i]);
    }
    keep_row<kTarget, kVectors, kWhole>(to, c * stride + column, at, s, left);
  }
}
template <int kVectors, bool kWhole>
LATHE_INLINE void last_sweep(const StateArgs& args, int64_t column, const Vf (&u)[kVectors], Vf (&out)[kVectors]) {
  switch (args.target) {
    case StateTarget::kTile: return last_sweep<StateTarget::kTile, kVectors, kWhole>(args, column, u, out);
    case StateTarget::kF32: return last_sweep<StateTarget::kF32, kVectors, kWhole>(args, column, u, out);
    case StateTarget::kF32Both: return last_sweep<StateTarget::kF32Both, kVectors, kWhole>(args, column, u, out);
    case StateTarget::kF16: return last_sweep<StateTarget::kF16, kVectors, kWhole>(args, column, u, out);
    case StateTarget::kF16Both: return last_sweep<StateTarget::kF16Both, kVectors, kWhole>(args, column, u, out);
  }
}

/// kVectors vectors of columns through all tokens. Sweep t makes the state behind token t − 1, decayed by token t: update and read of one token and decay and
/// guess of the next share one load and one store of the tile. The first sweep reads the state where it is kept, the last one writes it there. An element
/// sees the same operations in the same order however the tokens are split.
template <int kVectors, bool kWhole>
LATHE_INLINE void state_columns(const StateArgs& args, int64_t column) {
  const int64_t left = args.width - column, count = args.tokens;
  Vf guess[kVectors], out[kVectors], u[kVectors];
  clear(guess);
  first_sweep<kVectors, kWhole>(args, column, guess);
  for (int64_t t = 0; t < count; ++t) {
    const Vf beta = set1(args.beta[t * args.beta_stride]);
    const float* const v = args.v != nullptr ? args.v + t * args.v_stride + column : nullptr;
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) u[i] = mul(beta, sub(v != nullptr ? load_first(v + i * kLanes, left - i * kLanes) : zero(), guess[i]));
    clear(guess), clear(out);
    if (t + 1 < count) {
      middle_sweep(args, column, t, u, out, guess);
    } else {
      last_sweep<kVectors, kWhole>(args, column, u, out);
    }
    if (args.o == nullptr) continue;
    float* const o = args.o + t * args.o_stride + column;
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) store_first(o + i * kLanes, out[i], left - i * kLanes);
  }
}

constexpr int64_t kWide = 128;  // columns of one token that go together
/// Rows of a block that is read column group by column group: a page, so that memory is read in its order. One group: all.
constexpr int64_t block_rows(int64_t keys, int64_t row_bytes, bool one_group) {
  if (one_group) return keys;
  return row_bytes < 4096 ? 4096 / row_bytes : 1;
}

/// sums += Sᵀk of the decayed state, over the keys [begin, end).
template <StateFormat kFormat, int kVectors, bool kWhole>
LATHE_INLINE void guess_block(const StateArgs& args, int64_t column, int64_t begin, int64_t end, float* sums) {
  const int64_t left = args.width - column, stride = args.from.stride;
  const void* const from = args.from.values;
  const Token now = token(args, 0);
  Vf guess[kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) guess[i] = load(sums + i * kLanes);
  for (int64_t c = begin; c < end; ++c) {
    const Vf e = set1(now.loss[c]), kc = set1(now.k[c]);
    if (kWhole && kLanes < 16) ask_ahead<kFormat, kVectors>(from, c * stride + column);  // whole rows are followed without
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const Vf s = load_state<kFormat, kWhole>(from, c * stride + column + i * kLanes, zero(), left - i * kLanes);
      guess[i] = fma(fma(e, s, s), kc, guess[i]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) store(sums + i * kLanes, guess[i]);
}

/// The state behind the token goes where it is kept; sums += Sᵀq of it.
template <StateFormat kFormat, StateTarget kTarget, int kVectors, bool kWhole>
LATHE_INLINE void update_block(const StateArgs& args, int64_t column, int64_t begin, int64_t end, const float* correction, float* sums) {
  const int64_t left = args.width - column, stride = args.from.stride, to_stride = args.to_stride;
  const void* const from = args.from.values;
  void* const to = args.to;
  const Token now = token(args, 0);
  Vf u[kVectors], out[kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) u[i] = load(correction + i * kLanes), out[i] = load(sums + i * kLanes);
  for (int64_t c = begin; c < end; ++c) {
    const Vf e = set1(now.loss[c]), kc = set1(now.k[c]), qc = set1(now.q[c]);
    Vf s[kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const Vf before = load_state<kFormat, kWhole>(from, c * stride + column + i * kLanes, zero(), left - i * kLanes);
      s[i] = fma(kc, u[i], fma(e, before, before));
      out[i] = fma(s[i], qc, out[i]);
    }
    keep_row<kTarget, kVectors, kWhole>(to, c * to_stride + column, nullptr, s, left);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) store(sums + i * kLanes, out[i]);
}

/// One token, without a tile: the state is read twice where it is kept, the second time from a near cache, and written once.
template <StateFormat kFormat, StateTarget kTarget>
void one_token(const StateArgs& args) {
  constexpr int kTogether = kLanes == 16 ? 8 : 4;
  constexpr int64_t kGroup = kTogether * kLanes, kBytes = kFormat == StateFormat::kF32 ? 4 : 2;
  for (int64_t first = 0; first < args.width; first += kWide) {
    const int64_t end = args.width - first < kWide ? args.width : first + kWide;
    const int64_t rows = block_rows(args.keys, (end - first) * kBytes, end - first <= kGroup);
    float u[kWide], sums[kWide] = {};
    for (int64_t c = 0; c < args.keys; c += rows) {
      const int64_t stop = c + rows < args.keys ? c + rows : args.keys;
      int64_t j = first;
      for (; j + kGroup <= end; j += kGroup) guess_block<kFormat, kTogether, true>(args, j, c, stop, sums + j - first);
      for (; j + kLanes <= end; j += kLanes) guess_block<kFormat, 1, true>(args, j, c, stop, sums + j - first);
      if (j < end) guess_block<kFormat, 1, false>(args, j, c, stop, sums + j - first);
    }
    for (int64_t j = first; j < end; j += kLanes) {
      store(u + j - first, mul(set1(*args.beta), sub(load_first(args.v + j, end - j), load(sums + j - first))));
      store(sums + j - first, zero());
    }
    for (int64_t c = 0; c < args.keys; c += rows) {
      const int64_t stop = c + rows < args.keys ? c + rows : args.keys;
      int64_t j = first;
      for (; j + kGroup <= end; j += kGroup) update_block<kFormat, kTarget, kTogether, true>(args, j, c, stop, u + j - first, sums + j - first);
      for (; j + kLanes <= end; j += kLanes) update_block<kFormat, kTarget, 1, true>(args, j, c, stop, u + j - first, sums + j - first);
      if (j < end) update_block<kFormat, kTarget, 1, false>(args, j, c, stop, u + j - first, sums + j - first);
    }
    for (int64_t j = first; j < end; j += kLanes) store_first(args.o + j, load(sums + j - first), end - j);
  }
}

void tokens(const StateArgs& args) {
  constexpr int kTogether = kLanes == 16 ? 4 : 2;  // 16 registers hold no more
  if (args.tokens == 0) return;
  if (args.tile == nullptr && args.target == StateTarget::kF32) return one_token<StateFormat::kF32, StateTarget::kF32>(args);
  if (args.tile == nullptr) return one_token<StateFormat::kF16, StateTarget::kF16>(args);
  int64_t column = 0;
  for (; column + kTogether * kLanes <= args.width; column += kTogether * kLanes) state_columns<kTogether, true>(args, column);
  for (; column + kLanes <= args.width; column += kLanes) state_columns<1, true>(args, column);
  if (column < args.width) state_columns<1, false>(args, column);
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
  isa.tokens = tokens;
  isa.l2_norm = l2_norm;
  isa.expm1 = expm1_row;
  isa.sigmoid = sigmoid_row;
  isa.gate_bounded = gate_bounded;
  isa.gate_unbounded = gate_unbounded;
  isa.gated_norm = gated_norm;
  isa.conv = conv;
  isa.keep_f16 = keep_f16;
  isa.keep_i8 = keep_i8;
  return isa;
}

}  // namespace
}  // namespace lathe::kernels::cpu::LATHE_ISA
