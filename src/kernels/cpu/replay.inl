// Replay decoding of Kimi delta attention, for every level (replay_isa.h). Included once per level by replay_<level>.cc, after simd.h.
//
// Columns are lanes, and a sum over keys or entries is one chain in ascending order: its bits know nothing of how many rows or columns go together.

#include "kernels/cpu/state.inl"

namespace lathe::kernels::cpu::LATHE_ISA {
namespace {

/// Lanes [0, n) of a row of bf16 or floats; n may be more than there are lanes.
LATHE_INLINE Vf load_entry(const void* from, bool narrow, int64_t at, int64_t n) {
  if (!narrow) return load_first(static_cast<const float*>(from) + at, n);
  const uint16_t* const row = static_cast<const uint16_t*>(from) + at;
  return n >= kLanes ? load_bf16(row) : load_bf16_first(row, n);
}
/// Stores lanes as the ring keeps them; returns what it then holds.
LATHE_INLINE Vf store_entry(void* to, bool narrow, int64_t at, Vf x, int64_t n) {
  if (!narrow) {
    store_first(static_cast<float*>(to) + at, x, n);
    return x;
  }
  uint16_t* const row = static_cast<uint16_t*>(to) + at;
  const Vi high = bf16_high(x), low = shift_right<16>(high);
  if (n >= kLanes) {
    store_low16(row, low);
  } else {
    store_low16_first(row, low, n);
  }
  return as_float(high);
}

void widen(const void* from, bool narrow, int64_t count, float* to) {
  for (int64_t i = 0; i < count; i += kLanes) store(to + i, load_entry(from, narrow, i, count - i));
}

float grow(const GrowArgs& args) {
  Vf sum = zero();
  for (int64_t i = 0; i < args.keys; i += kLanes) {
    const int64_t n = args.keys - i;
    const Vf q = load_first(args.q + i, n), k = load_first(args.k + i, n), g = load_first(args.g + i, n);
    const Vf decay = args.before != nullptr ? add(load_first(args.before + i, n), g) : g;
    const Vf grown = vexp(decay);
    store_first(args.decay + i, decay, n);
    store(args.q_grown + i, mul(q, grown));
    store(args.k_grown + i, mul(k, grown));
    store(args.kept + i, store_entry(args.key, args.narrow, i, mul(k, vexp(sub(zero(), decay))), n));
    sum = fma(q, k, sum);
  }
  return hsum(sum);
}

/// Rows of scratch are zero behind their end.
void match(const MatchArgs& args) {
  for (int64_t e = 0; e < args.count; ++e) {
    const float* const key = args.entries + e * args.part;
    Vf with_q = zero(), with_k = zero();
    for (int64_t i = 0; i < args.keys; i += kLanes) {
      const Vf entry = load(key + i);
      with_q = fma(load(args.q + i), entry, with_q);
      with_k = fma(load(args.k + i), entry, with_k);
    }
    args.to_q[e] = hsum(with_q);
    args.to_k[e] = hsum(with_k);
  }
}

template <StateFormat kFormat, int kRows, int kVectors, bool kWhole>
LATHE_INLINE void read_columns(const ReadArgs& args, int64_t row, int64_t column) {
  const int64_t left = args.width - column, stride = args.state.stride, part = args.part, end = args.end;
  const void* const values = args.state.values;
  const float* const q = args.q + row * part;
  const float* const k = args.k + row * part;
  float* const from_q = args.from_q + row * args.stride + column;
  float* const from_k = args.from_k + row * args.stride + column;
  Vf sum_q[kRows][kVectors], sum_k[kRows][kVectors], scale[kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    scale[i] = load_scale<kFormat, kWhole>(args.state, column + i * kLanes, left - i * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      sum_q[r][i] = load(from_q + r * args.stride + i * kLanes);
      sum_k[r][i] = load(from_k + r * args.stride + i * kLanes);
    }
  }
  for (int64_t c = args.begin; c < end; ++c) {
    if (kWhole) ask_ahead<kFormat, kVectors>(values, c * stride + column);
    Vf qc[kRows], kc[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) qc[r] = set1(q[r * part + c]), kc[r] = set1(k[r * part + c]);
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const Vf s = load_state<kFormat, kWhole>(values, c * stride + column + i * kLanes, scale[i], left - i * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        sum_q[r][i] = fma(s, qc[r], sum_q[r][i]);
        sum_k[r][i] = fma(s, kc[r], sum_k[r][i]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      store(from_q + r * args.stride + i * kLanes, sum_q[r][i]);
      store(from_k + r * args.stride + i * kLanes, sum_k[r][i]);
    }
  }
}

/// Vectors of columns for one row of a window: sums of q and k for every row and vector, and what is added to them, in 32 registers or 16.
constexpr int kRowVectors = kLanes == 16 ? 8 : 4;

template <StateFormat kFormat, int kRows>
LATHE_INLINE void read_rows(const ReadArgs& args, int64_t row) {
  constexpr int kTogether = kRows == 1 ? kRowVectors : kRowVectors / 2;
  int64_t column = 0;
  for (; column + kTogether * kLanes <= args.width; column += kTogether * kLanes) read_columns<kFormat, kRows, kTogether, true>(args, row, column);
  for (; column + kLanes <= args.width; column += kLanes) read_columns<kFormat, kRows, 1, true>(args, row, column);
  if (column < args.width) read_columns<kFormat, kRows, 1, false>(args, row, column);
}

template <StateFormat kFormat>
void read_format(const ReadArgs& args) {
  int64_t row = 0;
  for (; row + 3 <= args.rows; row += 3) read_rows<kFormat, 3>(args, row);
  if (args.rows - row == 2) return read_rows<kFormat, 2>(args, row);
  if (args.rows - row == 1) read_rows<kFormat, 1>(args, row);
}

void read(const ReadArgs& args) {
  switch (args.state.format) {
    case StateFormat::kZeros: return read_format<StateFormat::kZeros>(args);
    case StateFormat::kF32: return read_format<StateFormat::kF32>(args);
    case StateFormat::kF16: return read_format<StateFormat::kF16>(args);
    case StateFormat::kI8: return read_format<StateFormat::kI8>(args);
  }
}

void finish(const FinishArgs& args) {
  for (int64_t j = 0; j < args.width; j += kLanes) {
    const int64_t n = args.width - j;
    Vf from_q = load(args.from_q + j), from_k = load(args.from_k + j);
    for (int64_t e = 0; e < args.count; ++e) {
      const Vf value = load(args.entries + e * args.stride + j);
      from_k = fma(set1(args.to_k[e]), value, from_k);
      from_q = fma(set1(args.to_q[e]), value, from_q);
    }
    const Vf u = mul(set1(args.beta), sub(load_first(args.v + j, n), from_k));
    store_first(args.o + j, fma(set1(args.qk), u, from_q), n);
    store(args.kept + j, store_entry(args.value, args.narrow, j, u, n));
  }
}

void exponentials(const float* decay, int64_t count, float* grown, float* loss) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vf x = vmax(set1(-87.0f), vmin(set1(87.0f), load_first(decay + i, count - i)));
    Vf r;
    const Vi n = reduce(x, r);
    const Vf scale = power_of_two(n), small = expm1_small(r);
    store(grown + i, fma(scale, small, scale));
    store(loss + i, fma(scale, small, sub(scale, set1(1.0f))));
  }
}

/// kKeys rows of the state at once share the loads of values, kVectors columns those of keys.
template <StateFormat kFormat, int kKeys, int kVectors, bool kWhole>
LATHE_INLINE void fold_block(const FoldArgs& args, int64_t c, int64_t column) {
  const int64_t left = args.width - column, part = args.part, stride = args.stride, count = args.count;
  const float* key = args.entry_keys + c;
  const float* value = args.entry_values + column;
  Vf sum[kKeys][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kKeys; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) sum[r][i] = zero();
  }
  for (int64_t e = 0; e < count; ++e, key += part, value += stride) {
    Vf u[kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) u[i] = load(value + i * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kKeys; ++r) {
      const Vf k = set1(key[r]);
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) sum[r][i] = fma(k, u[i], sum[r][i]);
    }
  }
  for (int r = 0; r < kKeys; ++r) {
    if (kWhole) ask_ahead<kFormat, kVectors>(args.from.values, (c + r) * args.from.stride + column);
    const bool moves = count > 0;  // else S stays as it is, infinities too
    const Vf grown = moves ? set1(args.grown[c + r]) : zero(), loss = moves ? set1(args.loss[c + r]) : zero();
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const int64_t at = column + i * kLanes, n = left - i * kLanes;
      const Vf scale = load_scale<kFormat, kWhole>(args.from, at, n);
      const Vf s = load_state<kFormat, kWhole>(args.from.values, (c + r) * args.from.stride + at, scale, n);
      const Vf folded = moves ? fma(grown, sum[r][i], fma(loss, s, s)) : s;
      float* const to = args.to + (c + r) * args.to_stride + at;
      if (kWhole) {
        store(to, folded);
      } else {
        store_first(to, folded, n);
      }
    }
  }
}

template <StateFormat kFormat, int kKeys>
LATHE_INLINE void fold_keys(const FoldArgs& args, int64_t c) {
  constexpr int kTogether = kLanes == 16 ? 4 : 2;
  int64_t column = 0;
  for (; column + kTogether * kLanes <= args.width; column += kTogether * kLanes) fold_block<kFormat, kKeys, kTogether, true>(args, c, column);
  for (; column + kLanes <= args.width; column += kLanes) fold_block<kFormat, kKeys, 1, true>(args, c, column);
  if (column < args.width) fold_block<kFormat, kKeys, 1, false>(args, c, column);
}

template <StateFormat kFormat>
void fold_format(const FoldArgs& args) {
  int64_t c = 0;
  for (; c + 4 <= args.keys; c += 4) fold_keys<kFormat, 4>(args, c);
  for (; c < args.keys; ++c) fold_keys<kFormat, 1>(args, c);
}

void fold(const FoldArgs& args) {
  switch (args.from.format) {
    case StateFormat::kZeros: return fold_format<StateFormat::kZeros>(args);
    case StateFormat::kF32: return fold_format<StateFormat::kF32>(args);
    case StateFormat::kF16: return fold_format<StateFormat::kF16>(args);
    case StateFormat::kI8: return fold_format<StateFormat::kI8>(args);
  }
}

constexpr ReplayIsa replay_level() {
  ReplayIsa isa;
  isa.columns = kRowVectors * kLanes;
  isa.grow = grow;
  isa.widen = widen;
  isa.match = match;
  isa.read = read;
  isa.finish = finish;
  isa.exponentials = exponentials;
  isa.fold = fold;
  return isa;
}

}  // namespace
}  // namespace lathe::kernels::cpu::LATHE_ISA
