// What the bench needs besides the kernels: ceilings of memory, and contents.

#include "kernels/cuda/bench_kernels.h"

#include "kernels/cuda/platform.h"

namespace lathe::kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kEach = 8;  // 16-byte pieces of a thread

template <Traffic kTraffic>
__global__ void __launch_bounds__(kThreads) move(float4* data, const float4* from, int64_t count) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kEach + threadIdx.x;
  float4 v[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int64_t at = first + i * kThreads;
    if (at < count) v[i] = __ldcs((kTraffic == Traffic::kInPlace ? data : from) + at);
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int64_t at = first + i * kThreads;
    if (at >= count) continue;
    if (kTraffic == Traffic::kRead) {
      sum += v[i].x + v[i].y + v[i].z + v[i].w;
    } else {
      v[i].x += kTraffic == Traffic::kInPlace ? 1.0f : 0.0f;
      __stcs(data + at, v[i]);
    }
  }
  if (kTraffic == Traffic::kRead && sum == 1.2345e33f) data[0].x = sum;
}

__device__ __forceinline__ unsigned scramble(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return static_cast<unsigned>(x >> 32);
}

__global__ void fill(void* data, Content content, float low, float high, int64_t count, uint64_t seed) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const unsigned bits = scramble(seed + static_cast<uint64_t>(i));
    const float value = low + (high - low) * (static_cast<float>(bits >> 8) * 0x1p-24f);
    if (content == Content::kF32) static_cast<float*>(data)[i] = value;
    if (content == Content::kBF16) static_cast<uint16_t*>(data)[i] = static_cast<uint16_t>(__float_as_uint(value) >> 16);
    if (content == Content::kF8) static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(bits & 0xBFu);  // never NaN
    if (content == Content::kF8Tiny) static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(bits & 0x87u);
  }
}

}  // namespace

void launch_traffic(Traffic traffic, void* to, const void* from, int64_t bytes, void* stream) {
  const int64_t count = bytes / 16;
  const dim3 grid(static_cast<unsigned>((count + kThreads * kEach - 1) / (kThreads * kEach)));
  auto* const data = static_cast<float4*>(to);
  const auto* const source = static_cast<const float4*>(from);
  switch (traffic) {
    case Traffic::kCopy: LATHE_LAUNCH(move<Traffic::kCopy>, grid, dim3(kThreads), 0, stream, data, source, count); return;
    case Traffic::kInPlace: LATHE_LAUNCH(move<Traffic::kInPlace>, grid, dim3(kThreads), 0, stream, data, source, count); return;
    case Traffic::kRead: LATHE_LAUNCH(move<Traffic::kRead>, grid, dim3(kThreads), 0, stream, data, source, count); return;
  }
}

void launch_fill(void* data, Content content, float low, float high, int64_t count, uint64_t seed, void* stream) {
  LATHE_LAUNCH(fill, dim3(2048), dim3(256), 0, stream, data, content, low, high, count, seed);
}

}  // namespace lathe::kernels::cuda
