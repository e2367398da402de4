#pragma once
// What a kernel needs to run on the host: scratch memory and a worker pool.

#include <atomic>
#include <limits>
#include <vector>

#include "base/result.h"
#include "base/topology.h"
#include "ops/kernel.h"

namespace lathe::backend {

/// Host memory that grows and stays, 64-byte aligned, never zeroed again. Growing loses what it held.
/// Threads  one at a time.
class HostArena {
 public:
  HostArena() = default;
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;
  ~HostArena();
  /// At least `bytes`; the same memory as before if that is large enough. Null if there is no such memory.
  void* ensure(int64_t bytes);

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

/// Scratch of one launch on host threads: one arena for all, one per worker.
class HostScratch final : public ops::Scratch {
 public:
  /// `limit`: most bytes of one arena.
  HostScratch(int workers, int64_t limit) : local_(static_cast<size_t>(workers)), limit_(limit) {}
  void* shared(int64_t bytes) override { return ensure(shared_, bytes); }
  void* local(int worker, int64_t bytes) override {
    for (int64_t most = most_.load(std::memory_order_relaxed);
         bytes > most && !most_.compare_exchange_weak(most, bytes, std::memory_order_relaxed);) {
    }
    return ensure(local_[static_cast<size_t>(worker)].arena, bytes);
  }
  /// Between launches: what one worker has needed, each has from now on. So a worker that gets its first part of some work late takes no memory then.
  void even_out() {
    const int64_t most = most_.load(std::memory_order_relaxed);
    if (most <= evened_) return;
    evened_ = most;
    for (Local& local : local_) ensure(local.arena, most);
  }
  /// Bytes of a request that was refused since the start; 0: none was.
  int64_t refused() const { return refused_.load(std::memory_order_relaxed); }
  void forget_refused() { refused_.store(0, std::memory_order_relaxed); }

 private:
  void* ensure(HostArena& arena, int64_t bytes) {
    void* const memory = bytes <= limit_ ? arena.ensure(bytes) : nullptr;
    if (memory == nullptr) refused_.store(bytes, std::memory_order_relaxed);
    return memory;
  }
  struct alignas(64) Local {  // own cache line: workers grow theirs at the same time
    HostArena arena;
  };
  HostArena shared_;
  std::vector<Local> local_;
  int64_t limit_;
  int64_t evened_ = 0;            ///< every worker's arena has at least so much
  std::atomic<int64_t> most_{0};  ///< that a worker has asked for
  std::atomic<int64_t> refused_{0};
};

/// A pool with its scratch.
class HostContext {
 public:
  /// `scratch_limit`: most bytes of scratch that a launch may ask for at once.
  explicit HostContext(int threads, int64_t scratch_limit = std::numeric_limits<int64_t>::max()) : pool_(threads), scratch_(threads, scratch_limit) {}
  HostContext(const base::ThreadPlan& plan, int64_t scratch_limit) : pool_(plan), scratch_(plan.threads, scratch_limit) {}
  base::ThreadPool& pool() { return pool_; }
  int threads() const { return pool_.threads(); }
  int pinned() const { return pool_.pinned(); }
  /// Runs the variant on this context, the counting twin if counters are given. After a launch without its scratch nothing runs until take_error().
  void run(const ops::Variant& variant, const void* params, ops::OpCounters* counters);
  /// resource_exhausted if a launch since the last call lacked scratch.
  Result<void> take_error();

 private:
  base::ThreadPool pool_;
  HostScratch scratch_;
  const ops::Variant* failed_ = nullptr;  ///< the launch that lacked scratch
};

}  // namespace lathe::backend
