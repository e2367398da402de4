// Rows of 8-bit codes with a scale for each 128 of them (tensor/quantised.h), and floats. After simd.h; brought by row.inl.

namespace lathe::kernels::cpu::LATHE_ISA {
namespace {

constexpr int64_t kRunValues = 128;  // tensor/quantised.h
constexpr float kAmaxMin = 0x1p-100f;

template <bool kF8, bool kWhole>
LATHE_INLINE Vf load_codes(const int8_t* p, int64_t n) {
  const Vi codes = kWhole ? load_bytes(p) : load_bytes_first(p, n);
  return kF8 ? f8_high_to_float(shift_left<24>(codes), true) : to_float(codes);
}

template <bool kF8>
LATHE_INLINE void from_codes_of(const int8_t* codes, const float* scales, int64_t count, float* out) {
  for (int64_t begin = 0; begin < count; begin += kRunValues) {
    const int64_t end = count - begin < kRunValues ? count : begin + kRunValues;
    const Vf scale = set1(scales[begin / kRunValues]);
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) store(out + i, mul(load_codes<kF8, true>(codes + i, kLanes), scale));
    if (i < end) store_first(out + i, mul(load_codes<kF8, false>(codes + i, end - i), scale), end - i);
  }
}
void from_codes(const void* codes, bool f8, const float* scales, int64_t count, float* out) {
  const int8_t* const bytes = static_cast<const int8_t*>(codes);
  return f8 ? from_codes_of<true>(bytes, scales, count, out) : from_codes_of<false>(bytes, scales, count, out);
}

/// E4M3, nearest even and saturated, in the low byte of each lane. NaN gives a NaN code.
LATHE_INLINE Vi to_f8(Vf x) {
  const Vi sign = iand(shift_right<24>(as_int(x)), iset1(0x80));
  const Vf magnitude = vmin(set1(448.0f), as_float(iand(as_int(x), iset1(0x7FFFFFFF))));
  const Vi i = as_int(magnitude);
  const Vi odd = iand(shift_right<20>(i), iset1(1));
  const Vi normal = shift_right<20>(isub(iadd(iadd(i, iset1(0x7FFFF)), odd), iset1(120 << 23)));
  const Vi small = round_int(mul(magnitude, set1(512.0f)));  // multiples of 2^-9 below 2^-6
  return ior(sign, as_int(select(less(magnitude, set1(0x1p-6f)), as_float(small), as_float(normal))));
}

template <bool kF8, bool kWhole>
LATHE_INLINE void store_codes(int8_t* to, Vf code, int64_t n) {
  // With a sign, as bytes are packed.
  const Vi codes = kF8 ? shift_right_sign<24>(shift_left<24>(to_f8(code))) : round_int(vmax(set1(-127.0f), vmin(set1(127.0f), code)));
  if (kWhole) {
    store_bytes(to, codes);
  } else {
    store_bytes_first(to, codes, n);
  }
}

/// The largest magnitude of a run; NaN if it has a NaN.
LATHE_INLINE float run_magnitude(const float* x, int64_t count) {
  Vf most = zero(), nan = zero();
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vf v = load_first(x + i, count - i);
    nan = select(is_nan(v), v, nan);
    most = vmax_magnitude(most, v);
  }
  return bits(is_nan(nan)) != 0 ? __builtin_nanf("") : hmax(most);
}

template <bool kF8>
LATHE_INLINE void to_codes_of(const float* x, int64_t count, int8_t* codes, float* scales) {
  constexpr float kMost = kF8 ? 448.0f : 127.0f;
  for (int64_t begin = 0; begin < count; begin += kRunValues) {
    const int64_t end = count - begin < kRunValues ? count : begin + kRunValues;
    const float amax = run_magnitude(x + begin, end - begin);
    const bool finite = amax < __builtin_inff(), some = finite && amax >= kAmaxMin;
    scales[begin / kRunValues] = !finite ? __builtin_nanf("") : some ? amax / kMost : 0.0f;
    const Vf inverse = set1(some ? kMost / amax : 0.0f);
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      store_codes<kF8, true>(codes + i, some ? mul(load(x + i), inverse) : zero(), kLanes);
    }
    if (i < end) store_codes<kF8, false>(codes + i, some ? mul(load_first(x + i, end - i), inverse) : zero(), end - i);
  }
}
void to_codes(const float* x, int64_t count, bool f8, void* codes, float* scales) {
  int8_t* const bytes = static_cast<int8_t*>(codes);
  return f8 ? to_codes_of<true>(x, count, bytes, scales) : to_codes_of<false>(x, count, bytes, scales);
}

}  // namespace
}  // namespace lathe::kernels::cpu::LATHE_ISA
