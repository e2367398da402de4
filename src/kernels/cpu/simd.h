#pragma once
// The vector types of one instruction-set level, and functions on them that are the same at every level.
//
// A kernel body (x.inl) is written once against these names and included by one file per level, which defines LATHE_ISA (the namespace) and one of
// LATHE_SIMD_SCALAR, LATHE_SIMD_AVX2, LATHE_SIMD_AVX512. Everything here has internal linkage: no copy for one level may be used by another.
//
// Vf: kLanes floats; Vi: kLanes 32-bit integers; Vm: a mask. load_first(p, n) reads n elements and fills with zeros; store_first(p, a, n) writes n.
// fma(a, b, c) = a·b + c, one rounding where the level has it. vmin and vmax return their second argument if either is NaN.

#if defined(LATHE_SIMD_AVX512)
#include "kernels/cpu/simd_avx512.h"
#elif defined(LATHE_SIMD_AVX2)
#include "kernels/cpu/simd_avx2.h"
#else
#include "kernels/cpu/simd_scalar.h"
#endif

namespace lathe::kernels::cpu::LATHE_ISA {
namespace {

/// e^r − 1 for |r| ≤ ln2/2: r + r²·q(r), q of degree 5 (Taylor; the first term left out is r^8/8! < 6e-9 of the result).
LATHE_INLINE Vf expm1_small(Vf r) {
  Vf q = set1(1.0f / 5040.0f);
  q = fma(q, r, set1(1.0f / 720.0f));
  q = fma(q, r, set1(1.0f / 120.0f));
  q = fma(q, r, set1(1.0f / 24.0f));
  q = fma(q, r, set1(1.0f / 6.0f));
  q = fma(q, r, set1(0.5f));
  return fma(mul(q, r), r, r);
}

/// 2^n for −126 ≤ n ≤ 127.
LATHE_INLINE Vf power_of_two(Vi n) { return as_float(shift_left<23>(iadd(n, iset1(127)))); }

/// x = n·ln2 + r with |r| ≤ ln2/2.
LATHE_INLINE Vi reduce(Vf x, Vf& r) {
  const Vi n = round_int(mul(x, set1(1.44269504f)));
  const Vf f = to_float(n);
  r = fma(f, set1(-0x1.62e400p-1f), x);  // ln2 in two parts: f times the first is exact
  r = fma(f, set1(-0x1.7f7d1cp-20f), r);
  return n;
}

/// e^x, ≤ 2 ulp (measured: simd_test.cc). NaN stays NaN, overflow gives infinity, results below the normal range are rounded to subnormals or 0.
LATHE_INLINE Vf vexp(Vf x) {
  x = vmax(set1(-105.0f), vmin(set1(89.0f), x));
  Vf r;
  const Vi n = reduce(x, r);
  const Vi half = shift_right_sign<1>(n);  // two factors: n goes from −151 to 128
  const Vf p = add(expm1_small(r), set1(1.0f));
  return mul(mul(p, power_of_two(half)), power_of_two(isub(n, half)));
}

/// e^x − 1, ≤ 2 ulp for x ≤ 88, where small x keep their digits.
LATHE_INLINE Vf vexpm1(Vf x) {
  x = vmax(set1(-30.0f), vmin(set1(88.0f), x));
  Vf r;
  const Vi n = reduce(x, r);
  const Vf scale = power_of_two(n);
  return fma(scale, expm1_small(r), sub(scale, set1(1.0f)));
}

/// 1 / (1 + e^−x).
LATHE_INLINE Vf vsigmoid(Vf x) { return div(set1(1.0f), add(set1(1.0f), vexp(sub(zero(), x)))); }
/// x / (1 + e^−x).
LATHE_INLINE Vf vsilu(Vf x) { return mul(x, vsigmoid(x)); }

/// Rounded to BF16 (nearest even): the upper halves of the lanes, lower halves zero. NaN stays NaN.
LATHE_INLINE Vi bf16_high(Vf x) {
  const Vi i = as_int(x);
  const Vi rounded = iadd(i, iadd(iand(shift_right<16>(i), iset1(1)), iset1(0x7FFF)));
  const Vi kept = as_int(select(is_nan(x), as_float(ior(i, iset1(0x00400000))), as_float(rounded)));
  return iand(kept, iset1(static_cast<int32_t>(0xFFFF0000u)));
}

/// Sums over the four lanes of every 128-bit part of four vectors: out lane 4q + i = sum of part q of v[i], added as (0 + 2) + (1 + 3).
LATHE_INLINE Vf sum_parts(const Vf (&v)[4]) {
  const Vf ab = add(low_lanes(v[0], v[1]), high_lanes(v[0], v[1]));
  const Vf cd = add(low_lanes(v[2], v[3]), high_lanes(v[2], v[3]));
  return add(low_pairs(ab, cd), high_pairs(ab, cd));
}

/// The same of integers.
LATHE_INLINE Vf isum_parts(const Vf (&v)[4]) {
  const Vf ab = as_float(iadd(as_int(low_lanes(v[0], v[1])), as_int(high_lanes(v[0], v[1]))));
  const Vf cd = as_float(iadd(as_int(low_lanes(v[2], v[3])), as_int(high_lanes(v[2], v[3]))));
  return as_float(iadd(as_int(low_pairs(ab, cd)), as_int(high_pairs(ab, cd))));
}

/// E4M3 in the highest byte of each lane, lower bytes zero. Sign and seven bits become those of a float that is 2^-120 too small; the product is exact.
LATHE_INLINE Vf f8_high_to_float(Vi a, bool with_nan) {
  const Vi moved = iand(shift_right_sign<4>(a), iset1(static_cast<int32_t>(0x87F00000u)));
  const Vf value = mul(as_float(moved), set1(0x1p120f));
  if (!with_nan) return value;
  const Vi magnitude = iand(a, iset1(0x7F000000));
  return select(iequal(magnitude, iset1(0x7F000000)), as_float(ior(a, iset1(0x7FC00000))), value);
}

}  // namespace
}  // namespace lathe::kernels::cpu::LATHE_ISA
