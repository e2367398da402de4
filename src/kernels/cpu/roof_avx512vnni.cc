// The roof of integer dot products: AVX-512 with VNNI, 64 multiply-adds of bytes an instruction.
#include <immintrin.h>

#include "kernels/cpu/roof_isa.h"

namespace lathe::kernels::cpu {
namespace {

constexpr int kAccumulators = 20;

/// In assembly: from the intrinsic, GCC 12 makes moves that halve the rate.
inline void add_products(__m512i& sum, __m512i x, __m512i w) { __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w)); }

float int8_products(int64_t rounds) {
  __m512i sum[kAccumulators];
#pragma GCC unroll 32  // so that the sums are registers
  for (int i = 0; i < kAccumulators; ++i) sum[i] = _mm512_set1_epi32(i);
  const __m512i x = _mm512_set1_epi8(1);
  const __m512i w = _mm512_set1_epi8(-1);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 32
    for (int i = 0; i < kAccumulators; ++i) add_products(sum[i], x, w);
  }
#pragma GCC unroll 32
  for (int i = 1; i < kAccumulators; ++i) sum[0] = _mm512_xor_si512(sum[0], sum[i]);
  int32_t lanes[16];
  _mm512_storeu_si512(lanes, sum[0]);
  return static_cast<float>(lanes[0]);
}

}  // namespace

constexpr RoofLoop kRoofInt8 = {int8_products, 2 * 64 * kAccumulators};

}  // namespace lathe::kernels::cpu
