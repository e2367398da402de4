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
constexpr int kTileRows = 12;  // 12 x 2 accumulators, 2 weights, 1 spare for the broadcast: 27 of 32 registers

struct Vf {
  __m512 v;
};
struct Vi {
  __m512i v;
};
struct Vm {
  __mmask16 v;
};

LATHE_INLINE __mmask16 first_lanes(int64_t n) { return n >= 16 ? __mmask16{0xFFFF} : static_cast<__mmask16>((1u << n) - 1u); }

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
/// Low 16 bits of each lane, packed.
LATHE_INLINE void store_low16_first(uint16_t* p, Vi a, int64_t n) { _mm512_mask_cvtepi32_storeu_epi16(p, first_lanes(n), a.v); }

/// rows[i] lane j becomes rows[j] lane i.
LATHE_INLINE void transpose(Vi (&rows)[16]) {
  __m512i a[16], b[16];
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_epi32(rows[i].v, rows[i + 1].v);
    a[i + 1] = _mm512_unpackhi_epi32(rows[i].v, rows[i + 1].v);
  }
  // b[4g + j]: in each 128-bit part q, lanes of rows 4g … 4g+3 at column 4q + j.
  for (int g = 0; g < 4; ++g) {
    b[4 * g] = _mm512_unpacklo_epi64(a[4 * g], a[4 * g + 2]);
    b[4 * g + 1] = _mm512_unpackhi_epi64(a[4 * g], a[4 * g + 2]);
    b[4 * g + 2] = _mm512_unpacklo_epi64(a[4 * g + 1], a[4 * g + 3]);
    b[4 * g + 3] = _mm512_unpackhi_epi64(a[4 * g + 1], a[4 * g + 3]);
  }
  for (int j = 0; j < 4; ++j) {
    const __m512i low01 = _mm512_shuffle_i32x4(b[j], b[4 + j], 0x88), high01 = _mm512_shuffle_i32x4(b[j], b[4 + j], 0xDD);
    const __m512i low23 = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0x88), high23 = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0xDD);
    rows[j].v = _mm512_shuffle_i32x4(low01, low23, 0x88);
    rows[8 + j].v = _mm512_shuffle_i32x4(low01, low23, 0xDD);
    rows[4 + j].v = _mm512_shuffle_i32x4(high01, high23, 0x88);
    rows[12 + j].v = _mm512_shuffle_i32x4(high01, high23, 0xDD);
  }
}

}  // namespace
}  // namespace lathe::kernels::cpu::LATHE_ISA
