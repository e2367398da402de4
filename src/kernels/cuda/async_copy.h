#pragma once
// Copies that run beside the threads, and the barriers that go with them. In the emulation a copy is done at once and a wait lets other threads run.

#include "kernels/cuda/device.h"

namespace lathe::kernels::cuda {

/// mbarrier in shared memory: a phase ends when `count` arrivals and all announced bytes have come.
struct alignas(8) Barrier {
  unsigned word[2];
#ifdef LATHE_CUDA_EMULATED
  int bytes;  ///< announced and not come
#endif
};

#ifdef LATHE_CUDA_EMULATED

inline void barrier_init(Barrier* b, unsigned count) { b->word[0] = count << 16 | count, b->word[1] = 0, b->bytes = 0; }
inline void barrier_settle(Barrier* b) {
  if ((b->word[0] & 0xFFFFu) == 0 && b->bytes == 0) b->word[0] |= b->word[0] >> 16, b->word[1] ^= 1u;
}
inline void barrier_arrive(Barrier* b) { --b->word[0], barrier_settle(b); }
inline void barrier_arrive_expect(Barrier* b, unsigned bytes) { b->bytes += static_cast<int>(bytes), barrier_arrive(b); }
inline void barrier_bytes(Barrier* b, unsigned bytes) { b->bytes -= static_cast<int>(bytes), barrier_settle(b); }
inline void barrier_wait(Barrier* b, unsigned parity) {
  while (b->word[1] == parity) emulated::pause();
}
inline void barriers_ready() {}
inline void bulk_load(void* to, const void* from, unsigned bytes, Barrier* b) { std::memcpy(to, from, bytes), barrier_bytes(b, bytes); }
inline void bulk_store(void* to, const void* from, unsigned bytes) { std::memcpy(to, from, bytes); }
inline void bulk_stores_read() {}
inline void bulk_stores_done() {}
inline void fence_for_bulk() {}
inline void copy_16(void* to, const void* from, bool there) {
  if (there) {
    std::memcpy(to, from, 16);
  } else {
    std::memset(to, 0, 16);
  }
}
inline void copy_16(void* to, const void* from) { std::memcpy(to, from, 16); }
inline void copy_4(void* to, const void* from) { std::memcpy(to, from, 4); }
inline void copies_commit() {}
template <int kPending>
void copies_wait() {}
/// All of `threads` threads that use barrier `id` (1 … 15).
inline void part_barrier(int id, int threads) { emulated::part_barrier(id, threads); }

#else

__device__ __forceinline__ unsigned shared_address(const void* at) { return static_cast<unsigned>(__cvta_generic_to_shared(at)); }
__device__ __forceinline__ void barrier_init(Barrier* b, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(count) : "memory");
}
/// After the inits, before anybody uses the barriers (and a __syncthreads).
__device__ __forceinline__ void barriers_ready() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void barrier_arrive(Barrier* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
__device__ __forceinline__ void barrier_arrive_expect(Barrier* b, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}
/// Until the phase of this parity has ended.
__device__ __forceinline__ void barrier_wait(Barrier* b, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}\n" ::"r"(shared_address(b)),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void bulk_load(void* to, const void* from, unsigned bytes, Barrier* b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)), "l"(from),
               "r"(bytes), "r"(shared_address(b))
               : "memory");
}
__device__ __forceinline__ void bulk_store(void* to, const void* from, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\ncp.async.bulk.commit_group;" ::"l"(to), "r"(shared_address(from)),
               "r"(bytes)
               : "memory");
}
/// This thread's bulk stores no longer need their source; or are done.
__device__ __forceinline__ void bulk_stores_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ __forceinline__ void bulk_stores_done() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
/// Between a thread's stores to shared memory and the bulk copy that reads them.
__device__ __forceinline__ void fence_for_bulk() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
/// 16 bytes, or zeros; nothing of it stays in L1.
__device__ __forceinline__ void copy_16(void* to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}
__device__ __forceinline__ void copy_16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_4(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
__device__ __forceinline__ void part_barrier(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

#endif

}  // namespace lathe::kernels::cuda
