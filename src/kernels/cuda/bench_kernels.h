#pragma once
// Memory traffic and random contents for the bench.

#include <cstdint>

namespace lathe::kernels::cuda {

enum class Traffic : int32_t { kCopy, kInPlace, kRead };
void launch_traffic(Traffic traffic, void* to, const void* from, int64_t bytes, void* stream);

enum class Content : int32_t { kF32, kBF16, kF8, kF8Tiny };
/// Uniform in [low, high); FP8: random bytes that are numbers, or subnormal ones.
void launch_fill(void* data, Content content, float low, float high, int64_t count, uint64_t seed, void* stream);

}  // namespace lathe::kernels::cuda
