// The roof of BF16 dot products: AVX-512 with BF16, 32 multiply-adds an instruction.
#include <immintrin.h>

#include "kernels/cpu/roof_isa.h"

namespace lathe::kernels::cpu {
namespace {

constexpr int kAccumulators = 20;

float pair_products(int64_t rounds) {
  __m512 sum[kAccumulators];
#pragma GCC unroll 32  // so that the sums are registers
  for (int i = 0; i < kAccumulators; ++i) sum[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512i bits = _mm512_set1_epi16(0x3F80);  // 1.0
  const __m512bh x = (__m512bh)bits;
  const __m512bh w = (__m512bh)bits;
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 32
    for (int i = 0; i < kAccumulators; ++i) sum[i] = _mm512_dpbf16_ps(sum[i], x, w);
  }
#pragma GCC unroll 32
  for (int i = 1; i < kAccumulators; ++i) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  return _mm512_cvtss_f32(sum[0]);
}

}  // namespace

constexpr RoofLoop kRoofBf16Pairs = {pair_products, 2 * 32 * kAccumulators};

}  // namespace lathe::kernels::cpu
