// Products of INT8 codes: AVX-512 with VNNI.
//
// Idea    vpdpbusd does 64 multiply-adds where vpmaddwd does 32. It takes one side unsigned: a weight code gets 128 more by flipping its highest bit, and a sum
//         has 128 times the sum of x's codes too much.
// Few     rows of x go straight to the weights: integers may be added in any order, so a vector is 64 channels of one row, as it lies. Nothing is moved,
//         four rows are read from end to end, lines ahead are asked for (8192 x 4096, one thread: 24 GB/s from the 16-byte pieces of direct.inl, 27 so;
//         six rows of x: 15 packed, 25 so).
#define LATHE_ISA avx512vnni
#define LATHE_SIMD_AVX512 1
#include "kernels/cpu/matmul_isa.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/codes.inl"

namespace lathe::kernels::cpu::avx512vnni {
namespace {

struct ByteStep {
  static constexpr int64_t kBytes = 1;
  LATHE_INLINE Vf multiply(Vi x, Vi w, Vf sum) { return as_float({_mm512_dpbusd_epi32(as_int(sum).v, w.v, x.v)}); }
  LATHE_INLINE Vf total(const Vf (&v)[4]) { return isum_parts(v); }
};
struct UnsignedCodes {
  static constexpr int kSteps = 1;
  static constexpr bool kFolds = false;
  inline __attribute__((always_inline)) void operator()(Vi raw, Vf, Vi (&out)[1]) const {
    out[0] = {_mm512_xor_si512(raw.v, _mm512_set1_epi8(static_cast<char>(0x80)))};
  }
};

int32_t to_byte_codes(const float* x, int64_t count, float inverse, void* out) {
  char* const codes = static_cast<char*>(out);
  if (inverse == 0) return __builtin_memset(out, 0, static_cast<size_t>(count)), 0;
  Vi sum = iset1(0);
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vi code = codes_at(x + i, count - i, set1(inverse));
    _mm512_mask_cvtepi32_storeu_epi8(codes + i, first_lanes(count - i), code.v);
    sum = iadd(sum, code);
  }
  return _mm512_reduce_add_epi32(sum.v);
}

// 4 x 6 sums, four weights and one of x are 29 of 32 registers.
constexpr int kRowsAtOnce = 6;
constexpr int64_t kAheadBytes = 1024;  // of each of four rows: what covers the latency of memory

/// Four rows of weights times kRows rows of x.
template <int kRows>
struct StreamSums {
  __m512i of[kRows][4];

  inline __attribute__((always_inline)) void clear() {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) of[r][i] = _mm512_setzero_si512();
    }
  }
  /// Channels [at, at + 64), those that are there.
  inline __attribute__((always_inline)) void add(const char* const (&w)[4], const char* const (&x)[(kRows + 2) / 3], int64_t stride, int64_t at,
                                                 __mmask64 there) {
    __m512i weight[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) weight[i] = _mm512_xor_si512(_mm512_maskz_loadu_epi8(there, w[i] + at), _mm512_set1_epi8(static_cast<char>(0x80)));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512i code = _mm512_maskz_loadu_epi8(there, x[r / 3] + r % 3 * stride + at);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) of[r][i] = _mm512_dpbusd_epi32(of[r][i], weight[i], code);
    }
  }
  /// total[row of x][i], int32 in the bits of floats.
  inline __attribute__((always_inline)) void store(float* total) const {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      Vf sums[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) sums[i] = as_float({of[r][i]});
      const __m512i parts = as_int(isum_parts(sums)).v;
      const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(parts), _mm512_extracti64x4_epi64(parts, 1));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(total + r * 2 * kLanes),
                       _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
    }
  }
};

template <int kRows>
void stream(const DirectArgs& args) {
  // One pointer for three rows, as in tile.inl.
  const char* x[(kRows + 2) / 3];
#pragma GCC unroll 2
  for (int g = 0; g < (kRows + 2) / 3; ++g) x[g] = args.x + 3 * g * args.x_stride;
  // Near the end of four rows: the next four.
  const int64_t turn = args.bytes - kAheadBytes, wrap = args.bytes < kAheadBytes ? 4 * args.row_bytes : 4 * args.row_bytes + kAheadBytes - args.bytes;
  for (int64_t n = 0; n < args.present; n += 4) {
    const char* w[4];
    for (int64_t i = 0; i < 4; ++i) w[i] = args.weights + (n + i < args.present ? n + i : args.present - 1) * args.row_bytes;
    StreamSums<kRows> sums;
    sums.clear();
    int64_t at = 0;
    for (; at + 64 <= args.bytes; at += 64) {
      const int64_t next = at + (at < turn ? kAheadBytes : wrap);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        __builtin_prefetch(reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(w[i]) + static_cast<uintptr_t>(next)));
      }
      sums.add(w, x, args.x_stride, at, ~__mmask64{0});
    }
    if (at < args.bytes) sums.add(w, x, args.x_stride, at, (__mmask64{1} << (args.bytes - at)) - 1);
    sums.store(args.total + n);
  }
}
constexpr DirectFn kStreams[kDirectRowsMax + 1] = {nullptr, stream<1>, stream<2>, stream<3>, stream<4>, stream<5>, stream<kRowsAtOnce>};

constexpr CodesIsa byte_level() {
  CodesIsa isa = codes_level<UnsignedCodes, ByteStep>();
  isa.weight_excess = 128;
  isa.to_codes = to_byte_codes;
  isa.direct = kStreams;
  return isa;
}

}  // namespace
}  // namespace lathe::kernels::cpu::avx512vnni

namespace lathe::kernels::cpu {

constexpr CodesIsa kCodesAvx512Vnni = avx512vnni::byte_level();

}  // namespace lathe::kernels::cpu
