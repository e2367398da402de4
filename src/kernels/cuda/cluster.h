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

/// D (+)= A B: A 64 x 16 (rows 16 · warp …, fragments as of mma.m16n8k16), D 64 x kTokens (kTokens / 8 fragments of four).
template <int kTokens>
void wgmma(float* d, const unsigned* a, Operand b, bool add) {
  const unsigned* const all = emulated::gather(a, 4);
  const int lane = emulated::lane();
  for (int i = 0; i < kTokens / 2; ++i) {
    const int row = lane / 4 + (i % 4 >= 2 ? 8 : 0);
    const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    float sum = 0;
    for (int k = 0; k < 16; ++k) {
      const unsigned wa = all[(row % 8 * 4 + k % 8 / 2) * 4 + (row >= 8 ? 1 : 0) + (k >= 8 ? 2 : 0)];
      const auto* const wb = reinterpret_cast<const uint16_t*>(b.at + column / 8 * 256 + k / 8 * 128 + column % 8 * 16 + k % 8 * 2);
      sum = std::fma(__uint_as_float((k % 2 == 0 ? wa << 16 : wa) & 0xFFFF0000u), __uint_as_float(static_cast<unsigned>(*wb) << 16), sum);
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

/// D (+)= A B: A 64 x 16 (rows 16 · warp …, fragments as of mma.m16n8k16), D 64 x kTokens (kTokens / 8 fragments of four). Done after wgmma_end.
template <int kTokens>
__device__ __forceinline__ void wgmma(float* d, const unsigned* a, Operand b, bool add) {
  static_assert(kTokens == 8 || kTokens == 16 || kTokens == 32 || kTokens == 64);
  const uint64_t operand = uint64_t{256 / 16} << 32 | b.at;
  const int plus = add ? 1 : 0;
  if constexpr (kTokens == 8) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %9, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, p, 1, 1, 0;\n}\n"
        : LATHE_D4(0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(operand), "r"(plus));
  } else if constexpr (kTokens == 16) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %13, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, p, 1, 1, 0;\n}\n"
        : LATHE_D4(0), LATHE_D4(4)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(operand), "r"(plus));
  } else if constexpr (kTokens == 32) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, "
        "%18, %19}, "
        "%20, p, 1, 1, 0;\n}\n"
        : LATHE_D16(0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(operand), "r"(plus));
  } else {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
        "%19, "
        "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}\n"
        : LATHE_D16(0), LATHE_D16(16)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(operand), "r"(plus));
  }
}
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
