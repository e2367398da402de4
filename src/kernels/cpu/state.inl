// A head's state where it is kept, read and written by vectors of columns. After simd.h; brought by kda.inl and replay.inl.

namespace lathe::kernels::cpu::LATHE_ISA {
namespace {

/// Element `at` of a state and its neighbours: n of them, or a whole vector.
template <StateFormat kFormat, bool kWhole>
LATHE_INLINE Vf load_state(const void* values, int64_t at, Vf scale, int64_t n) {
  if constexpr (kFormat == StateFormat::kF32) {
    const float* const p = static_cast<const float*>(values) + at;
    return kWhole ? load(p) : load_first(p, n);
  } else if constexpr (kFormat == StateFormat::kF16) {
    const uint16_t* const p = static_cast<const uint16_t*>(values) + at;
    return kWhole ? load_half(p) : half_to_float(shift_right<16>(as_int(load_bf16_first(p, n))));
  } else if constexpr (kFormat == StateFormat::kI8) {
    const int8_t* const p = static_cast<const int8_t*>(values) + at;
    return mul(to_float(kWhole ? load_bytes(p) : load_bytes_first(p, n)), scale);
  } else {
    return zero();
  }
}
template <StateFormat kFormat, bool kWhole>
LATHE_INLINE Vf load_scale(const StateSource& state, int64_t column, int64_t n) {
  if constexpr (kFormat != StateFormat::kI8) return zero();
  return kWhole ? load(state.scales + column) : load_first(state.scales + column, n);
}

/// Bytes of a state asked for ahead of the reading, at last those of the next head.
constexpr int64_t kAskAhead = 4096;
/// A vector at `p` and those behind it.
template <StateFormat kFormat, int kVectors>
LATHE_INLINE void ask_ahead(const void* values, int64_t at) {
  if constexpr (kFormat != StateFormat::kZeros) {
    constexpr int64_t kBytes = kFormat == StateFormat::kF32 ? 4 : kFormat == StateFormat::kF16 ? 2 : 1;
    const char* const ahead = static_cast<const char*>(values) + at * kBytes + kAskAhead;
#pragma GCC unroll 16
    for (int64_t i = 0; i < kVectors * kLanes * kBytes; i += 64) __builtin_prefetch(ahead + i, 0, 2);
  }
}

constexpr float kHalfMost = 65504.0f;
/// As FP16 keeps it: finite values beyond the range become its ends.
LATHE_INLINE Vf saturated(Vf x) {
  const Vf limited = vmax(set1(-kHalfMost), vmin(set1(kHalfMost), x));
  const Vi magnitude = iand(as_int(x), iset1(0x7FFFFFFF));
  return select(iequal(magnitude, iset1(0x7F800000)), x, limited);
}
/// Stores n lanes or all there are.
LATHE_INLINE void store_half_first(uint16_t* p, Vf a, int64_t n) {
  if (n >= kLanes) {
    store_half(p, a);
  } else {
    store_low16_first(p, float_to_half(a), n);
  }
}

}  // namespace
}  // namespace lathe::kernels::cpu::LATHE_ISA
