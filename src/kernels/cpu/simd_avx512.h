#pragma once
// Vector types of the AVX-512 levels (F, BW, DQ, VL). Include only from a file of that level; see simd.h for what every level offers.

#include <immintrin.h>

#include <cstdint>

// GCC's own headers warn about their undefined vectors.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define LATHE_INLINE static inline __attribute__((always_inline))

namespace lathe::kernels::cpu::LATHE_ISA {
namespace {

constexpr int kLanes = 16;
constexpr int kTileRows = 6;  // 6 x 4 accumulators, 4 weights, 1 of x: 29 of 32 registers

struct Vf {
  __m512 v;
};
struct Vi {
  __m512i v;
};
struct Vm {
  __mmask16 v;
};

LATHE_INLINE __mmask16 first_lanes(int64_t n) { return n >= 16 ? __mmask16{0xFFFF} : n <= 0 ? __mmask16{0} : static_cast<__mmask16>((1u << n) - 1u); }

LATHE_INLINE Vf zero() { return {_mm512_setzero_ps()}; }
LATHE_INLINE Vf set1(float a) { return {_mm512_set1_ps(a)}; }
LATHE_INLINE Vf load(const float* p) { return {_mm512_loadu_ps(p)}; }
LATHE_INLINE Vf load_first(const float* p, int64_t n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
LATHE_INLINE void store(float* p, Vf a) { _mm512_storeu_ps(p, a.v); }
LATHE_INLINE void store_first(float* p, Vf a, int64_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), a.v); }
LATHE_INLINE Vf fma(Vf a, Vf b, Vf c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
LATHE_INLINE Vf add(Vf a, Vf b) { return {_mm512_add_ps(a.v, b.v)}; }
LATHE_INLINE Vf sub(Vf a, Vf b) { return {_mm512_sub_ps(a.v, b.v)}; }
LATHE_INLINE Vf mul(Vf a, Vf b) { return {_mm512_mul_ps(a.v, b.v)}; }
LATHE_INLINE Vf div(Vf a, Vf b) { return {_mm512_div_ps(a.v, b.v)}; }
LATHE_INLINE Vf vsqrt(Vf a) { return {_mm512_sqrt_ps(a.v)}; }
LATHE_INLINE Vf vmin(Vf a, Vf b) { return {_mm512_min_ps(a.v, b.v)}; }
LATHE_INLINE Vf vmax(Vf a, Vf b) { return {_mm512_max_ps(a.v, b.v)}; }
/// The larger of `most` ≥ 0 and |a|; `most` if a is NaN.
LATHE_INLINE Vf vmax_magnitude(Vf most, Vf a) { return {_mm512_range_ps(most.v, a.v, 0xB)}; }
LATHE_INLINE Vm less(Vf a, Vf b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
LATHE_INLINE Vm is_nan(Vf a) { return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)}; }
LATHE_INLINE Vf select(Vm m, Vf yes, Vf no) { return {_mm512_mask_blend_ps(m.v, no.v, yes.v)}; }
LATHE_INLINE uint32_t bits(Vm m) { return m.v; }

LATHE_INLINE Vi iset1(int32_t a) { return {_mm512_set1_epi32(a)}; }
LATHE_INLINE Vi iload(const void* p) { return {_mm512_loadu_si512(p)}; }
LATHE_INLINE void istore(void* p, Vi a) { _mm512_storeu_si512(p, a.v); }
LATHE_INLINE Vi iadd(Vi a, Vi b) { return {_mm512_add_epi32(a.v, b.v)}; }
LATHE_INLINE Vi isub(Vi a, Vi b) { return {_mm512_sub_epi32(a.v, b.v)}; }
LATHE_INLINE Vi iand(Vi a, Vi b) { return {_mm512_and_si512(a.v, b.v)}; }
LATHE_INLINE Vi ior(Vi a, Vi b) { return {_mm512_or_si512(a.v, b.v)}; }
template <int n>
LATHE_INLINE Vi shift_left(Vi a) {
  return {_mm512_slli_epi32(a.v, n)};
}
template <int n>
LATHE_INLINE Vi shift_right(Vi a) {
  return {_mm512_srli_epi32(a.v, n)};
}
template <int n>
LATHE_INLINE Vi shift_right_sign(Vi a) {
  return {_mm512_srai_epi32(a.v, n)};
}
LATHE_INLINE Vm iequal(Vi a, Vi b) { return {_mm512_cmpeq_epi32_mask(a.v, b.v)}; }
LATHE_INLINE Vf as_float(Vi a) { return {_mm512_castsi512_ps(a.v)}; }
LATHE_INLINE Vi as_int(Vf a) { return {_mm512_castps_si512(a.v)}; }
LATHE_INLINE Vi round_int(Vf a) { return {_mm512_cvtps_epi32(a.v)}; }
LATHE_INLINE Vf to_float(Vi a) { return {_mm512_cvtepi32_ps(a.v)}; }

LATHE_INLINE float hsum(Vf a) {
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
LATHE_INLINE float hmax(Vf a) {
  const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 d = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}

LATHE_INLINE Vf load_bf16(const uint16_t* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16))};
}
LATHE_INLINE Vf load_bf16_first(const uint16_t* p, int64_t n) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first_lanes(n), p)), 16))};
}
/// The low 16 bits of each lane as half precision.
LATHE_INLINE Vf half_to_float(Vi a) { return {_mm512_cvtph_ps(_mm512_cvtepi32_epi16(a.v))}; }
LATHE_INLINE Vf load_half(const uint16_t* p) { return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))}; }
LATHE_INLINE void store_low16(uint16_t* p, Vi a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(a.v)); }
/// Half precision of each lane, nearest even, in its low 16 bits.
LATHE_INLINE Vi float_to_half(Vf a) { return {_mm512_cvtepu16_epi32(_mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))}; }
LATHE_INLINE void store_half(uint16_t* p, Vf a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
/// Bytes with a sign.
LATHE_INLINE Vi load_bytes(const int8_t* p) { return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))}; }
LATHE_INLINE Vi load_bytes_first(const int8_t* p, int64_t n) { return {_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(first_lanes(n), p))}; }
LATHE_INLINE void store_bytes(int8_t* p, Vi a) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v)); }
LATHE_INLINE void store_bytes_first(int8_t* p, Vi a, int64_t n) { _mm512_mask_cvtepi32_storeu_epi8(p, first_lanes(n), a.v); }
/// Low 16 bits of each lane, packed.
LATHE_INLINE void store_low16_first(uint16_t* p, Vi a, int64_t n) { _mm512_mask_cvtepi32_storeu_epi16(p, first_lanes(n), a.v); }

/// 128-bit part q gets the 16 bytes at rows[4q] + offset.
LATHE_INLINE Vi load_parts(const char* const* rows, int64_t offset) {
  __m512i v = _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[0] + offset)));
  v = _mm512_inserti32x4(v, _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[4] + offset)), 1);
  v = _mm512_inserti32x4(v, _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[8] + offset)), 2);
  return {_mm512_inserti32x4(v, _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[12] + offset)), 3)};
}
/// 128-bit part q gets the 16 bytes at p + q · step.
LATHE_INLINE Vi load_strided(const char* p, int64_t step) {
  __m512i v = _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  v = _mm512_inserti32x4(v, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + step)), 1);
  v = _mm512_inserti32x4(v, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 2 * step)), 2);
  return {_mm512_inserti32x4(v, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 3 * step)), 3)};
}
/// 16-bit integers: shifted, and products summed by pairs.
template <int n>
LATHE_INLINE Vi shift16_right_sign(Vi a) {
  return {_mm512_srai_epi16(a.v, n)};
}
LATHE_INLINE Vi madd16(Vi a, Vi b) { return {_mm512_madd_epi16(a.v, b.v)}; }
/// Part q of out[c]: part c of row q.
LATHE_INLINE void square_of(__m512i a, __m512i b, __m512i c, __m512i d, Vi (&out)[4]) {
  const __m512i ab0 = _mm512_shuffle_i32x4(a, b, 0x44), ab1 = _mm512_shuffle_i32x4(a, b, 0xEE);
  const __m512i cd0 = _mm512_shuffle_i32x4(c, d, 0x44), cd1 = _mm512_shuffle_i32x4(c, d, 0xEE);
  out[0] = {_mm512_shuffle_i32x4(ab0, cd0, 0x88)};
  out[1] = {_mm512_shuffle_i32x4(ab0, cd0, 0xDD)};
  out[2] = {_mm512_shuffle_i32x4(ab1, cd1, 0x88)};
  out[3] = {_mm512_shuffle_i32x4(ab1, cd1, 0xDD)};
}
/// out[c]: what load_strided(p + 16 c, step) gives.
LATHE_INLINE void load_square(const char* p, int64_t step, Vi (&out)[4]) {
  square_of(_mm512_loadu_si512(p), _mm512_loadu_si512(p + step), _mm512_loadu_si512(p + 2 * step), _mm512_loadu_si512(p + 3 * step), out);
}
/// out[c]: what load_parts(rows, offset + 16 c) gives.
LATHE_INLINE void load_square(const char* const* rows, int64_t offset, Vi (&out)[4]) {
  square_of(_mm512_loadu_si512(rows[0] + offset), _mm512_loadu_si512(rows[4] + offset), _mm512_loadu_si512(rows[8] + offset),
            _mm512_loadu_si512(rows[12] + offset), out);
}
/// Every 128-bit part gets the 16 bytes at p.
LATHE_INLINE Vi broadcast_part(const void* p) { return {_mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(p)))}; }
// Interleaving inside each 128-bit part.
LATHE_INLINE Vi low_bytes(Vi a, Vi b) { return {_mm512_unpacklo_epi8(a.v, b.v)}; }
LATHE_INLINE Vi high_bytes(Vi a, Vi b) { return {_mm512_unpackhi_epi8(a.v, b.v)}; }
LATHE_INLINE Vi low_halves(Vi a, Vi b) { return {_mm512_unpacklo_epi16(a.v, b.v)}; }
LATHE_INLINE Vi high_halves(Vi a, Vi b) { return {_mm512_unpackhi_epi16(a.v, b.v)}; }
LATHE_INLINE Vf low_lanes(Vf a, Vf b) { return {_mm512_unpacklo_ps(a.v, b.v)}; }
LATHE_INLINE Vf high_lanes(Vf a, Vf b) { return {_mm512_unpackhi_ps(a.v, b.v)}; }
LATHE_INLINE Vf low_pairs(Vf a, Vf b) { return {_mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a.v), _mm512_castps_pd(b.v)))}; }
LATHE_INLINE Vf high_pairs(Vf a, Vf b) { return {_mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a.v), _mm512_castps_pd(b.v)))}; }
/// Sums of the lanes 0, 1, 2, 3 of all parts.
LATHE_INLINE void store_sums(float* p, Vf a) {
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  _mm_storeu_ps(p, _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1)));
}
/// Whether any byte has its seven low bits set (NaN in E4M3).
LATHE_INLINE bool any_f8_nan(Vi a) {
  const __m512i ones = _mm512_set1_epi8(0x7F);
  return _mm512_cmpeq_epi8_mask(_mm512_and_si512(a.v, ones), ones) != 0;
}

}  // namespace
}  // namespace lathe::kernels::cpu::LATHE_ISA
