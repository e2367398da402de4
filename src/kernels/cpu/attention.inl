// Attention over lists of keys, index scores, pooling and rotation, for every level (attention_isa.h). Included once per level, after simd.h.

namespace lathe::kernels::cpu::LATHE_ISA {
namespace {

template <bool kBf16>
LATHE_INLINE Vf load_key(const char* row, int64_t i) {
  if constexpr (kBf16) return load_bf16(reinterpret_cast<const uint16_t*>(row) + i);
  return load(reinterpret_cast<const float*>(row) + i);
}
template <bool kBf16>
LATHE_INLINE Vf load_key_first(const char* row, int64_t i, int64_t n) {
  if constexpr (kBf16) return load_bf16_first(reinterpret_cast<const uint16_t*>(row) + i, n);
  return load_first(reinterpret_cast<const float*>(row) + i, n);
}

/// kHeads · kKeys dot products at once. Lanes are channels; a product's order of additions does not depend on the block.
template <int kHeads, int kKeys, bool kBf16>
LATHE_INLINE void score_block(const ScoreArgs& args, int64_t head, int64_t key) {
  Vf sum[kHeads * kKeys];
  const char* rows[kKeys];
#pragma GCC unroll 8
  for (int k = 0; k < kKeys; ++k) rows[k] = args.keys.rows[key + k] + args.keys.offset;
#pragma GCC unroll 8
  for (int i = 0; i < kHeads * kKeys; ++i) sum[i] = zero();
  const float* const q = args.q + head * args.q_stride;
  int64_t c = 0;
  for (; c + kLanes <= args.width; c += kLanes) {
    Vf keys[kKeys];
#pragma GCC unroll 8
    for (int k = 0; k < kKeys; ++k) keys[k] = load_key<kBf16>(rows[k], c);
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
      const Vf a = load(q + h * args.q_stride + c);
#pragma GCC unroll 8
      for (int k = 0; k < kKeys; ++k) sum[h * kKeys + k] = fma(a, keys[k], sum[h * kKeys + k]);
    }
  }
  if (c < args.width) {
    for (int h = 0; h < kHeads; ++h) {
      const Vf a = load_first(q + h * args.q_stride + c, args.width - c);
      for (int k = 0; k < kKeys; ++k) sum[h * kKeys + k] = fma(a, load_key_first<kBf16>(rows[k], c, args.width - c), sum[h * kKeys + k]);
    }
  }
  float out[kHeads * kKeys];
  if constexpr (kHeads * kKeys % 4 == 0) {
#pragma GCC unroll 2
    for (int i = 0; i < kHeads * kKeys; i += 4) {
      const Vf four[4] = {sum[i], sum[i + 1], sum[i + 2], sum[i + 3]};
      store_sums(out + i, sum_parts(four));
    }
  } else {
    for (int i = 0; i < kHeads * kKeys; ++i) {
      const Vf four[4] = {sum[i], zero(), zero(), zero()};
      float sums[4];
      store_sums(sums, sum_parts(four));
      out[i] = sums[0];
    }
  }
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
    for (int k = 0; k < kKeys; ++k) args.out[(head + h) * args.out_stride + key + k] = args.scale * out[h * kKeys + k];
  }
}

/// Keys lie where the pages are: nobody else asks for them ahead.
constexpr int64_t kKeysAhead = 16;
template <bool kBf16>
LATHE_INLINE void ask_for_keys(const ScoreArgs& args, int64_t first, int64_t last) {
  const int64_t bytes = args.width * (kBf16 ? 2 : 4);
  for (int64_t key = first; key < last && key < args.keys.count; ++key) {
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(args.keys.rows[key] + args.keys.offset + at);
  }
}

template <int kHeads, int kKeys, bool kBf16>
LATHE_INLINE void score_heads(const ScoreArgs& args, int64_t head) {
  int64_t key = 0;
  if (head == 0) ask_for_keys<kBf16>(args, 0, kKeysAhead);
  for (; key + kKeys <= args.keys.count; key += kKeys) {
    if (head == 0) ask_for_keys<kBf16>(args, key + kKeysAhead, key + kKeysAhead + kKeys);
    score_block<kHeads, kKeys, kBf16>(args, head, key);
  }
  for (; key < args.keys.count; ++key) score_block<kHeads, 1, kBf16>(args, head, key);
}

template <bool kBf16>
void scores_of(const ScoreArgs& args) {
  int64_t head = 0;
  for (; head + 4 <= args.heads; head += 4) score_heads<4, 2, kBf16>(args, head);
  for (; head + 2 <= args.heads; head += 2) score_heads<2, 4, kBf16>(args, head);
  for (; head < args.heads; ++head) score_heads<1, 8, kBf16>(args, head);
}

void scores(const ScoreArgs& args) { return args.keys.bf16 ? scores_of<true>(args) : scores_of<false>(args); }

template <int kHeads, int kVectors, bool kBf16>
LATHE_INLINE void blend_block(const BlendArgs& args, int64_t head, int64_t column) {
  Vf sum[kHeads][kVectors];
  const int64_t left = args.width - column;
  const bool whole = left >= kVectors * kLanes;
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      sum[h][i] = args.accumulate ? load_first(args.out + (head + h) * args.out_stride + column + i * kLanes, left - i * kLanes) : zero();
    }
  }
  for (int64_t j = 0; j < args.values.count; ++j) {
    const char* const row = args.values.rows[j] + args.values.offset;
    Vf v[kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      v[i] = whole ? load_key<kBf16>(row, column + i * kLanes) : load_key_first<kBf16>(row, column + i * kLanes, left - i * kLanes);
    }
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
      const Vf p = set1(args.p[(head + h) * args.p_stride + j]);
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) sum[h][i] = fma(p, v[i], sum[h][i]);
    }
  }
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) store_first(args.out + (head + h) * args.out_stride + column + i * kLanes, sum[h][i], left - i * kLanes);
  }
}

template <int kHeads, bool kBf16>
LATHE_INLINE void blend_heads(const BlendArgs& args, int64_t head) {
  int64_t column = 0;
  for (; column + 4 * kLanes <= args.width; column += 4 * kLanes) blend_block<kHeads, 4, kBf16>(args, head, column);
  for (; column < args.width; column += kLanes) blend_block<kHeads, 1, kBf16>(args, head, column);
}

template <bool kBf16>
void blend_of(const BlendArgs& args) {
  int64_t head = 0;
  constexpr int kTogether = kLanes == 16 ? 4 : 2;  // accumulators of 16 registers at the lower levels
  for (; head + kTogether <= args.heads; head += kTogether) blend_heads<kTogether, kBf16>(args, head);
  for (; head < args.heads; ++head) blend_heads<1, kBf16>(args, head);
}

void blend(const BlendArgs& args) { return args.values.bf16 ? blend_of<true>(args) : blend_of<false>(args); }

template <int kRows, int kVectors>
LATHE_INLINE void mix_block(const MixArgs& args, int64_t row, int64_t column) {
  Vf sum[kRows][kVectors];
  const int64_t left = args.width - column;
  const bool whole = left >= kVectors * kLanes;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      sum[r][i] = args.accumulate ? load_first(args.out + (row + r) * args.out_stride + column + i * kLanes, left - i * kLanes) : zero();
    }
  }
  const float* const x = args.x + row * args.x_stride;
  const float* w = args.w + column;
  for (int64_t k = 0; k < args.terms; ++k, w += args.width) {
    Vf v[kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) v[i] = whole ? load(w + i * kLanes) : load_first(w + i * kLanes, left - i * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vf a = set1(x[r * args.x_stride + k]);
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) sum[r][i] = fma(a, v[i], sum[r][i]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) store_first(args.out + (row + r) * args.out_stride + column + i * kLanes, sum[r][i], left - i * kLanes);
  }
}

template <int kRows>
LATHE_INLINE void mix_rows(const MixArgs& args, int64_t row) {
  int64_t column = 0;
  for (; column + 4 * kLanes <= args.width; column += 4 * kLanes) mix_block<kRows, 4>(args, row, column);
  for (; column < args.width; column += kLanes) mix_block<kRows, 1>(args, row, column);
}

void mix(const MixArgs& args) {
  constexpr int kTogether = kLanes == 16 ? 4 : 2;
  int64_t row = 0;
  for (; row + kTogether <= args.rows; row += kTogether) mix_rows<kTogether>(args, row);
  for (; row < args.rows; ++row) mix_rows<1>(args, row);
}

float largest(const float* x, int64_t count) {
  Vf most = set1(-__builtin_inff());
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) most = vmax(load(x + i), most);
  float out = hmax(most);
  for (; i < count; ++i) out = x[i] > out ? x[i] : out;
  return out;
}

float soften(float* x, int64_t count, float most) {
  const Vf m = set1(most);
  Vf sum = zero();
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Vf e = vexp(sub(load(x + i), m));
    store(x + i, e);
    sum = add(sum, e);
  }
  if (i < count) {
    store_first(x + i, vexp(sub(load_first(x + i, count - i), m)), count - i);
    sum = add(sum, load_first(x + i, count - i));
  }
  return hsum(sum);
}

void scale_row(float* x, int64_t count, float factor) {
  for (int64_t i = 0; i < count; i += kLanes) store_first(x + i, mul(load_first(x + i, count - i), set1(factor)), count - i);
}

float exp_one(float x) {
  float out[kLanes];
  store(out, vexp(set1(x)));
  return out[0];
}

void relu_sum(const float* dots, int64_t stride, const float* weights, int64_t heads, float scale, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t n = count - i;
    Vf sum = zero();
    for (int64_t h = 0; h < heads; ++h) sum = fma(set1(weights[h]), vmax(zero(), mul(set1(scale), load_first(dots + h * stride + i, n))), sum);
    store_first(out + i, sum, n);
  }
}

uint32_t at_least(const float* x, int64_t count, float bound) {
  uint32_t found = 0;
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t n = count - i < kLanes ? count - i : kLanes;
    const uint32_t below = bits(less(load_first(x + i, n), set1(bound)));
    found |= (~below & ((uint32_t{1} << n) - 1u)) << i;
  }
  return found;
}

void pool(const float* const* keys, const float* const* gates, const float* ape, int64_t tokens, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t n = count - i;
    Vf most = add(load_first(gates[0] + i, n), load_first(ape + i, n));
    for (int64_t j = 1; j < tokens; ++j) most = vmax(most, add(load_first(gates[j] + i, n), load_first(ape + j * count + i, n)));
    Vf sum = zero(), key = zero();
    for (int64_t j = 0; j < tokens; ++j) {
      const Vf weight = vexp(sub(add(load_first(gates[j] + i, n), load_first(ape + j * count + i, n)), most));
      sum = add(sum, weight);
      key = fma(weight, load_first(keys[j] + i, n), key);
    }
    store_first(out + i, div(key, sum), n);
  }
}

void rotate(float* x, const float* cosine, const float* sine, int64_t half) {
  for (int64_t i = 0; i < half; i += kLanes) {
    const int64_t n = half - i;
    const Vf a = load_first(x + i, n), b = load_first(x + half + i, n), c = load_first(cosine + i, n), s = load_first(sine + i, n);
    store_first(x + i, sub(mul(a, c), mul(b, s)), n);
    store_first(x + half + i, add(mul(b, c), mul(a, s)), n);
  }
}

constexpr AttentionIsa attention_level() {
  AttentionIsa isa;
  isa.scores = scores;
  isa.blend = blend;
  isa.mix = mix;
  isa.largest = largest;
  isa.soften = soften;
  isa.scale = scale_row;
  isa.exp = exp_one;
  isa.relu_sum = relu_sum;
  isa.at_least = at_least;
  isa.pool = pool;
  isa.rotate = rotate;
  return isa;
}

}  // namespace
}  // namespace lathe::kernels::cpu::LATHE_ISA
