#pragma once
// Vector types of the baseline level: four floats of the compiler's own vector extension (SSE2 on x86-64), products and sums rounded apart.
// See simd.h for what every level offers.

#include <cstdint>

#define LATHE_INLINE static inline __attribute__((always_inline))

namespace lathe::kernels::cpu::LATHE_ISA {
namespace {

constexpr int kLanes = 4;
constexpr int kTileRows = 3;

typedef float FloatVector __attribute__((vector_size(16)));
typedef int32_t IntVector __attribute__((vector_size(16)));
typedef uint32_t UnsignedVector __attribute__((vector_size(16)));

struct Vf {
  FloatVector v;
};
struct Vi {
  IntVector v;
};
struct Vm {
  IntVector v;
};

LATHE_INLINE Vf zero() { return {FloatVector{0, 0, 0, 0}}; }
LATHE_INLINE Vf set1(float a) { return {FloatVector{a, a, a, a}}; }
LATHE_INLINE Vf load(const float* p) {
  Vf a;
  __builtin_memcpy(&a.v, p, sizeof a.v);
  return a;
}
LATHE_INLINE Vf load_first(const float* p, int64_t n) {
  Vf a = zero();
  for (int64_t i = 0; i < n && i < 4; ++i) a.v[i] = p[i];
  return a;
}
LATHE_INLINE void store(float* p, Vf a) { __builtin_memcpy(p, &a.v, sizeof a.v); }
LATHE_INLINE void store_first(float* p, Vf a, int64_t n) {
  for (int64_t i = 0; i < n && i < 4; ++i) p[i] = a.v[i];
}
LATHE_INLINE Vf fma(Vf a, Vf b, Vf c) { return {a.v * b.v + c.v}; }
LATHE_INLINE Vf add(Vf a, Vf b) { return {a.v + b.v}; }
LATHE_INLINE Vf sub(Vf a, Vf b) { return {a.v - b.v}; }
LATHE_INLINE Vf mul(Vf a, Vf b) { return {a.v * b.v}; }
LATHE_INLINE Vf div(Vf a, Vf b) { return {a.v / b.v}; }
LATHE_INLINE Vf vsqrt(Vf a) {
  for (int i = 0; i < 4; ++i) a.v[i] = __builtin_sqrtf(a.v[i]);
  return a;
}
// If either is NaN, the second: as the instructions of the other levels.
LATHE_INLINE Vf vmin(Vf a, Vf b) { return {a.v < b.v ? a.v : b.v}; }
LATHE_INLINE Vf vmax(Vf a, Vf b) { return {a.v > b.v ? a.v : b.v}; }
/// The larger of `most` ≥ 0 and |a|; `most` if a is NaN.
LATHE_INLINE Vf vmax_magnitude(Vf most, Vf a) {
  const Vf magnitude = {(FloatVector)((IntVector)a.v & IntVector{0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF})};
  return vmax(magnitude, most);
}
LATHE_INLINE Vm less(Vf a, Vf b) { return {a.v < b.v}; }
LATHE_INLINE Vm is_nan(Vf a) { return {a.v != a.v}; }
LATHE_INLINE Vf select(Vm m, Vf yes, Vf no) { return {m.v ? yes.v : no.v}; }
LATHE_INLINE uint32_t bits(Vm m) { return (m.v[0] != 0 ? 1u : 0u) | (m.v[1] != 0 ? 2u : 0u) | (m.v[2] != 0 ? 4u : 0u) | (m.v[3] != 0 ? 8u : 0u); }

LATHE_INLINE Vi iset1(int32_t a) { return {IntVector{a, a, a, a}}; }
LATHE_INLINE Vi iload(const void* p) {
  Vi a;
  __builtin_memcpy(&a.v, p, sizeof a.v);
  return a;
}
LATHE_INLINE void istore(void* p, Vi a) { __builtin_memcpy(p, &a.v, sizeof a.v); }
LATHE_INLINE Vi iadd(Vi a, Vi b) { return {(IntVector)((UnsignedVector)a.v + (UnsignedVector)b.v)}; }
LATHE_INLINE Vi isub(Vi a, Vi b) { return {(IntVector)((UnsignedVector)a.v - (UnsignedVector)b.v)}; }
LATHE_INLINE Vi iand(Vi a, Vi b) { return {a.v & b.v}; }
LATHE_INLINE Vi ior(Vi a, Vi b) { return {a.v | b.v}; }
template <int n>
LATHE_INLINE Vi shift_left(Vi a) {
  return {(IntVector)((UnsignedVector)a.v << n)};
}
template <int n>
LATHE_INLINE Vi shift_right(Vi a) {
  return {(IntVector)((UnsignedVector)a.v >> n)};
}
template <int n>
LATHE_INLINE Vi shift_right_sign(Vi a) {
  return {a.v >> n};
}
LATHE_INLINE Vm iequal(Vi a, Vi b) { return {a.v == b.v}; }
LATHE_INLINE Vf as_float(Vi a) { return {(FloatVector)a.v}; }
LATHE_INLINE Vi as_int(Vf a) { return {(IntVector)a.v}; }
LATHE_INLINE Vf to_float(Vi a) { return {__builtin_convertvector(a.v, FloatVector)}; }
/// Nearest integer, ties to even; |a| < 2^22.
LATHE_INLINE Vi round_int(Vf a) {
  const Vf magic = set1(12582912.0f);
  return isub(as_int(add(a, magic)), as_int(magic));
}

LATHE_INLINE float hsum(Vf a) { return (a.v[0] + a.v[2]) + (a.v[1] + a.v[3]); }
LATHE_INLINE float hmax(Vf a) {
  const float x = a.v[0] > a.v[2] ? a.v[0] : a.v[2], y = a.v[1] > a.v[3] ? a.v[1] : a.v[3];
  return x > y ? x : y;
}

LATHE_INLINE Vf load_bf16_first(const uint16_t* p, int64_t n) {
  Vi a = iset1(0);
  for (int64_t i = 0; i < n && i < 4; ++i) a.v[i] = static_cast<int32_t>(static_cast<uint32_t>(p[i]) << 16);
  return as_float(a);
}
LATHE_INLINE Vf load_bf16(const uint16_t* p) { return load_bf16_first(p, 4); }
/// The low 16 bits of each lane as half precision: the exponent is moved by a product, which is exact for subnormals too.
LATHE_INLINE Vf half_to_float(Vi a) {
  const Vi sign = shift_left<16>(iand(a, iset1(0x8000)));
  const Vi magnitude = shift_left<13>(iand(a, iset1(0x7FFF)));
  const Vf finite = mul(as_float(magnitude), set1(0x1p112f));
  const Vi special = ior(magnitude, iset1(0x7F800000));
  const Vm is_special = iequal(iand(a, iset1(0x7C00)), iset1(0x7C00));
  return as_float(ior(sign, as_int(select(is_special, as_float(special), finite))));
}
/// Half precision of each lane, nearest even, in its low 16 bits. Below 2^-14 the sum with 1/2 rounds to multiples of 2^-24.
LATHE_INLINE Vi float_to_half(Vf a) {
  const Vi sign = iand(shift_right<16>(as_int(a)), iset1(0x8000)), magnitude = iand(as_int(a), iset1(0x7FFFFFFF));
  const Vi odd = iand(shift_right<13>(magnitude), iset1(1));
  const Vi normal = isub(shift_right<13>(iadd(iadd(magnitude, iset1(0xFFF)), odd)), iset1(112 << 10));
  const Vi small = isub(as_int(add(as_float(magnitude), set1(0.5f))), iset1(0x3F000000));
  const Vf value = as_float(magnitude);
  Vf half = select(less(value, set1(0x1p-14f)), as_float(small), as_float(normal));
  half = select(less(set1(65519.0f), value), as_float(iset1(0x7C00)), half);
  half = select(is_nan(a), as_float(iset1(0x7E00)), half);
  return ior(sign, as_int(half));
}
/// Bytes with a sign.
LATHE_INLINE Vi load_bytes_first(const int8_t* p, int64_t n) {
  Vi a = iset1(0);
  for (int64_t i = 0; i < n && i < 4; ++i) a.v[i] = static_cast<int16_t>(p[i]);
  return a;
}
LATHE_INLINE Vi load_bytes(const int8_t* p) { return load_bytes_first(p, 4); }
LATHE_INLINE void store_bytes_first(int8_t* p, Vi a, int64_t n) {
  for (int64_t i = 0; i < n && i < 4; ++i) p[i] = static_cast<int8_t>(a.v[i]);
}
LATHE_INLINE void store_bytes(int8_t* p, Vi a) { store_bytes_first(p, a, 4); }
/// Low 16 bits of each lane, packed.
LATHE_INLINE void store_low16_first(uint16_t* p, Vi a, int64_t n) {
  for (int64_t i = 0; i < n && i < 4; ++i) p[i] = static_cast<uint16_t>(a.v[i]);
}

LATHE_INLINE Vf load_half(const uint16_t* p) {
  Vi a;
  for (int i = 0; i < 4; ++i) a.v[i] = p[i];
  return half_to_float(a);
}
LATHE_INLINE void store_low16(uint16_t* p, Vi a) { store_low16_first(p, a, 4); }
LATHE_INLINE void store_half(uint16_t* p, Vf a) { store_low16(p, float_to_half(a)); }

typedef int8_t ByteVector __attribute__((vector_size(16)));
typedef int16_t HalfVector __attribute__((vector_size(16)));
typedef int64_t PairVector __attribute__((vector_size(16)));

/// 16-bit integers: shifted, and products summed by pairs.
typedef int16_t ShortVector __attribute__((vector_size(16)));
template <int n>
LATHE_INLINE Vi shift16_right_sign(Vi a) {
  return {(IntVector)((ShortVector)a.v >> n)};
}
LATHE_INLINE Vi madd16(Vi a, Vi b) {
  const ShortVector s = (ShortVector)a.v, t = (ShortVector)b.v;
  Vi out;
  for (int i = 0; i < 4; ++i) out.v[i] = s[2 * i] * t[2 * i] + s[2 * i + 1] * t[2 * i + 1];
  return out;
}
/// The 16 bytes at rows[0] + offset: a vector is one 128-bit part.
LATHE_INLINE Vi load_parts(const char* const* rows, int64_t offset) { return iload(rows[0] + offset); }
LATHE_INLINE Vi load_strided(const char* p, int64_t) { return iload(p); }
LATHE_INLINE void load_square(const char* p, int64_t, Vi (&out)[1]) { out[0] = iload(p); }
LATHE_INLINE void load_square(const char* const* rows, int64_t offset, Vi (&out)[1]) { out[0] = load_parts(rows, offset); }
LATHE_INLINE Vi broadcast_part(const void* p) { return iload(p); }
// Interleaving.
LATHE_INLINE Vi low_bytes(Vi a, Vi b) {
  return {(IntVector)__builtin_shufflevector((ByteVector)a.v, (ByteVector)b.v, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)};
}
LATHE_INLINE Vi high_bytes(Vi a, Vi b) {
  return {(IntVector)__builtin_shufflevector((ByteVector)a.v, (ByteVector)b.v, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)};
}
LATHE_INLINE Vi low_halves(Vi a, Vi b) { return {(IntVector)__builtin_shufflevector((HalfVector)a.v, (HalfVector)b.v, 0, 8, 1, 9, 2, 10, 3, 11)}; }
LATHE_INLINE Vi high_halves(Vi a, Vi b) { return {(IntVector)__builtin_shufflevector((HalfVector)a.v, (HalfVector)b.v, 4, 12, 5, 13, 6, 14, 7, 15)}; }
LATHE_INLINE Vf low_lanes(Vf a, Vf b) { return {__builtin_shufflevector(a.v, b.v, 0, 4, 1, 5)}; }
LATHE_INLINE Vf high_lanes(Vf a, Vf b) { return {__builtin_shufflevector(a.v, b.v, 2, 6, 3, 7)}; }
LATHE_INLINE Vf low_pairs(Vf a, Vf b) { return {__builtin_shufflevector(a.v, b.v, 0, 1, 4, 5)}; }
LATHE_INLINE Vf high_pairs(Vf a, Vf b) { return {__builtin_shufflevector(a.v, b.v, 2, 3, 6, 7)}; }
/// Sums of the lanes 0, 1, 2, 3 of all parts: there is one.
LATHE_INLINE void store_sums(float* p, Vf a) { store(p, a); }
/// Whether any byte has its seven low bits set (NaN in E4M3).
LATHE_INLINE bool any_f8_nan(Vi a) {
  const ByteVector ones = {127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127};
  const PairVector found = (PairVector)(((ByteVector)a.v & ones) == ones);
  return (found[0] | found[1]) != 0;
}

}  // namespace
}  // namespace lathe::kernels::cpu::LATHE_ISA
