#pragma once
// What a backend's table holds: named variants of an op. Kernels see views, a worker pool and scratch; nothing else.

#include <array>
#include <atomic>
#include <cstdint>

#include "base/threads.h"
#include "ops/op.h"

namespace lathe::ops {

/// Filled by the counting twin of a kernel.
struct OpCounters {
  std::array<std::atomic<int64_t>, kCounterCount> done{};
  void add(Counter counter, int64_t count) { done[static_cast<size_t>(counter)].fetch_add(count, std::memory_order_relaxed); }
};

/// Memory that a kernel may use during one launch. Grows when first needed and stays: steady state allocates nothing.
/// Null means that there is no such memory: the kernel returns at once, without its results, and the device reports it (backend::Device::take_error).
class Scratch {
 public:
  virtual ~Scratch() = default;
  /// At least `bytes`, 64-byte aligned, shared by all workers of the launch; each call of one launch returns the same memory, so ask once.
  virtual void* shared(int64_t bytes) = 0;
  /// The same for one worker.
  virtual void* local(int worker, int64_t bytes) = 0;
};

struct LaunchContext {
  base::ThreadPool* pool = nullptr;  ///< CPU devices
  Scratch* scratch = nullptr;        ///< CPU devices
  OpCounters* counters = nullptr;    ///< only for the counting twin
  void* stream = nullptr;            ///< devices with streams
};

using KernelFn = void (*)(const void* params, const LaunchContext& context);

/// One implementation of an op.
struct Variant {
  OpId op = OpId::kCount;
  const char* name = "";  ///< unique within the op: "ref", "avx512", "avx512_bf16"
  /// Whether this kernel can run such a problem: dtypes, layouts, fixed sizes, block offsets. Must not depend on the number of tokens or sequences:
  /// the answer is asked once per call site.
  bool (*supports)(const void* params) = nullptr;
  KernelFn run = nullptr;
  KernelFn run_counted = nullptr;  ///< the same kernel built with counters; may be null
};

}  // namespace lathe::ops
