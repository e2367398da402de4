#pragma once
// Products of four warps over INT8 codes in shared memory (wgmma), with an emulated form. Included by .cu files only.

#include "kernels/cuda/cluster.h"
#include "kernels/cuda/codes_args.h"

namespace lathe::kernels::cuda {

/// Codes lie as rows of 128 bytes, eight rows one after the other in 1,024 bytes, the 16-byte pieces of row r in the order i ^ (r mod 8).
/// Where piece `piece` of a row lies.
__host__ __device__ __forceinline__ int swizzled(int row, int piece) { return row * 128 + ((piece ^ (row & 7)) << 4); }

/// Where the code of row t and channel c lies.
__device__ __forceinline__ int64_t code_place(int64_t rows, int64_t t, int c) {
  return c / kCodesChunk * rows * kCodesChunk + t / 8 * 8 * kCodesChunk + swizzled(static_cast<int>(t % 8), c % kCodesChunk / 16) + c % 16;
}

#ifdef LATHE_CUDA_EMULATED

inline int swizzle_gap(const char*) { return 0; }
inline void copies_arrive(Barrier* b) { barrier_arrive(b); }
inline void bulk_load_both(void* to, const void* from, unsigned bytes, Barrier* b) {
  for (int rank = 0; rank < 2; ++rank) {
    std::memcpy(emulated::remote_shared(to, rank), from, bytes);
    barrier_bytes(static_cast<Barrier*>(emulated::remote_shared(b, rank)), bytes);
  }
}
/// D (+)= A B: A 64 rows (16 of each warp) and B kTokens rows of 32 codes; D 64 x kTokens, fragments as of wgmma in cluster.h.
template <int kTokens>
void wgmma_codes(int* d, const char* a, const char* b, int piece, bool add) {
  const int lane = emulated::lane();
  const int first = static_cast<int>(threadIdx.x) / 32 % 4 * 16;
  for (int i = 0; i < kTokens / 2; ++i) {
    const int row = first + lane / 4 + (i % 4 >= 2 ? 8 : 0);
    const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    int sum = add ? d[i] : 0;
    for (int k = 0; k < 32; ++k) {
      const auto x = static_cast<int8_t>(a[swizzled(row, piece + k / 16) + k % 16]),
                 y = static_cast<int8_t>(b[swizzled(column, piece + k / 16) + k % 16]);
      sum += static_cast<int>(x) * static_cast<int>(y);
    }
    d[i] = sum;
  }
}
template <int kCount>
void codes_results(int* d) {
  static_cast<void>(d);
}

#else

/// Bytes to where a pattern of rows may begin.
__device__ __forceinline__ int swizzle_gap(const char* at) { return static_cast<int>((1024 - (shared_address(at) & 1023)) & 1023); }
/// Arrives when all copies that this thread has asked for are there.
__device__ __forceinline__ void copies_arrive(Barrier* b) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(b)) : "memory");
}

/// To the same place in both blocks of a cluster, and for the barrier there.
__device__ __forceinline__ void bulk_load_both(void* to, const void* from, unsigned bytes, Barrier* b) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(b)), "h"(static_cast<uint16_t>(3))
      : "memory");
}

#define LATHE_I4(i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define LATHE_I16(i) LATHE_I4(i), LATHE_I4(i + 4), LATHE_I4(i + 8), LATHE_I4(i + 12)
#define LATHE_I64(i) LATHE_I16(i), LATHE_I16(i + 16), LATHE_I16(i + 32), LATHE_I16(i + 48)
#define LATHE_N4 "%0,%1,%2,%3"
#define LATHE_N8 LATHE_N4 ",%4,%5,%6,%7"
#define LATHE_N16 LATHE_N8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define LATHE_N32 LATHE_N16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define LATHE_N64                                                                                                                 \
  LATHE_N32                                                                                                                       \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62," \
  "%63"
#define LATHE_N128                                                                                                                    \
  LATHE_N64                                                                                                                           \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95," \
  "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,"    \
  "%122,%123,%124,%125,%126,%127"
#define LATHE_CODES(tokens, sums, a, b, p) \
  "{\n.reg .pred p;\nsetp.ne.b32 p, %" #p ", 0;\nwgmma.mma_async.sync.aligned.m64n" #tokens "k32.s32.s8.s8 {" sums "}, %" #a ", %" #b ", p;\n}\n"
#define LATHE_AB "l"(da), "l"(db), "r"(plus)

/// Rows of 128 bytes, swizzled; 1,024 bytes between groups of eight.
__device__ __forceinline__ uint64_t codes_operand(const char* at) {
  return uint64_t{1} << 62 | uint64_t{1024 / 16} << 32 | uint64_t{1} << 16 | (shared_address(at) & 0x3FFFFu) >> 4;
}
template <int kTokens>
__device__ __forceinline__ void wgmma_codes(int* d, const char* a, const char* b, int piece, bool add) {
  static_assert(kTokens == 8 || kTokens == 16 || kTokens == 32 || kTokens == 64 || kTokens == 128 || kTokens == 256);
  const uint64_t da = codes_operand(a) + static_cast<unsigned>(piece), db = codes_operand(b) + static_cast<unsigned>(piece);
  const int plus = add ? 1 : 0;
  if constexpr (kTokens == 8) {
    asm volatile(LATHE_CODES(8, LATHE_N4, 4, 5, 6) : LATHE_I4(0) : LATHE_AB);
  } else if constexpr (kTokens == 16) {
    asm volatile(LATHE_CODES(16, LATHE_N8, 8, 9, 10) : LATHE_I4(0), LATHE_I4(4) : LATHE_AB);
  } else if constexpr (kTokens == 32) {
    asm volatile(LATHE_CODES(32, LATHE_N16, 16, 17, 18) : LATHE_I16(0) : LATHE_AB);
  } else if constexpr (kTokens == 64) {
    asm volatile(LATHE_CODES(64, LATHE_N32, 32, 33, 34) : LATHE_I16(0), LATHE_I16(16) : LATHE_AB);
  } else if constexpr (kTokens == 128) {
    asm volatile(LATHE_CODES(128, LATHE_N64, 64, 65, 66) : LATHE_I64(0) : LATHE_AB);
  } else {
    asm volatile(LATHE_CODES(256, LATHE_N128, 128, 129, 130) : LATHE_I64(0), LATHE_I64(64) : LATHE_AB);
  }
}
/// After wgmma_wait: the compiler may use the sums from here on.
template <int kCount>
__device__ __forceinline__ void codes_results(int* d) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(d[i])::"memory");
}
#undef LATHE_AB
#undef LATHE_CODES
#undef LATHE_N128
#undef LATHE_N64
#undef LATHE_N32
#undef LATHE_N16
#undef LATHE_N8
#undef LATHE_N4
#undef LATHE_I64
#undef LATHE_I16
#undef LATHE_I4

#endif

}  // namespace lathe::kernels::cuda
