// Products of INT8 codes on 16-bit multiply-adds, for every level (matmul_isa.h), and rows of x as codes. After simd.h; brings direct.inl.
//
// Idea    a step is 16 bytes of a row of x: 8 codes of 16 bits. Weights are widened on the way; products of two neighbours are summed in 32 bits.
#include "kernels/cpu/direct.inl"

namespace lathe::kernels::cpu::LATHE_ISA {
namespace {

struct WideStep {
  static constexpr int64_t kBytes = 2;
  LATHE_INLINE Vf multiply(Vi x, Vi w, Vf sum) { return as_float(iadd(as_int(sum), madd16(x, w))); }
  LATHE_INLINE Vf total(const Vf (&v)[4]) { return isum_parts(v); }
};
struct WidenCodes {
  static constexpr int kSteps = 2;
  static constexpr bool kFolds = false;
  inline __attribute__((always_inline)) void operator()(Vi raw, Vf, Vi (&out)[2]) const {
    out[0] = shift16_right_sign<8>(low_bytes(iset1(0), raw));
    out[1] = shift16_right_sign<8>(high_bytes(iset1(0), raw));
  }
};

/// Decode makes kSteps vectors of 16 bytes of every row.
template <class Decode>
void pack_codes(const PackArgs& args) {
  constexpr int kSteps = Decode::kSteps;
  const Decode decode;
  const int64_t per_step = 16 / kSteps, steps = (args.channels + per_step - 1) / per_step;
  for (int group = 0; group < 2; ++group) {
    const char* const* const rows = args.rows + group * kLanes;
    float* const out = static_cast<float*>(args.out) + group * steps * kGroup;
    for (int i = 0; i < 4; ++i) {
      int64_t at = 0, step = 0;
      for (; at + 16 * kSquare <= args.channels; at += 16 * kSquare, step += kSquare * kSteps) {
        if (at % 64 == 0) prefetch_rows(rows + i, at + args.prefetch);
        Vi raw[kSquare];
        load_square(rows + i, at, raw);
#pragma GCC unroll 4
        for (int p = 0; p < kSquare; ++p) {
          Vi parts[kSteps];
          decode(raw[p], zero(), parts);
#pragma GCC unroll 4
          for (int s = 0; s < kSteps; ++s) istore(out + (step + p * kSteps + s) * kGroup + i * kLanes, parts[s]);
        }
      }
      for (; at < args.channels; at += 16, step += kSteps) {
        const bool full = at + 16 <= args.channels;
        Vi parts[kSteps];
        decode(full ? load_parts(rows + i, at) : load_tail(rows + i, at, args.channels - at), zero(), parts);
#pragma GCC unroll 4
        for (int s = 0; s < kSteps; ++s) {
          if (full || step + s < steps) istore(out + (step + s) * kGroup + i * kLanes, parts[s]);
        }
      }
    }
  }
}

float magnitude_row(const float* x, int64_t count) {
  Vf most = zero(), nan = zero();
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vf v = load_first(x + i, count - i);
    nan = select(is_nan(v), v, nan);
    most = vmax(as_float(iand(as_int(v), iset1(0x7FFFFFFF))), most);
  }
  return bits(is_nan(nan)) != 0 ? __builtin_nanf("") : hmax(most);
}

/// Lanes [i, i + kLanes) as codes in 32 bits.
LATHE_INLINE Vi codes_at(const float* x, int64_t count, Vf inverse) {
  const Vf code = mul(load_first(x, count), inverse);
  return round_int(vmax(set1(-127.0f), vmin(set1(127.0f), code)));
}

int32_t to_wide_codes(const float* x, int64_t count, float inverse, void* out) {
  uint16_t* const codes = static_cast<uint16_t*>(out);
  if (inverse == 0) return __builtin_memset(out, 0, static_cast<size_t>(count) * 2), 0;
  for (int64_t i = 0; i < count; i += kLanes) store_low16_first(codes + i, codes_at(x + i, count - i, set1(inverse)), count - i);
  return 0;  // nobody needs it
}

void scale_codes(const CodeScaleArgs& args) {
  for (int group = 0; group < 2; ++group) {
    float* const at = args.totals + group * kLanes;
    const Vf sum = to_float(isub(iload(at), iset1(args.excess)));
    store(at, mul(mul(sum, set1(args.x_scale)), load(args.scales + group * kLanes)));
  }
}

template <class Decode, class Step>
struct CodeDirect {
  static constexpr DirectFn kByRows[kDirectRowsMax + 1] = {nullptr, direct<1, Decode, Step>, direct<2, Decode, Step>, direct<3, Decode, Step>,
                                                           kLanes == 16 ? direct<kLanes == 16 ? 4 : 3, Decode, Step> : nullptr};
};

template <class Decode, class Step>
constexpr CodesIsa codes_level() {
  CodesIsa isa;
  isa.x_bytes = static_cast<int>(Step::kBytes);
  isa.pack = pack_codes<Decode>;
  isa.tile = kTilesOf<Step, NotAsking>;
  isa.tile_asking = kTilesOf<Step, Asking>;
  isa.direct = CodeDirect<Decode, Step>::kByRows;
  isa.magnitude = magnitude_row;
  isa.to_codes = to_wide_codes;
  isa.scale = scale_codes;
  return isa;
}

}  // namespace
}  // namespace lathe::kernels::cpu::LATHE_ISA
