#pragma once
// Products of a warp on the tensor cores (mma) and what prepares their operands; each with an emulated form.

#include "kernels/cuda/async_copy.h"

namespace lathe::kernels::cuda {

/// D += A B on the tensor cores: A 16 x 16, B 16 x 8, bf16 in, f32 out. Fragments as the PTX manual lays them out.
__device__ __forceinline__ void mma_bf16(float* d, const unsigned* a, const unsigned* b) {
#ifdef LATHE_CUDA_EMULATED
  const unsigned mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  const unsigned* const all = emulated::gather(mine, 6);
  const int lane = emulated::lane();
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + (i >= 2 ? 8 : 0);
    const int column = lane % 4 * 2 + i % 2;
    float sum = 0;
    for (int k = 0; k < 16; ++k) {
      const int holder = k % 8 / 2;
      const unsigned wa = all[(row % 8 * 4 + holder) * 6 + (row >= 8 ? 1 : 0) + (k >= 8 ? 2 : 0)];
      const unsigned wb = all[(column * 4 + holder) * 6 + 4 + (k >= 8 ? 1 : 0)];
      sum = fmaf(bf16_value(static_cast<uint16_t>(k % 2 == 0 ? wa : wa >> 16)), bf16_value(static_cast<uint16_t>(k % 2 == 0 ? wb : wb >> 16)), sum);
    }
    d[i] += sum;
  }
#else
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

/// Two floats as bf16, nearest even; the first in the low half.
__device__ __forceinline__ unsigned pack_bf16(float low, float high) {
#ifdef LATHE_CUDA_EMULATED
  return bf16_bits(low) | static_cast<unsigned>(bf16_bits(high)) << 16;
#else
  unsigned out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
#endif
}

/// The same as f16.
__device__ __forceinline__ unsigned pack_f16(float low, float high) {
#ifdef LATHE_CUDA_EMULATED
  const _Float16 both[2] = {static_cast<_Float16>(low), static_cast<_Float16>(high)};
  unsigned out;
  std::memcpy(&out, both, 4);
  return out;
#else
  unsigned out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
#endif
}
__device__ __forceinline__ void f16_pair(unsigned two, float& low, float& high) {
#ifdef LATHE_CUDA_EMULATED
  low = f16_value(static_cast<uint16_t>(two)), high = f16_value(static_cast<uint16_t>(two >> 16));
#else
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.f32.f16 %0, l;\ncvt.f32.f16 %1, h;\n}" : "=f"(low), "=f"(high) : "r"(two));
#endif
}

/// Two floats as bf16 numbers; a and b become what is left of them.
__device__ __forceinline__ unsigned take_bf16(float& a, float& b) {
  const unsigned out = pack_bf16(a, b);
  a -= __uint_as_float(out << 16), b -= __uint_as_float(out & 0xFFFF0000u);
  return out;
}

/// Four matrices of 8 x 8 bf16, transposed: lane 8 m + r has the address of row r of matrix m; word m holds rows 2 (lane % 4), + 1 of column
/// lane / 4.
__device__ __forceinline__ void load_transposed(unsigned* words, const void* row) {
#ifdef LATHE_CUDA_EMULATED
  unsigned mine[2];
  std::memcpy(mine, &row, 8);
  const unsigned* const all = emulated::gather(mine, 2);
  const int lane = emulated::lane();
  for (int m = 0; m < 4; ++m) {
    unsigned pair[2];
    for (int i = 0; i < 2; ++i) {
      const uint16_t* from = nullptr;
      std::memcpy(&from, all + (8 * m + lane % 4 * 2 + i) * 2, 8);
      pair[i] = from[lane / 4];
    }
    words[m] = pair[0] | pair[1] << 16;
  }
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared_address(row))
               : "memory");
#endif
}

}  // namespace lathe::kernels::cuda
