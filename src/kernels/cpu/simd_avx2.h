#pragma once
// Vector types of the AVX2 level (with FMA and F16C). Include only from a file of that level; see simd.h for what every level offers.

#include <immintrin.h>

#include <cstdint>

#define LATHE_INLINE static inline __attribute__((always_inline))

namespace lathe::kernels::cpu::LATHE_ISA {
namespace {

constexpr int kLanes = 8;
constexpr int kTileRows = 3;  // 3 x 4 accumulators, 3 of x, 1 weight: all 16 registers

struct Vf {
  __m256 v;
};
struct Vi {
  __m256i v;
};
struct Vm {
  __m256 v;
};

LATHE_INLINE __m256i first_lanes(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

LATHE_INLINE Vf zero() { return {_mm256_setzero_ps()}; }
LATHE_INLINE Vf set1(float a) { return {_mm256_set1_ps(a)}; }
LATHE_INLINE Vf load(const float* p) { return {_mm256_loadu_ps(p)}; }
LATHE_INLINE Vf load_first(const float* p, int64_t n) { return {_mm256_maskload_ps(p, first_lanes(n))}; }
LATHE_INLINE void store(float* p, Vf a) { _mm256_storeu_ps(p, a.v); }
LATHE_INLINE void store_first(float* p, Vf a, int64_t n) { _mm256_maskstore_ps(p, first_lanes(n), a.v); }
LATHE_INLINE Vf fma(Vf a, Vf b, Vf c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
LATHE_INLINE Vf add(Vf a, Vf b) { return {_mm256_add_ps(a.v, b.v)}; }
LATHE_INLINE Vf sub(Vf a, Vf b) { return {_mm256_sub_ps(a.v, b.v)}; }
LATHE_INLINE Vf mul(Vf a, Vf b) { return {_mm256_mul_ps(a.v, b.v)}; }
LATHE_INLINE Vf div(Vf a, Vf b) { return {_mm256_div_ps(a.v, b.v)}; }
LATHE_INLINE Vf vsqrt(Vf a) { return {_mm256_sqrt_ps(a.v)}; }
LATHE_INLINE Vf vmin(Vf a, Vf b) { return {_mm256_min_ps(a.v, b.v)}; }
LATHE_INLINE Vf vmax(Vf a, Vf b) { return {_mm256_max_ps(a.v, b.v)}; }
/// The larger of `most` ≥ 0 and |a|; `most` if a is NaN.
LATHE_INLINE Vf vmax_magnitude(Vf most, Vf a) {
  return {_mm256_max_ps(_mm256_and_ps(a.v, _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF))), most.v)};
}
LATHE_INLINE Vm less(Vf a, Vf b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
LATHE_INLINE Vm is_nan(Vf a) { return {_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q)}; }
LATHE_INLINE Vf select(Vm m, Vf yes, Vf no) { return {_mm256_blendv_ps(no.v, yes.v, m.v)}; }
LATHE_INLINE uint32_t bits(Vm m) { return static_cast<uint32_t>(_mm256_movemask_ps(m.v)); }

LATHE_INLINE Vi iset1(int32_t a) { return {_mm256_set1_epi32(a)}; }
LATHE_INLINE Vi iload(const void* p) { return {_mm256_loadu_si256(static_cast<const __m256i*>(p))}; }
LATHE_INLINE void istore(void* p, Vi a) { _mm256_storeu_si256(static_cast<__m256i*>(p), a.v); }
LATHE_INLINE Vi iadd(Vi a, Vi b) { return {_mm256_add_epi32(a.v, b.v)}; }
LATHE_INLINE Vi isub(Vi a, Vi b) { return {_mm256_sub_epi32(a.v, b.v)}; }
LATHE_INLINE Vi iand(Vi a, Vi b) { return {_mm256_and_si256(a.v, b.v)}; }
LATHE_INLINE Vi ior(Vi a, Vi b) { return {_mm256_or_si256(a.v, b.v)}; }
template <int n>
LATHE_INLINE Vi shift_left(Vi a) {
  return {_mm256_slli_epi32(a.v, n)};
}
template <int n>
LATHE_INLINE Vi shift_right(Vi a) {
  return {_mm256_srli_epi32(a.v, n)};
}
template <int n>
LATHE_INLINE Vi shift_right_sign(Vi a) {
  return {_mm256_srai_epi32(a.v, n)};
}
LATHE_INLINE Vm iequal(Vi a, Vi b) { return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(a.v, b.v))}; }
LATHE_INLINE Vf as_float(Vi a) { return {_mm256_castsi256_ps(a.v)}; }
LATHE_INLINE Vi as_int(Vf a) { return {_mm256_castps_si256(a.v)}; }
LATHE_INLINE Vi round_int(Vf a) { return {_mm256_cvtps_epi32(a.v)}; }
LATHE_INLINE Vf to_float(Vi a) { return {_mm256_cvtepi32_ps(a.v)}; }

LATHE_INLINE float hsum(Vf a) {
  const __m128 q = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
LATHE_INLINE float hmax(Vf a) {
  const __m128 q = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 d = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}

LATHE_INLINE Vf load_bf16(const uint16_t* p) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16))};
}
LATHE_INLINE Vf load_bf16_first(const uint16_t* p, int64_t n) {
  uint16_t part[8] = {};
  for (int64_t i = 0; i < n && i < 8; ++i) part[i] = p[i];
  return load_bf16(part);
}
/// The low 16 bits of each lane as half precision.
LATHE_INLINE Vf half_to_float(Vi a) {
  const __m256i low = iand(a, iset1(0xFFFF)).v;
  return {_mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)))};
}
LATHE_INLINE Vf load_half(const uint16_t* p) { return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))}; }
LATHE_INLINE void store_low16(uint16_t* p, Vi a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_packus_epi32(_mm256_castsi256_si128(a.v), _mm256_extracti128_si256(a.v, 1)));
}
/// Half precision of each lane, nearest even, in its low 16 bits.
LATHE_INLINE Vi float_to_half(Vf a) { return {_mm256_cvtepu16_epi32(_mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))}; }
LATHE_INLINE void store_half(uint16_t* p, Vf a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
/// Bytes with a sign.
LATHE_INLINE Vi load_bytes(const int8_t* p) { return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))}; }
LATHE_INLINE Vi load_bytes_first(const int8_t* p, int64_t n) {
  int8_t part[16] = {};
  for (int64_t i = 0; i < n && i < 8; ++i) part[i] = p[i];
  return {_mm256_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(part)))};
}
LATHE_INLINE void store_bytes(int8_t* p, Vi a) {
  const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(a.v), _mm256_extracti128_si256(a.v, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(halves, halves));
}
LATHE_INLINE void store_bytes_first(int8_t* p, Vi a, int64_t n) {
  int32_t part[8];
  istore(part, a);
  for (int64_t i = 0; i < n && i < 8; ++i) p[i] = static_cast<int8_t>(part[i]);
}
/// Low 16 bits of each lane, packed.
LATHE_INLINE void store_low16_first(uint16_t* p, Vi a, int64_t n) {
  int32_t part[8];
  istore(part, a);
  for (int64_t i = 0; i < n && i < 8; ++i) p[i] = static_cast<uint16_t>(part[i]);
}

/// 128-bit part q gets the 16 bytes at rows[4q] + offset.
LATHE_INLINE Vi load_parts(const char* const* rows, int64_t offset) {
  const __m256i v = _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[0] + offset)));
  return {_mm256_inserti128_si256(v, _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[4] + offset)), 1)};
}
/// 128-bit part q gets the 16 bytes at p + q · step.
LATHE_INLINE Vi load_strided(const char* p, int64_t step) {
  const __m256i v = _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return {_mm256_inserti128_si256(v, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + step)), 1)};
}
/// out[c]: the 16 bytes at row0 + 16 c in part 0, those at row1 + 16 c in part 1.
LATHE_INLINE void load_two_rows(const char* row0, const char* row1, Vi (&out)[2]) {
  const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row0)), b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row1));
  out[0] = {_mm256_permute2x128_si256(a, b, 0x20)};
  out[1] = {_mm256_permute2x128_si256(a, b, 0x31)};
}
/// out[c]: what load_strided(p + 16 c, step) gives.
LATHE_INLINE void load_square(const char* p, int64_t step, Vi (&out)[2]) { load_two_rows(p, p + step, out); }
/// out[c]: what load_parts(rows, offset + 16 c) gives.
LATHE_INLINE void load_square(const char* const* rows, int64_t offset, Vi (&out)[2]) { load_two_rows(rows[0] + offset, rows[4] + offset, out); }
/// Every 128-bit part gets the 16 bytes at p.
LATHE_INLINE Vi broadcast_part(const void* p) { return {_mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(p)))}; }
/// 16-bit integers: shifted, and products summed by pairs.
template <int n>
LATHE_INLINE Vi shift16_right_sign(Vi a) {
  return {_mm256_srai_epi16(a.v, n)};
}
LATHE_INLINE Vi madd16(Vi a, Vi b) { return {_mm256_madd_epi16(a.v, b.v)}; }
// Interleaving inside each 128-bit part.
LATHE_INLINE Vi low_bytes(Vi a, Vi b) { return {_mm256_unpacklo_epi8(a.v, b.v)}; }
LATHE_INLINE Vi high_bytes(Vi a, Vi b) { return {_mm256_unpackhi_epi8(a.v, b.v)}; }
LATHE_INLINE Vi low_halves(Vi a, Vi b) { return {_mm256_unpacklo_epi16(a.v, b.v)}; }
LATHE_INLINE Vi high_halves(Vi a, Vi b) { return {_mm256_unpackhi_epi16(a.v, b.v)}; }
LATHE_INLINE Vf low_lanes(Vf a, Vf b) { return {_mm256_unpacklo_ps(a.v, b.v)}; }
LATHE_INLINE Vf high_lanes(Vf a, Vf b) { return {_mm256_unpackhi_ps(a.v, b.v)}; }
LATHE_INLINE Vf low_pairs(Vf a, Vf b) { return {_mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(a.v), _mm256_castps_pd(b.v)))}; }
LATHE_INLINE Vf high_pairs(Vf a, Vf b) { return {_mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(a.v), _mm256_castps_pd(b.v)))}; }
/// Sums of the lanes 0, 1, 2, 3 of all parts.
LATHE_INLINE void store_sums(float* p, Vf a) { _mm_storeu_ps(p, _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1))); }
/// Whether any byte has its seven low bits set (NaN in E4M3).
LATHE_INLINE bool any_f8_nan(Vi a) {
  const __m256i ones = _mm256_set1_epi8(0x7F);
  return _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_and_si256(a.v, ones), ones)) != 0;
}

}  // namespace
}  // namespace lathe::kernels::cpu::LATHE_ISA
