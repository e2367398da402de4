// Matrix products of BF16 pairs: AVX-512 with BF16 and VBMI.
//
// Idea    vdpbf16ps does 32 multiply-adds where a float FMA does 16. A step is 8 channels of a row: weights and x as they lie in memory.
// FP8     to BF16 is a choice among 128 values: two byte-table lookups (low and high byte) for 64 weights, a sign, two interleavings.
#define LATHE_ISA avx512bf16
#define LATHE_SIMD_AVX512 1
#include "kernels/cpu/matmul_isa.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/direct.inl"

namespace lathe::kernels::cpu::avx512bf16 {
namespace {

struct PairStep {
  static constexpr int64_t kBytes = 2;
  LATHE_INLINE Vf multiply(Vi x, Vi w, Vf sum) { return {_mm512_dpbf16_ps(sum.v, (__m512bh)x.v, (__m512bh)w.v)}; }
  LATHE_INLINE Vf total(const Vf (&v)[4]) { return sum_parts(v); }
};

void pack_bf16(const PackArgs& args) {
  const int64_t steps = (args.channels + 7) / 8, full = args.channels / 8;
  for (int group = 0; group < 2; ++group) {
    const char* const* const rows = args.rows + group * 16;
    float* const out = static_cast<float*>(args.out) + group * steps * kGroup;
    for (int i = 0; i < 4; ++i) {
      int64_t step = 0;
      for (; step + 4 <= full; step += 4) {
        prefetch_rows(rows + i, step * 16 + args.prefetch);
        Vi pieces[4];
        load_square(rows + i, step * 16, pieces);
#pragma GCC unroll 4
        for (int p = 0; p < 4; ++p) istore(out + (step + p) * kGroup + i * 16, pieces[p]);
      }
      for (; step < full; ++step) istore(out + step * kGroup + i * 16, load_parts(rows + i, step * 16));
      if (full < steps) istore(out + full * kGroup + i * 16, load_tail(rows + i, full * 16, args.channels * 2 - full * 16));
    }
  }
}

/// Bytes of the BF16 value of every E4M3 magnitude.
struct alignas(64) F8Tables {
  uint8_t low[128];
  uint8_t high[128];
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
  return tables;
}
constexpr F8Tables kF8 = make_tables();

struct DecodeBf16 {
  static constexpr int kSteps = 1;
  static constexpr bool kFolds = false;
  inline __attribute__((always_inline)) void operator()(Vi raw, Vf, Vi (&out)[1]) const { out[0] = raw; }
};
struct DecodeF8 {
  static constexpr int kSteps = 2;
  static constexpr bool kFolds = false;
  __m512i low0 = iload(kF8.low).v, low1 = iload(kF8.low + 64).v, high0 = iload(kF8.high).v, high1 = iload(kF8.high + 64).v;
  __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));

  inline __attribute__((always_inline)) void operator()(Vi raw, Vf, Vi (&out)[2]) const {
    const Vi low = {_mm512_permutex2var_epi8(low0, raw.v, low1)};
    const Vi high = {_mm512_ternarylogic_epi32(_mm512_permutex2var_epi8(high0, raw.v, high1), raw.v, sign, 0xF8)};  // high | (raw & sign)
    out[0] = low_bytes(low, high);
    out[1] = high_bytes(low, high);
  }
};

void pack_f8(const PackArgs& args) {
  const DecodeF8 decode;
  const int64_t steps = (args.channels + 7) / 8;
  for (int group = 0; group < 2; ++group) {
    const char* const* const rows = args.rows + group * 16;
    float* const out = static_cast<float*>(args.out) + group * steps * kGroup;
    for (int i = 0; i < 4; ++i) {
      int64_t at = 0;
      for (; at + 64 <= args.channels; at += 64) {
        prefetch_rows(rows + i, at + args.prefetch);
        Vi raw[4];
        load_square(rows + i, at, raw);
#pragma GCC unroll 4
        for (int p = 0; p < 4; ++p) {
          Vi parts[2];
          decode(raw[p], zero(), parts);
          float* const to = out + (at / 8 + 2 * p) * kGroup + i * 16;
          istore(to, parts[0]);
          istore(to + kGroup, parts[1]);
        }
      }
      for (; at < args.channels; at += 16) {
        const bool full = at + 16 <= args.channels;
        const Vi raw = full ? load_parts(rows + i, at) : load_tail(rows + i, at, args.channels - at);
        Vi parts[2];
        decode(raw, zero(), parts);
        float* const to = out + at / 8 * kGroup + i * 16;
        istore(to, parts[0]);
        if (full || at + 8 < args.channels) istore(to + kGroup, parts[1]);
      }
    }
  }
}

static_assert(sizeof kTilesOf<PairStep, NotAsking> / sizeof(TileFn) == kTileRows + 1);

/// E4M3 at six rows keeps some of its registers in memory, and is a third faster than packed.
template <class Decode>
struct PairDirect {
  static constexpr DirectFn kByRows[kDirectRowsMax + 1] = {nullptr,
                                                           direct<1, Decode, PairStep>,
                                                           direct<2, Decode, PairStep>,
                                                           direct<3, Decode, PairStep>,
                                                           direct<4, Decode, PairStep>,
                                                           direct<5, Decode, PairStep>,
                                                           direct<6, Decode, PairStep>};
};

constexpr PairIsa pairs() {
  PairIsa isa;
  isa.pack_bf16 = pack_bf16;
  isa.pack_f8 = pack_f8;
  isa.tile = kTilesOf<PairStep, NotAsking>;
  isa.tile_asking = kTilesOf<PairStep, Asking>;
  isa.direct_bf16 = PairDirect<DecodeBf16>::kByRows;
  isa.direct_f8 = PairDirect<DecodeF8>::kByRows;
  return isa;
}

}  // namespace
}  // namespace lathe::kernels::cpu::avx512bf16

namespace lathe::kernels::cpu {

constexpr PairIsa kPairsAvx512Bf16 = avx512bf16::pairs();

}  // namespace lathe::kernels::cpu
