// Tiles of floats as they are kept in FP16, or in INT8 with a scale for each column. After state.inl; brought by kda.inl.
//
// Idea    a tile is changed in the first-level cache as in FP32; only what crosses to memory is narrower. Columns are lanes: a column's largest magnitude is a
//         running maximum over rows. Codes and scales are those of tensor/quantised.h, step by step.

namespace lathe::kernels::cpu::LATHE_ISA {
namespace {

template <bool kWhole>
LATHE_INLINE Vf load_lanes(const float* p, int64_t n) {
  return kWhole ? load(p) : load_first(p, n);
}
template <bool kWhole>
LATHE_INLINE void store_lanes(float* p, Vf a, int64_t n) {
  if (kWhole) {
    store(p, a);
  } else {
    store_first(p, a, n);
  }
}

template <bool kWhole>
LATHE_INLINE void keep_half(uint16_t* to, float* tile, int64_t n) {
  const Vi half = float_to_half(saturated(load_lanes<kWhole>(tile, n)));
  if (kWhole) {
    store_low16(to, half);
  } else {
    store_low16_first(to, half, n);
  }
  store_lanes<kWhole>(tile, half_to_float(half), n);
}
/// A vector of columns, or n of them.
template <bool kWhole>
LATHE_INLINE void keep_i8_columns(const KeptArgs& args, int64_t j, int64_t n) {
  Vf most = zero(), nan = zero();
  float* row = args.tile + j;
  for (int64_t c = 0; c < args.keys; ++c, row += args.tile_stride) {
    const Vf x = load_lanes<kWhole>(row, n);
    nan = select(is_nan(x), x, nan);
    most = vmax_magnitude(most, x);
  }
  most = select(iequal(as_int(most), iset1(0x7F800000)), set1(__builtin_nanf("")), most);
  most = select(is_nan(nan), nan, most);
  const Vm some = less(set1(0x1.fffffep-101f), most);  // at least 2^-100; false for NaN
  const Vf inverse = select(some, div(set1(127.0f), most), zero());
  const Vf scale = select(is_nan(most), set1(__builtin_nanf("")), select(some, div(most, set1(127.0f)), zero()));
  store_lanes<kWhole>(args.scales + j, scale, n);
  int8_t* to = static_cast<int8_t*>(args.kept) + j;
  row = args.tile + j;
  for (int64_t c = 0; c < args.keys; ++c, to += args.kept_stride, row += args.tile_stride) {
    const Vf code = select(some, vmax(set1(-127.0f), vmin(set1(127.0f), mul(load_lanes<kWhole>(row, n), inverse))), zero());
    const Vi rounded = round_int(code);
    if (kWhole) {
      store_bytes(to, rounded);
    } else {
      store_bytes_first(to, rounded, n);
    }
    store_lanes<kWhole>(row, mul(to_float(rounded), scale), n);
  }
}

void keep_f16(const KeptArgs& args) {
  uint16_t* to = static_cast<uint16_t*>(args.kept);
  float* row = args.tile;
  for (int64_t c = 0; c < args.keys; ++c, to += args.kept_stride, row += args.tile_stride) {
    int64_t j = 0;
    for (; j + kLanes <= args.width; j += kLanes) keep_half<true>(to + j, row + j, kLanes);
    if (j < args.width) keep_half<false>(to + j, row + j, args.width - j);
  }
}
void keep_i8(const KeptArgs& args) {
  int64_t j = 0;
  for (; j + kLanes <= args.width; j += kLanes) keep_i8_columns<true>(args, j, kLanes);
  if (j < args.width) keep_i8_columns<false>(args, j, args.width - j);
}

}  // namespace
}  // namespace lathe::kernels::cpu::LATHE_ISA
