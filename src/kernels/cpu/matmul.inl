// Panels and tiles in float, for every level (matmul_isa.h). Included once per level by matmul_<level>.cc, after simd.h.
#include "kernels/cpu/direct.inl"

namespace lathe::kernels::cpu::LATHE_ISA {
namespace {

/// How 16 bytes of a row become steps of four floats.
struct FromF32 {
  static constexpr int kSteps = 1;
  LATHE_INLINE void decode(Vi raw, Vf (&out)[1]) { out[0] = as_float(raw); }
};
/// Values wider than BF16 are rounded to it in fast mode.
template <class From>
struct Rounded {
  static constexpr int kSteps = From::kSteps;
  LATHE_INLINE void decode(Vi raw, Vf (&out)[kSteps]) {
    From::decode(raw, out);
    for (int i = 0; i < kSteps; ++i) out[i] = as_float(bf16_high(out[i]));
  }
};
struct FromBf16 {
  static constexpr int kSteps = 2;
  LATHE_INLINE void decode(Vi raw, Vf (&out)[2]) {
    out[0] = as_float(low_halves(iset1(0), raw));
    out[1] = as_float(high_halves(iset1(0), raw));
  }
};
struct FromF16 {
  static constexpr int kSteps = 2;
  LATHE_INLINE void decode(Vi raw, Vf (&out)[2]) {
    out[0] = half_to_float(low_halves(raw, iset1(0)));
    out[1] = half_to_float(high_halves(raw, iset1(0)));
  }
};
struct FromF8 {
  static constexpr int kSteps = 4;
  LATHE_INLINE void spread(Vi raw, bool with_nan, Vf (&out)[4]) {
    const Vi low = low_bytes(iset1(0), raw), high = high_bytes(iset1(0), raw);
    out[0] = f8_high_to_float(low_halves(iset1(0), low), with_nan);
    out[1] = f8_high_to_float(high_halves(iset1(0), low), with_nan);
    out[2] = f8_high_to_float(low_halves(iset1(0), high), with_nan);
    out[3] = f8_high_to_float(high_halves(iset1(0), high), with_nan);
  }
  LATHE_INLINE void decode(Vi raw, Vf (&out)[4]) {
    if (__builtin_expect(any_f8_nan(raw), 0)) {
      spread(raw, true, out);
    } else {
      spread(raw, false, out);
    }
  }
};

struct FromI8 {
  static constexpr int kSteps = 4;
  LATHE_INLINE void decode(Vi raw, Vf (&out)[4]) {
    const Vi low = low_bytes(iset1(0), raw), high = high_bytes(iset1(0), raw);
    out[0] = to_float(shift_right_sign<24>(low_halves(iset1(0), low)));
    out[1] = to_float(shift_right_sign<24>(high_halves(iset1(0), low)));
    out[2] = to_float(shift_right_sign<24>(low_halves(iset1(0), high)));
    out[3] = to_float(shift_right_sign<24>(high_halves(iset1(0), high)));
  }
};

template <class From>
void pack(const PackArgs& args) {
  constexpr int kSteps = From::kSteps;
  const int64_t steps = (args.channels + 3) / 4, bytes = args.channels * 4 / kSteps;
  for (int group = 0; group < 2; ++group) {
    const char* const* const rows = args.rows + group * kLanes;
    float* const out = static_cast<float*>(args.out) + group * steps * kGroup;
    for (int i = 0; i < 4; ++i) {
      const Vf scale = args.scale != nullptr ? load(args.scale + group * kGroup + i * kLanes) : set1(1.0f);
      int64_t at = 0, step = 0;
      for (; at + 16 * kSquare <= bytes; at += 16 * kSquare, step += kSquare * kSteps) {
        if (at % 64 == 0) prefetch_rows(rows + i, at + args.prefetch);
        Vi raw[kSquare];
        load_square(rows + i, at, raw);
#pragma GCC unroll 4
        for (int p = 0; p < kSquare; ++p) {
          Vf parts[kSteps];
          From::decode(raw[p], parts);
#pragma GCC unroll 4
          for (int s = 0; s < kSteps; ++s) store(out + (step + p * kSteps + s) * kGroup + i * kLanes, mul(parts[s], scale));
        }
      }
      for (; at < bytes; at += 16, step += kSteps) {
        const bool full = at + 16 <= bytes;
        const Vi raw = full ? load_parts(rows + i, at) : load_tail(rows + i, at, bytes - at);
        Vf parts[kSteps];
        From::decode(raw, parts);
#pragma GCC unroll 4
        for (int s = 0; s < kSteps; ++s) {
          if (full || step + s < steps) store(out + (step + s) * kGroup + i * kLanes, mul(parts[s], scale));
        }
      }
    }
  }
}

void round_bf16_rows(const float* x, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(out + i, as_float(bf16_high(load(x + i))));
  if (i < count) store_first(out + i, as_float(bf16_high(load_first(x + i, count - i))), count - i);
}

void to_bf16_rows(const float* x, int64_t count, uint16_t* out) {
  for (int64_t i = 0; i < count; i += kLanes) store_low16_first(out + i, shift_right<16>(bf16_high(load_first(x + i, count - i))), count - i);
}

void add_rows(float* a, const float* b, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(a + i, add(load(a + i), load(b + i)));
  if (i < count) store_first(a + i, add(load_first(a + i, count - i), load_first(b + i, count - i)), count - i);
}

void scaled_row(const float* a, float factor, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) store_first(out + i, mul(load_first(a + i, count - i), set1(factor)), count - i);
}

void swiglu_rows(const float* gate, const float* up, float limit, int64_t count, float* out) {
  const Vf high = set1(limit), low = set1(-limit);
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t n = count - i;
    const Vf g = vmin(high, load_first(gate + i, n));
    const Vf u = vmax(low, vmin(high, load_first(up + i, n)));
    store_first(out + i, mul(vsilu(g), u), n);
  }
}

static_assert(sizeof kTilesOf<FloatStep, NotAsking> / sizeof(TileFn) == kTileRows + 1);

#if defined(LATHE_SIMD_AVX512)
constexpr int kFloatRows = 4;
#else
constexpr int kFloatRows = 3;  // 16 registers hold no more
#endif

/// Weights as a product takes them in floats; kFold: times the factor of their block.
template <class From, bool kFold = false>
struct FloatDecode {
  static constexpr int kSteps = From::kSteps;
  static constexpr bool kFolds = kFold;
  inline __attribute__((always_inline)) void operator()(Vi raw, Vf scale, Vi (&out)[kSteps]) const {
    Vf parts[kSteps];
    From::decode(raw, parts);
#pragma GCC unroll 4
    for (int s = 0; s < kSteps; ++s) out[s] = as_int(kFold ? mul(parts[s], scale) : parts[s]);
  }
};
template <class From, bool kFold = false>
struct FloatDirect {
  static constexpr DirectFn kByRows[kDirectRowsMax + 1] = {
      nullptr, direct<1, FloatDecode<From, kFold>, FloatStep>, direct<2, FloatDecode<From, kFold>, FloatStep>,
      direct<3, FloatDecode<From, kFold>, FloatStep>, kFloatRows == 4 ? direct<kFloatRows, FloatDecode<From, kFold>, FloatStep> : nullptr};
};

constexpr MatmulIsa base_level() {
  MatmulIsa isa;
  isa.width = 2 * kLanes;
  isa.tile_rows = kTileRows;
  isa.direct_rows = kFloatRows;
  isa.pack_f32 = pack<FromF32>;
  isa.pack_bf16 = pack<FromBf16>;
  isa.pack_f16 = pack<FromF16>;
  isa.pack_f8 = pack<FromF8>;
  isa.pack_i8 = pack<FromI8>;
  isa.pack_f32_rounded = pack<Rounded<FromF32>>;
  isa.pack_f16_rounded = pack<Rounded<FromF16>>;
  isa.tile = kTilesOf<FloatStep, NotAsking>;
  isa.tile_asking = kTilesOf<FloatStep, Asking>;
  isa.direct_f32 = FloatDirect<FromF32>::kByRows;
  isa.direct_bf16 = FloatDirect<FromBf16>::kByRows;
  isa.direct_f16 = FloatDirect<FromF16>::kByRows;
  isa.direct_f8 = FloatDirect<FromF8>::kByRows;
  isa.direct_f8_scaled = FloatDirect<FromF8, true>::kByRows;
  isa.direct_f32_rounded = FloatDirect<Rounded<FromF32>>::kByRows;
  isa.direct_f16_rounded = FloatDirect<Rounded<FromF16>>::kByRows;
  isa.round_bf16 = round_bf16_rows;
  isa.to_bf16 = to_bf16_rows;
  isa.scaled = scaled_row;
  isa.add = add_rows;
  isa.swiglu = swiglu_rows;
  return isa;
}

}  // namespace
}  // namespace lathe::kernels::cpu::LATHE_ISA
