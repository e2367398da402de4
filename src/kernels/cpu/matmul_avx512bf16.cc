// Matrix products of BF16 pairs: AVX-512 with BF16 and VBMI.
//
// Idea    vdpbf16ps does 32 multiply-adds where a float FMA does 16. Weights become pairs of neighbouring channels, 16 rows a vector, by transposing
//         4-byte words; x stays row-major BF16, whose words are such pairs already and are broadcast.
// FP8     to BF16 is a choice among 128 values: two byte-table lookups (low and high byte) for 64 weights, a sign, two interleavings.
// Limits  an odd channel count is completed by a zero, so only the last segment of a row may be odd.
#define LATHE_ISA avx512bf16
#define LATHE_SIMD_AVX512 1
#include "kernels/cpu/matmul_isa.h"
#include "kernels/cpu/simd.h"

namespace lathe::kernels::cpu::avx512bf16 {
namespace {

constexpr int kWidth = 2 * kLanes;

/// Words of kLanes rows, transposed; beyond `bytes` zeros.
LATHE_INLINE void load_words(const char* const* rows, int64_t offset, int64_t bytes, Vi (&words)[16]) {
  if (bytes >= 64) {
    for (int i = 0; i < 16; ++i) words[i] = iload(rows[i] + offset);
  } else {
    const __mmask64 there = (__mmask64{1} << bytes) - 1;
    for (int i = 0; i < 16; ++i) words[i].v = _mm512_maskz_loadu_epi8(there, rows[i] + offset);
  }
  transpose(words);
}

void pack_bf16(const PackArgs& args) {
  uint32_t* const out = static_cast<uint32_t*>(args.out);
  const int64_t pairs = (args.channels + 1) / 2;
  for (int64_t c = 0; c < pairs; c += 16) {
    for (int half = 0; half < 2; ++half) {
      Vi words[16];
      load_words(args.rows + half * 16, c * 4, args.channels * 2 - c * 4, words);
      uint32_t* const to = out + c * kWidth + half * 16;
      if (pairs - c >= 16) {
#pragma GCC unroll 16
        for (int j = 0; j < 16; ++j) istore(to + j * kWidth, words[j]);
      } else {
        for (int j = 0; j < pairs - c; ++j) istore(to + j * kWidth, words[j]);
      }
    }
  }
}

/// Bytes of the BF16 value of every E4M3 magnitude, and where the bytes of two values go in a word.
struct alignas(64) F8Tables {
  uint8_t low[128];
  uint8_t high[128];
  uint8_t first[64];   // bytes 0 and 1 of each word as a pair
  uint8_t second[64];  // bytes 2 and 3
};

constexpr F8Tables make_tables() {
  F8Tables tables{};
  for (unsigned code = 0; code < 128; ++code) {
    const unsigned exponent = code >> 3, mantissa = code & 7;
    unsigned value = 0;
    if (code == 127) {
      value = 0x7FC0;
    } else if (exponent != 0) {
      value = ((exponent + 120) << 7) | (mantissa << 4);
    } else if (mantissa != 0) {
      // m · 2^-9 is normal in BF16.
      const unsigned top = mantissa >= 4 ? 2 : mantissa >= 2 ? 1 : 0;
      value = ((127 - 9 + top) << 7) | ((mantissa << (7 - top)) & 0x7F);
    }
    tables.low[code] = static_cast<uint8_t>(value);
    tables.high[code] = static_cast<uint8_t>(value >> 8);
  }
  for (unsigned i = 0; i < 64; ++i) {
    const unsigned word = i / 4 * 4, byte = i % 4;
    tables.first[i] = static_cast<uint8_t>(word + byte / 2 + (byte % 2) * 64);
    tables.second[i] = static_cast<uint8_t>(word + 2 + byte / 2 + (byte % 2) * 64);
  }
  return tables;
}
constexpr F8Tables kF8 = make_tables();

void pack_f8(const PackArgs& args) {
  const __m512i low0 = iload(kF8.low).v, low1 = iload(kF8.low + 64).v, high0 = iload(kF8.high).v, high1 = iload(kF8.high + 64).v;
  const __m512i first = iload(kF8.first).v, second = iload(kF8.second).v, sign = _mm512_set1_epi8(static_cast<char>(0x80));
  uint32_t* const out = static_cast<uint32_t*>(args.out);
  const int64_t pairs = (args.channels + 1) / 2;
  for (int64_t c = 0; c < args.channels; c += 64) {
    for (int half = 0; half < 2; ++half) {
      Vi words[16];
      load_words(args.rows + half * 16, c, args.channels - c, words);
      uint32_t* const to = out + c / 2 * kWidth + half * 16;
      const int64_t left = pairs - c / 2;
#pragma GCC unroll 16
      for (int j = 0; j < 16; ++j) {
        const __m512i low = _mm512_permutex2var_epi8(low0, words[j].v, low1);
        const __m512i high = _mm512_ternarylogic_epi32(_mm512_permutex2var_epi8(high0, words[j].v, high1), words[j].v, sign, 0xF8);  // high | (word & sign)
        if (2 * j < left) istore(to + 2 * j * kWidth, {_mm512_permutex2var_epi8(low, first, high)});
        if (2 * j + 1 < left) istore(to + (2 * j + 1) * kWidth, {_mm512_permutex2var_epi8(low, second, high)});
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
  const int64_t stride = args.x_stride * 4;
  const char* x[(kRows + 2) / 3];
#pragma GCC unroll 16
  for (int g = 0; g < (kRows + 2) / 3; ++g) x[g] = static_cast<const char*>(args.x) + 3 * g * stride;
  const char* w = static_cast<const char*>(args.panel);
  for (int64_t c = 0; c < args.steps; ++c, w += 4 * kWidth) {
    const __m512bh w0 = (__m512bh)iload(w).v, w1 = (__m512bh)iload(w + 64).v;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      int32_t pair;
      __builtin_memcpy(&pair, x[r / 3] + r % 3 * stride, 4);
      const __m512bh a = (__m512bh)_mm512_set1_epi32(pair);
      sum[r][0].v = _mm512_dpbf16_ps(sum[r][0].v, a, w0);
      sum[r][1].v = _mm512_dpbf16_ps(sum[r][1].v, a, w1);
    }
#pragma GCC unroll 16
    for (int g = 0; g < (kRows + 2) / 3; ++g) x[g] += 4;
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

constexpr TileFn kTiles[] = {nullptr, tile<1>, tile<2>, tile<3>, tile<4>, tile<5>, tile<6>, tile<7>, tile<8>, tile<9>, tile<10>, tile<11>, tile<12>};
static_assert(sizeof kTiles / sizeof kTiles[0] == kTileRows + 1);

constexpr PairIsa pairs() {
  PairIsa isa;
  isa.pack_bf16 = pack_bf16;
  isa.pack_f8 = pack_f8;
  isa.tile = kTiles;
  return isa;
}

}  // namespace
}  // namespace lathe::kernels::cpu::avx512bf16

namespace lathe::kernels::cpu {

constexpr PairIsa kPairsAvx512Bf16 = avx512bf16::pairs();

}  // namespace lathe::kernels::cpu
