// Panels and tiles in float, for every level (matmul_isa.h). Included once per level by matmul_<level>.cc, after simd.h.

namespace lathe::kernels::cpu::LATHE_ISA {
namespace {

constexpr int kWidth = 2 * kLanes;

/// E4M3 in the lowest byte of each lane: the seven low bits become exponent and mantissa of a float that is 2^-120 too small; the product is exact.
LATHE_INLINE Vf f8_to_float(Vi byte) {
  const Vi magnitude = iand(byte, iset1(0x7F));
  const Vf value = mul(as_float(shift_left<20>(magnitude)), set1(0x1p120f));
  const Vf checked = select(iequal(magnitude, iset1(0x7F)), as_float(iset1(0x7FC00000)), value);
  return as_float(ior(as_int(checked), shift_left<24>(iand(byte, iset1(0x80)))));
}

struct FromF32 {
  static constexpr int kPerWord = 1;
  LATHE_INLINE Vf part(Vi word, int) { return as_float(word); }
};
struct FromBf16 {
  static constexpr int kPerWord = 2;
  LATHE_INLINE Vf part(Vi word, int which) { return as_float(which == 0 ? shift_left<16>(word) : iand(word, iset1(static_cast<int32_t>(0xFFFF0000u)))); }
};
struct FromF16 {
  static constexpr int kPerWord = 2;
  LATHE_INLINE Vf part(Vi word, int which) { return half_to_float(which == 0 ? word : shift_right<16>(word)); }
};
struct FromF8 {
  static constexpr int kPerWord = 4;
  LATHE_INLINE Vf part(Vi word, int which) {
    return f8_to_float(which == 0 ? word : which == 1 ? shift_right<8>(word) : which == 2 ? shift_right<16>(word) : shift_right<24>(word));
  }
};

/// Words (4 bytes) [word, word + kLanes) of kLanes rows, transposed: words[j] holds word j of every row. `bytes` of each row are there, the rest is 0.
LATHE_INLINE void load_words(const char* const* rows, int64_t offset, int64_t bytes, Vi (&words)[kLanes]) {
  if (bytes >= 4 * kLanes) {
    for (int i = 0; i < kLanes; ++i) words[i] = iload(rows[i] + offset);
  } else {
    for (int i = 0; i < kLanes; ++i) {
      char part[4 * kLanes] = {};
      __builtin_memcpy(part, rows[i] + offset, static_cast<size_t>(bytes));
      words[i] = iload(part);
    }
  }
  transpose(words);
}

template <class From>
void pack(const PackArgs& args) {
  constexpr int kPerWord = From::kPerWord;
  constexpr int64_t kElementBytes = 4 / kPerWord;
  float* const out = static_cast<float*>(args.out);
  for (int half = 0; half < 2; ++half) {
    const Vf scale = args.row_scale != nullptr ? load(args.row_scale + half * kLanes) : set1(1.0f);
    for (int64_t c = 0; c < args.channels; c += kLanes * kPerWord) {
      Vi words[kLanes];
      load_words(args.rows + half * kLanes, c * kElementBytes, (args.channels - c) * kElementBytes, words);
      const int64_t left = args.channels - c;
      float* to = out + c * kWidth + half * kLanes;
#pragma GCC unroll 16
      for (int j = 0; j < kLanes; ++j) {
        for (int p = 0; p < kPerWord; ++p) {
          if (j * kPerWord + p < left) store(to + (j * kPerWord + p) * kWidth, mul(From::part(words[j], p), scale));
        }
      }
    }
  }
}

template <int kRows>
void tile(const TileArgs& args) {
  Vf sum[kRows][2];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = zero();
  // One pointer for three rows: the other two are reached by the address forms [p + s] and [p + 2 s].
  const int64_t stride = args.x_stride;
  const float* x[(kRows + 2) / 3];
#pragma GCC unroll 16
  for (int g = 0; g < (kRows + 2) / 3; ++g) x[g] = static_cast<const float*>(args.x) + 3 * g * stride;
  const float* w = static_cast<const float*>(args.panel);
  for (int64_t c = 0; c < args.steps; ++c, w += kWidth) {
    const Vf w0 = load(w), w1 = load(w + kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vf a = set1(x[r / 3][r % 3 * stride]);
      sum[r][0] = fma(a, w0, sum[r][0]);
      sum[r][1] = fma(a, w1, sum[r][1]);
    }
#pragma GCC unroll 16
    for (int g = 0; g < (kRows + 2) / 3; ++g) ++x[g];
  }
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const Vf scale = args.scale != nullptr ? load(args.scale + h * kLanes) : set1(1.0f);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      float* const at = args.total + r * kWidth + h * kLanes;
      store(at, args.accumulate ? fma(sum[r][h], scale, load(at)) : mul(sum[r][h], scale));
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

void swiglu_rows(const float* gate, const float* up, float limit, int64_t count, float* out) {
  const Vf high = set1(limit), low = set1(-limit);
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t n = count - i;
    const Vf g = vmin(high, load_first(gate + i, n));
    const Vf u = vmax(low, vmin(high, load_first(up + i, n)));
    store_first(out + i, mul(vsilu(g), u), n);
  }
}

#if defined(LATHE_SIMD_AVX512)
constexpr TileFn kTiles[] = {nullptr, tile<1>, tile<2>, tile<3>, tile<4>, tile<5>, tile<6>, tile<7>, tile<8>, tile<9>, tile<10>, tile<11>, tile<12>};
#else
constexpr TileFn kTiles[] = {nullptr, tile<1>, tile<2>, tile<3>, tile<4>, tile<5>, tile<6>};
#endif
static_assert(sizeof kTiles / sizeof kTiles[0] == kTileRows + 1);

constexpr MatmulIsa base_level() {
  MatmulIsa isa;
  isa.width = kWidth;
  isa.tile_rows = kTileRows;
  isa.pack_f32 = pack<FromF32>;
  isa.pack_bf16 = pack<FromBf16>;
  isa.pack_f16 = pack<FromF16>;
  isa.pack_f8 = pack<FromF8>;
  isa.tile = kTiles;
  isa.round_bf16 = round_bf16_rows;
  isa.to_bf16 = to_bf16_rows;
  isa.add = add_rows;
  isa.swiglu = swiglu_rows;
  return isa;
}

}  // namespace
}  // namespace lathe::kernels::cpu::LATHE_ISA
