// States as they are kept in FP16, or in INT8 with a scale for each column, and tiles of floats. After simd.h; brought by kda.inl.
//
// Idea    a tile is changed in the first-level cache as in FP32; only what crosses to memory is narrower. Columns are lanes: a column's largest magnitude is a
//         running maximum over rows. Codes and scales are those of tensor/quantised.h, step by step.

namespace lathe::kernels::cpu::LATHE_ISA {
namespace {

void load_f16(const KeptArgs& args) {
  const uint16_t* const kept = static_cast<const uint16_t*>(args.kept);
  const int64_t whole = args.width / kLanes * kLanes;
  for (int64_t c = 0; c < args.keys; ++c) {
    const uint16_t* const from = kept + c * args.kept_stride;
    float* const row = args.tile + c * args.tile_stride;
    for (int64_t j = 0; j < whole; j += kLanes) store(row + j, load_half(from + j));
    if (whole < args.width) {
      const Vi bits = shift_right<16>(as_int(load_bf16_first(from + whole, args.width - whole)));
      store_first(row + whole, half_to_float(bits), args.width - whole);
    }
  }
}

/// Finite values beyond the range saturate.
LATHE_INLINE Vi saturated_half(Vf x) {
  const Vf limited = vmax(set1(-65504.0f), vmin(set1(65504.0f), x));
  const Vi magnitude = iand(as_int(x), iset1(0x7FFFFFFF));
  return float_to_half(select(iequal(magnitude, iset1(0x7F800000)), x, limited));
}

void keep_f16(const KeptArgs& args) {
  uint16_t* const kept = static_cast<uint16_t*>(args.kept);
  const int64_t whole = args.width / kLanes * kLanes;
  for (int64_t c = 0; c < args.keys; ++c) {
    uint16_t* const to = kept + c * args.kept_stride;
    float* const row = args.tile + c * args.tile_stride;
    for (int64_t j = 0; j < whole; j += kLanes) {
      const Vi half = saturated_half(load(row + j));
      store_low16(to + j, half);
      store(row + j, half_to_float(half));
    }
    if (whole < args.width) {
      const Vi half = saturated_half(load_first(row + whole, args.width - whole));
      store_low16_first(to + whole, half, args.width - whole);
      store_first(row + whole, half_to_float(half), args.width - whole);
    }
  }
}

void load_i8(const KeptArgs& args) {
  const int8_t* const kept = static_cast<const int8_t*>(args.kept);
  for (int64_t j = 0; j < args.width; j += kLanes) {
    const int64_t n = args.width - j;
    const Vf scale = load_first(args.scales + j, n);
    for (int64_t c = 0; c < args.keys; ++c) {
      store_first(args.tile + c * args.tile_stride + j, mul(to_float(load_bytes_first(kept + c * args.kept_stride + j, n)), scale), n);
    }
  }
}

void keep_i8(const KeptArgs& args) {
  int8_t* const kept = static_cast<int8_t*>(args.kept);
  for (int64_t j = 0; j < args.width; j += kLanes) {
    const int64_t n = args.width - j;
    Vf most = zero(), nan = zero();
    for (int64_t c = 0; c < args.keys; ++c) {
      const Vf x = load_first(args.tile + c * args.tile_stride + j, n);
      nan = select(is_nan(x), x, nan);
      most = vmax(as_float(iand(as_int(x), iset1(0x7FFFFFFF))), most);
    }
    most = select(iequal(as_int(most), iset1(0x7F800000)), set1(__builtin_nanf("")), most);
    most = select(is_nan(nan), nan, most);
    const Vm some = less(set1(0x1.fffffep-101f), most);  // at least 2^-100; false for NaN
    const Vf inverse = select(some, div(set1(127.0f), most), zero());
    const Vf scale = select(is_nan(most), set1(__builtin_nanf("")), select(some, div(most, set1(127.0f)), zero()));
    store_first(args.scales + j, scale, n);
    for (int64_t c = 0; c < args.keys; ++c) {
      float* const at = args.tile + c * args.tile_stride + j;
      const Vf code = select(some, vmax(set1(-127.0f), vmin(set1(127.0f), mul(load_first(at, n), inverse))), zero());
      const Vi rounded = round_int(code);
      store_bytes_first(kept + c * args.kept_stride + j, rounded, n);
      store_first(at, mul(to_float(rounded), scale), n);
    }
  }
}

}  // namespace
}  // namespace lathe::kernels::cpu::LATHE_ISA
