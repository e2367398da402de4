#include "base/threads.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <span>
#include <system_error>

#include "base/check.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/topology.h"

namespace lathe::base {
namespace {

// About 40 µs: longer than the gaps inside a decode step and between two (a sleeper takes 16 µs to wake), shorter than a scheduling quantum.
constexpr int kSpins = 1600;

/// A set of processors as the system takes it: the usual type ends at 1024.
constexpr size_t kMaskBytes = CPU_ALLOC_SIZE(kLimits.processors);

/// Of ThreadPool's state: the lowest bit above the number of helpers inside.
constexpr uint64_t kTurn = 1 << 16;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

/// Puts a thread on some processors; false if the system refuses. An empty list: nothing is wanted.
bool pin(pthread_t thread, std::span<const int> cpus) {
  if (cpus.empty()) return false;
  std::vector<unsigned char> mask(kMaskBytes);
  for (const int cpu : cpus) {
    LATHE_CHECK(cpu >= 0 && cpu < static_cast<int>(kLimits.processors), "processor {}", cpu);
    CPU_SET_S(static_cast<size_t>(cpu), kMaskBytes, reinterpret_cast<cpu_set_t*>(mask.data()));
  }
  return pthread_setaffinity_np(thread, kMaskBytes, reinterpret_cast<const cpu_set_t*>(mask.data())) == 0;
}

}  // namespace

ThreadPool::ThreadPool(int threads)
    : threads_(threads), shares_(static_cast<size_t>(std::max(threads, 0))), last_end_ns_(static_cast<size_t>(std::max(threads, 0))) {
  LATHE_CHECK(threads >= 1 && threads < static_cast<int>(kTurn), "threads {}", threads);
  try {
    for (int worker = 1; worker < threads; ++worker) helpers_.emplace_back([this, worker] { worker_main(worker); });
  } catch (const std::system_error&) {
    threads_ = static_cast<int>(helpers_.size()) + 1;  // nobody reads it before the first call
  }
}

ThreadPool::ThreadPool(const ThreadPlan& plan) : ThreadPool(plan.threads) {
  for (size_t worker = 1; worker <= helpers_.size() && worker < plan.workers.size(); ++worker) {
    if (pin(helpers_[worker - 1].native_handle(), plan.workers[worker].cpus)) ++pinned_;
  }
  if (plan.workers.empty() || plan.workers.front().cpus.empty()) return;
  const pthread_t self = pthread_self();
  std::vector<unsigned char> before(kMaskBytes);
  if (pthread_getaffinity_np(self, kMaskBytes, reinterpret_cast<cpu_set_t*>(before.data())) != 0) return;
  if (!pin(self, plan.workers.front().cpus)) return;
  ++pinned_;
  caller_ = self;
  callers_mask_ = std::move(before);
}

ThreadPool::~ThreadPool() {
  if (!callers_mask_.empty() && pthread_equal(caller_, pthread_self()) != 0) {
    pthread_setaffinity_np(caller_, kMaskBytes, reinterpret_cast<const cpu_set_t*>(callers_mask_.data()));
  }
  stop_.store(true);
  open();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadPool::set_recorder(Recorder* recorder, const char* name) {
  if (recorder_ == nullptr) std::fill(last_end_ns_.begin(), last_end_ns_.end(), 0);  // what was before is not idling
  recorder_ = recorder;
  name_ = name;
}

void ThreadPool::work(int worker) {
  if (recorder_ != nullptr) return work_recorded(worker);
  int offset = 0;
  for (int64_t task = take(worker, offset); task >= 0; task = take(worker, offset)) (*body_)(task, worker);
}

int64_t ThreadPool::take(int worker, int& offset) {
  for (; offset < threads_; ++offset) {
    const int from = (worker + offset) % threads_;
    const int64_t task = shares_[static_cast<size_t>(from)].next.fetch_add(1, std::memory_order_relaxed);
    if (task < share_begin(from + 1)) return task;
  }
  return -1;
}

void ThreadPool::work_recorded(int worker) {
  int offset = 0;
  int64_t task = take(worker, offset);
  if (task < 0) return;
  const int64_t start = now_ns();
  int64_t& last = last_end_ns_[static_cast<size_t>(worker)];
  const int64_t ready = std::max(enqueued_ns_, last);
  if (worker != 0 && last != 0) {
    recorder_->span({.name = "idle", .category = "wait", .ready_ns = last, .start_ns = last, .end_ns = start, .worker = worker});
  }
  for (; task >= 0; task = take(worker, offset)) (*body_)(task, worker);
  last = now_ns();
  recorder_->span({.name = name_, .category = "piece", .ready_ns = ready, .start_ns = start, .end_ns = last, .worker = worker});
}

void ThreadPool::open() {
  state_.fetch_add(kTurn, std::memory_order_release);
  state_.notify_all();
}

bool ThreadPool::join(uint64_t& seen) {
  uint64_t state = state_.load(std::memory_order_relaxed);
  while ((state & kTurn) != 0 && state / kTurn != seen) {
    if (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire, std::memory_order_relaxed)) continue;
    seen = state / kTurn;
    return true;
  }
  return false;
}

void ThreadPool::leave() {
  const uint64_t before = state_.fetch_sub(1, std::memory_order_acq_rel);
  if ((before & kTurn) == 0 && before % kTurn == 1) state_.notify_all();
}

void ThreadPool::close() {
  uint64_t state = state_.fetch_add(kTurn, std::memory_order_acq_rel) + kTurn;
  for (int spin = 0; state % kTurn != 0 && spin < kSpins; ++spin) {
    relax();
    state = state_.load(std::memory_order_acquire);
  }
  for (; state % kTurn != 0; state = state_.load(std::memory_order_acquire)) state_.wait(state, std::memory_order_acquire);
}

void ThreadPool::worker_main(int worker) {
  ThreadPlace& place = this_thread_place();
  place.worker = worker;
  uint64_t seen = 0;
  for (;;) {
    bool inside = join(seen);
    for (int spin = 0; !inside && spin < kSpins; ++spin) {
      relax();
      inside = join(seen);
    }
    if (!inside) {
      const uint64_t state = state_.load(std::memory_order_relaxed);
      if ((state & kTurn) == 0 || state / kTurn == seen) state_.wait(state, std::memory_order_relaxed);
      continue;
    }
    if (stop_.load()) return leave();
    place.rank = rank_;
    work(worker);
    leave();
  }
}

void ThreadPool::for_each(int64_t tasks, FunctionRef<void(int64_t task, int worker)> body) {
  if (tasks <= 0) return;
  if (threads_ == 1 || tasks == 1) {
    const int64_t start = recorder_ ? now_ns() : 0;
    for (int64_t task = 0; task < tasks; ++task) body(task, 0);
    if (recorder_ != nullptr) {
      last_end_ns_[0] = now_ns();
      recorder_->span({.name = name_, .category = "piece", .ready_ns = start, .start_ns = start, .end_ns = last_end_ns_[0]});
    }
    return;
  }
  tasks_ = tasks;
  body_ = &body;
  enqueued_ns_ = recorder_ ? now_ns() : 0;
  rank_ = this_thread_place().rank;
  for (int worker = 0; worker < threads_; ++worker) shares_[static_cast<size_t>(worker)].next.store(share_begin(worker), std::memory_order_relaxed);
  open();
  work(0);
  if (recorder_ == nullptr) return close();
  const int64_t start = now_ns();
  close();
  recorder_->span({.name = "barrier", .category = "wait", .ready_ns = start, .start_ns = start, .end_ns = now_ns()});
}

int default_thread_count() { return system_plan().threads; }

}  // namespace lathe::base
