#pragma once
// CUDA kernels on the host, one block after the other: the kernel files of this folder, compiled by the C++ compiler, run their threads as coroutines that
// meet at barriers and warp operations. For tests on machines without a GPU: indices, synchronisation and arithmetic are checked, speed is not the point.
//
// Shared memory  Static arrays are function-local statics, dynamic memory is full of NaN at the start of each block.
// Threads        everything runs on the caller; one launch at a time in the process.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

// NOLINTBEGIN(readability-identifier-naming,google-global-names-in-headers,bugprone-reserved-identifier): CUDA's own names

namespace lathe::kernels::cuda::emulated {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
  Dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}  // NOLINT(google-explicit-constructor): as dim3
};

extern Dim3 block_index, block_size, grid_size, thread_index;
void* dynamic_shared();
void block_barrier();
void warp_barrier();
/// Lets other threads run.
void pause();
/// A barrier of `threads` threads of the block, by number.
void part_barrier(int id, int threads);
/// All live lanes of the warp give 64 bits; the result is what `lane` gave.
uint64_t exchange(uint64_t mine, int lane);
unsigned ballot(bool predicate);
/// Every lane's words, [32][words], valid until the next warp operation.
const uint32_t* gather(const uint32_t* mine, int words);
/// Barrier of all threads of a cluster in two halves; where memory of this block lies in another one.
void cluster_arrive();
void cluster_wait();
void* remote_shared(void* mine, int rank);
/// cluster: blocks along x that run at the same time and see each other's dynamic memory; their kernels have no static shared memory.
void run(Dim3 grid, Dim3 block, int64_t shared_bytes, const std::function<void()>& thread, unsigned cluster = 1);

template <class T>
T exchange_as(T value, int lane) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = exchange(bits, lane);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
inline int lane() { return static_cast<int>(thread_index.x + block_size.x * (thread_index.y + block_size.y * thread_index.z)) & 31; }

}  // namespace lathe::kernels::cuda::emulated

#define __global__ static
#define __device__
#define __host__

#define __forceinline__ inline
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define threadIdx (::lathe::kernels::cuda::emulated::thread_index)
#define blockIdx (::lathe::kernels::cuda::emulated::block_index)
#define blockDim (::lathe::kernels::cuda::emulated::block_size)
#define gridDim (::lathe::kernels::cuda::emulated::grid_size)
#define dim3 ::lathe::kernels::cuda::emulated::Dim3
#define LATHE_DYNAMIC_SHARED(T, name) T* const name = static_cast<T*>(::lathe::kernels::cuda::emulated::dynamic_shared())
#define LATHE_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
  (static_cast<void>(stream), ::lathe::kernels::cuda::emulated::run(grid, block, shared_bytes, [&]() { (kernel)(__VA_ARGS__); }))
#define LATHE_LAUNCH_CLUSTER(kernel, cluster, grid, block, shared_bytes, stream, ...) \
  (static_cast<void>(stream), ::lathe::kernels::cuda::emulated::run(grid, block, shared_bytes, [&]() { (kernel)(__VA_ARGS__); }, cluster))

struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline void __syncthreads() { ::lathe::kernels::cuda::emulated::block_barrier(); }
inline void __syncwarp(unsigned = 0xFFFFFFFFu) { ::lathe::kernels::cuda::emulated::warp_barrier(); }
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return ::lathe::kernels::cuda::emulated::exchange_as(value, ::lathe::kernels::cuda::emulated::lane() ^ mask);
}
template <class T>
T __shfl_sync(unsigned, T value, int from) {
  return ::lathe::kernels::cuda::emulated::exchange_as(value, from);
}
inline unsigned __ballot_sync(unsigned, bool predicate) { return ::lathe::kernels::cuda::emulated::ballot(predicate); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
template <class T>
T atomicAdd(T* at, T value) {
  const T old = *at;
  *at += value;
  return old;
}
template <class T>
T atomicMax(T* at, T value) {
  const T old = *at;
  if (value > old) *at = value;
  return old;
}
template <class T>
T __ldcs(const T* at) {
  return *at;
}
template <class T>
T __ldg(const T* at) {
  return *at;
}
template <class T>
void __stcs(T* at, T value) {
  *at = value;
}
inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline unsigned __float_as_uint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
inline float rsqrtf(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 32; i += 8) c += static_cast<int>(static_cast<int8_t>(a >> i & 0xFF)) * static_cast<int>(static_cast<int8_t>(b >> i & 0xFF));
  return c;
}
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline void __threadfence() {}
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }
using std::max;
using std::min;
// NOLINTEND(readability-identifier-naming,google-global-names-in-headers,bugprone-reserved-identifier)
