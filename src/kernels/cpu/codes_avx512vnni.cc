// Products of INT8 codes: AVX-512 with VNNI.
//
// Idea    vpdpbusd does 64 multiply-adds where vpmaddwd does 32. It takes one side unsigned: a weight code gets 128 more by flipping its highest bit, and a sum
//         has 128 times the sum of x's codes too much.
#define LATHE_ISA avx512vnni
#define LATHE_SIMD_AVX512 1
#include "kernels/cpu/matmul_isa.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/codes.inl"

namespace lathe::kernels::cpu::avx512vnni {
namespace {

struct ByteStep {
  static constexpr int64_t kBytes = 1;
  LATHE_INLINE Vf multiply(Vi x, Vi w, Vf sum) { return as_float({_mm512_dpbusd_epi32(as_int(sum).v, w.v, x.v)}); }
  LATHE_INLINE Vf total(const Vf (&v)[4]) { return isum_parts(v); }
};
struct UnsignedCodes {
  static constexpr int kSteps = 1;
  static constexpr bool kFolds = false;
  inline __attribute__((always_inline)) void operator()(Vi raw, Vf, Vi (&out)[1]) const {
    out[0] = {_mm512_xor_si512(raw.v, _mm512_set1_epi8(static_cast<char>(0x80)))};
  }
};

int32_t to_byte_codes(const float* x, int64_t count, float inverse, void* out) {
  char* const codes = static_cast<char*>(out);
  if (inverse == 0) return __builtin_memset(out, 0, static_cast<size_t>(count)), 0;
  Vi sum = iset1(0);
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vi code = codes_at(x + i, count - i, set1(inverse));
    _mm512_mask_cvtepi32_storeu_epi8(codes + i, first_lanes(count - i), code.v);
    sum = iadd(sum, code);
  }
  return _mm512_reduce_add_epi32(sum.v);
}

constexpr CodesIsa byte_level() {
  CodesIsa isa = codes_level<UnsignedCodes, ByteStep>();
  isa.weight_excess = 128;
  isa.to_codes = to_byte_codes;
  return isa;
}

}  // namespace
}  // namespace lathe::kernels::cpu::avx512vnni

namespace lathe::kernels::cpu {

constexpr CodesIsa kCodesAvx512Vnni = avx512vnni::byte_level();

}  // namespace lathe::kernels::cpu
