#pragma once
// What a kernel needs to run on the host: scratch memory and a worker pool.

#include <memory>
#include <vector>

#include "ops/kernel.h"

namespace lathe::backend {

/// Host memory that grows and stays, 64-byte aligned, never zeroed again. Growing loses what it held.
class HostArena {
 public:
  HostArena() = default;
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;
  ~HostArena();
  /// At least `bytes`; the same memory as before if that is large enough.
  void* ensure(int64_t bytes);

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

/// Scratch of one launch on host threads: one arena for all, one per worker.
class HostScratch final : public ops::Scratch {
 public:
  explicit HostScratch(int workers) : local_(static_cast<size_t>(workers)) {}
  void* shared(int64_t bytes) override { return shared_.ensure(bytes); }
  void* local(int worker, int64_t bytes) override { return local_[static_cast<size_t>(worker)].arena.ensure(bytes); }

 private:
  struct alignas(64) Local {  // own cache line: workers grow theirs at the same time
    HostArena arena;
  };
  HostArena shared_;
  std::vector<Local> local_;
};

/// A pool with its scratch.
class HostContext {
 public:
  explicit HostContext(int threads) : pool_(threads), scratch_(threads) {}
  base::ThreadPool& pool() { return pool_; }
  int threads() const { return pool_.threads(); }
  /// Runs the variant on this context, the counting twin if counters are given.
  void run(const ops::Variant& variant, const void* params, ops::OpCounters* counters);

 private:
  base::ThreadPool pool_;
  HostScratch scratch_;
};

}  // namespace lathe::backend
