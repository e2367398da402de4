#pragma once
// Clusters of blocks that see each other's shared memory, and matrix products of four warps (wgmma); each with an emulated form.

#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/platform.h"

namespace lathe::kernels::cuda {

#ifdef LATHE_CUDA_EMULATED

inline void cluster_arrive() { emulated::cluster_arrive(); }
inline void cluster_wait() { emulated::cluster_wait(); }
inline void launch_next() {}
inline void wait_for_inputs() {}
inline void send_floats(float* at, int rank, float a, float b, Barrier* done) {
  auto* const to = static_cast<float*>(emulated::remote_shared(at, rank));
  to[0] = a, to[1] = b;
  barrier_bytes(static_cast<Barrier*>(emulated::remote_shared(done, rank)), 8);
}
inline void send_floats(float* at, int rank, float4 v, Barrier* done) {
  send_floats(at, rank, v.x, v.y, done), send_floats(at + 2, rank, v.z, v.w, done);
}
inline void arrive_remote(Barrier* b, int rank) { barrier_arrive(static_cast<Barrier*>(emulated::remote_shared(b, rank))); }
inline void wgmma_begin() {}
inline void wgmma_end() {}
inline void wgmma_commit() {}
template <int kCount>
void take_registers() {}
template <int kCount>
void give_registers() {}
template <int kPending>
void wgmma_wait() {}

#else

/// All threads of the cluster meet, in two halves; barriers made before the first are known to all after the second, other stores are not waited for.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("fence.mbarrier_init.release.cluster;\nbarrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
/// The next launch of the stream may begin if it was launched to overlap.
__device__ __forceinline__ void launch_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
/// All launches before this one are complete and their stores seen. Before it a kernel may read what no launch writes, and write nothing.
__device__ __forceinline__ void wait_for_inputs() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
/// Two floats to where `at` (8-byte aligned) lies in the shared memory of block `rank` of the cluster; 8 bytes for the barrier `done` there.
__device__ __forceinline__ void send_floats(float* at, int rank, float a, float b, Barrier* done) {
  asm volatile(
      "{\n"
      ".reg .b32 there, bar;\n"
      "mapa.shared::cluster.u32 there, %0, %2;\n"
      "mapa.shared::cluster.u32 bar, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [there], {%3, %4}, [bar];\n"
      "}\n" ::"r"(shared_address(at)),
      "r"(shared_address(done)), "r"(rank), "f"(a), "f"(b)
      : "memory");
}
/// Four, 16-byte aligned.
__device__ __forceinline__ void send_floats(float* at, int rank, float4 v, Barrier* done) {
  asm volatile(
      "{\n"
      ".reg .b32 there, bar;\n"
      "mapa.shared::cluster.u32 there, %0, %2;\n"
      "mapa.shared::cluster.u32 bar, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [there], {%3, %4, %5, %6}, [bar];\n"
      "}\n" ::"r"(shared_address(at)),
      "r"(shared_address(done)), "r"(rank), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
      : "memory");
}
/// One arrival at the barrier that lies there in block `rank`.
__device__ __forceinline__ void arrive_remote(Barrier* b, int rank) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}\n" ::"r"(shared_address(b)),
      "r"(rank)
      : "memory");
}
/// Before the first product of a group: registers written by the threads are ready.
__device__ __forceinline__ void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Closes the group and waits for it.
__device__ __forceinline__ void wgmma_end() { asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory"); }
/// From now on the four warps of this group have kCount registers each: more, or fewer, than the kernel began with.
template <int kCount>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
/// Closes the group; until all but the last kPending groups are done.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

#endif

/// B of a product, 16 channels x kTokens in bf16 in shared memory: cores of 8 tokens x 8 channels (128 bytes), channels 0–7 and 8–15 of 8 tokens
/// one after the other.
__host__ __device__ constexpr int operand_bytes(int tokens) { return tokens * 32; }
/// Where one lies, as the tensor core wants to know it.
struct Operand {
#ifdef LATHE_CUDA_EMULATED
  const char* at;
#else
  unsigned at;
#endif
};

#ifdef LATHE_CUDA_EMULATED

inline Operand operand_at(const void* b) { return {static_cast<const char*>(b)}; }
inline Operand operand_after(Operand b, int bytes) { return {b.at + bytes}; }

/// D (+)= A B: A 64 x 16 (rows 16 · warp …, fragments as of mma.m16n8k16), D 64 x kTokens (kTokens / 8 fragments of four); bf16, or f16 if kHalf.
template <int kTokens, bool kHalf>
void wgmma(float* d, const unsigned* a, Operand b, bool add) {
  const auto value = [](unsigned bits) { return kHalf ? f16_value(static_cast<uint16_t>(bits)) : bf16_value(static_cast<uint16_t>(bits)); };
  const unsigned* const all = emulated::gather(a, 4);
  const int lane = emulated::lane();
  for (int i = 0; i < kTokens / 2; ++i) {
    const int row = lane / 4 + (i % 4 >= 2 ? 8 : 0);
    const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    float sum = 0;
    for (int k = 0; k < 16; ++k) {
      const unsigned wa = all[(row % 8 * 4 + k % 8 / 2) * 4 + (row >= 8 ? 1 : 0) + (k >= 8 ? 2 : 0)];
      const auto* const wb = reinterpret_cast<const uint16_t*>(b.at + column / 8 * 256 + k / 8 * 128 + column % 8 * 16 + k % 8 * 2);
      sum = std::fma(value(k % 2 == 0 ? wa & 0xFFFFu : wa >> 16), value(*wb), sum);
    }
    d[i] = add ? d[i] + sum : sum;
  }
}

#else

/// Low half of the descriptor of B as laid out above: 128 bytes between cores along the channels. The high half: 256 along the tokens, no swizzle.
__device__ __forceinline__ Operand operand_at(const void* b) { return {(shared_address(b) & 0x3FFFFu) >> 4 | 128u / 16 << 16}; }
__device__ __forceinline__ Operand operand_after(Operand b, int bytes) { return {b.at + static_cast<unsigned>(bytes / 16)}; }

#define LATHE_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define LATHE_D16(i) LATHE_D4(i), LATHE_D4(i + 4), LATHE_D4(i + 8), LATHE_D4(i + 12)

/// One instruction: count is that of the sums, b and p the numbers of its last two arguments.
#define LATHE_WGMMA(tokens, type, sums, a0, a1, a2, a3, b, p)                                                                                        \
  "{\n.reg .pred p;\nsetp.ne.b32 p, %" #p ", 0;\nwgmma.mma_async.sync.aligned.m64n" #tokens "k16.f32." type "." type " {" sums "}, {%" #a0 ", %" #a1 \
  ", %" #a2 ", %" #a3 "}, %" #b ", p, 1, 1, 0;\n}\n"
#define LATHE_SUMS4 "%0, %1, %2, %3"
#define LATHE_SUMS8 LATHE_SUMS4 ", %4, %5, %6, %7"
#define LATHE_SUMS16 LATHE_SUMS8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define LATHE_SUMS32 LATHE_SUMS16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define LATHE_MULTIPLY(type)                                                                                            \
  if constexpr (kTokens == 8) {                                                                                         \
    asm volatile(LATHE_WGMMA(8, type, LATHE_SUMS4, 4, 5, 6, 7, 8, 9) : LATHE_D4(0) : LATHE_AB);                         \
  } else if constexpr (kTokens == 16) {                                                                                 \
    asm volatile(LATHE_WGMMA(16, type, LATHE_SUMS8, 8, 9, 10, 11, 12, 13) : LATHE_D4(0), LATHE_D4(4) : LATHE_AB);       \
  } else if constexpr (kTokens == 32) {                                                                                 \
    asm volatile(LATHE_WGMMA(32, type, LATHE_SUMS16, 16, 17, 18, 19, 20, 21) : LATHE_D16(0) : LATHE_AB);                \
  } else {                                                                                                              \
    asm volatile(LATHE_WGMMA(64, type, LATHE_SUMS32, 32, 33, 34, 35, 36, 37) : LATHE_D16(0), LATHE_D16(16) : LATHE_AB); \
  }
#define LATHE_AB "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(operand), "r"(plus)

/// D (+)= A B: A 64 x 16 (rows 16 · warp …, fragments as of mma.m16n8k16), D 64 x kTokens (kTokens / 8 fragments of four); bf16, or f16 if kHalf.
/// Done after wgmma_end.
template <int kTokens, bool kHalf>
__device__ __forceinline__ void wgmma(float* d, const unsigned* a, Operand b, bool add) {
  static_assert(kTokens == 8 || kTokens == 16 || kTokens == 32 || kTokens == 64);
  const uint64_t operand = uint64_t{256 / 16} << 32 | b.at;
  const int plus = add ? 1 : 0;
  if constexpr (kHalf) {
    LATHE_MULTIPLY("f16")
  } else {
    LATHE_MULTIPLY("bf16")
  }
}
#undef LATHE_AB
#undef LATHE_MULTIPLY
#undef LATHE_SUMS32
#undef LATHE_SUMS16
#undef LATHE_SUMS8
#undef LATHE_SUMS4
#undef LATHE_WGMMA
#undef LATHE_D16
#undef LATHE_D4

#endif

/// After wgmma_end: the compiler may use the sums from here on.
template <int kCount>
__device__ __forceinline__ void wgmma_results(float* d) {
#ifndef LATHE_CUDA_EMULATED
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
#else
  static_cast<void>(d);
#endif
}

}  // namespace lathe::kernels::cuda
