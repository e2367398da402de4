#include "base/threads.h"

#include <sched.h>

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"

namespace lathe::base {
namespace {

// About 40 µs: longer than the gaps inside a decode step and between two (a sleeper takes 16 µs to wake), shorter than a scheduling quantum.
constexpr int kSpins = 1600;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads)
    : threads_(threads), shares_(static_cast<size_t>(std::max(threads, 0))), last_end_ns_(static_cast<size_t>(std::max(threads, 0))) {
  LATHE_CHECK(threads >= 1, "threads {}", threads);
  for (int worker = 1; worker < threads; ++worker) helpers_.emplace_back([this, worker] { worker_main(worker); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
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

void ThreadPool::worker_main(int worker) {
  this_thread_place().worker = worker;
  uint64_t seen = 0;
  for (;;) {
    uint64_t epoch = epoch_.load(std::memory_order_acquire);
    for (int spin = 0; epoch == seen && spin < kSpins; ++spin) {
      relax();
      epoch = epoch_.load(std::memory_order_acquire);
    }
    if (epoch == seen) {
      epoch_.wait(seen, std::memory_order_acquire);
      continue;
    }
    seen = epoch;
    if (stop_.load()) return;
    work(worker);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
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
  for (int worker = 0; worker < threads_; ++worker) shares_[static_cast<size_t>(worker)].next.store(share_begin(worker), std::memory_order_relaxed);
  running_.store(threads_ - 1, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  work(0);
  if (recorder_ == nullptr) return wait_for_helpers();
  const int64_t start = now_ns();
  wait_for_helpers();
  recorder_->span({.name = "barrier", .category = "wait", .ready_ns = start, .start_ns = start, .end_ns = now_ns()});
}

void ThreadPool::wait_for_helpers() {
  for (int spin = 0; spin < kSpins && running_.load(std::memory_order_acquire) != 0; ++spin) relax();
  for (int left = running_.load(std::memory_order_acquire); left != 0; left = running_.load(std::memory_order_acquire)) {
    running_.wait(left, std::memory_order_acquire);
  }
}

int default_thread_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace lathe::base
