#pragma once
// The worker pool that kernels run on. One pool belongs to one device; its owner is the only caller.

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/function_ref.h"
#include "base/recorder.h"

namespace lathe::base {

struct ThreadPlan;

/// Fixed set of threads that share numbered tasks.
///
/// Threads   The calling thread is worker 0; `threads - 1` more are started and joined by this object. for_each is not re-entrant and has one caller at a time.
///           Inside a call the helpers are of the caller's rank (this_thread_place).
/// Waiting   Workers spin for a short while after work (decode launches every few µs) and then sleep. A call waits only for helpers that have begun: on a
///           loaded machine the caller does the tasks of those that do not get a processor.
class ThreadPool {
 public:
  /// threads >= 1. Where the system refuses to start so many, threads() is less afterwards.
  explicit ThreadPool(int threads);
  /// As many threads as planned, each where the plan wants it. What the system refuses runs anywhere: see pinned().
  /// The caller's thread goes to its place too, until this object is destroyed.
  explicit ThreadPool(const ThreadPlan& plan);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }
  /// Threads that were put where the plan wants them.
  int pinned() const { return pinned_; }

  /// Calls body(task, worker) once for every task in [0, tasks), in any order and on any worker; returns when all are done.
  /// Results must not depend on which worker runs a task.
  void for_each(int64_t tasks, FunctionRef<void(int64_t task, int worker)> body);

  /// Null switches recording off; not owned. Call between two for_each. A recorder gets, per call of for_each,
  ///   "piece"  one per worker that ran a task, named `name`
  ///   "wait"   "barrier" of worker 0: from the end of its own piece until all are done; "idle" of a helper: from the end of its last piece, while
  ///            recording, to the start of the next one. Helpers that found no task left go on idling.
  void set_recorder(Recorder* recorder, const char* name = "pool");

 private:
  /// A worker's own tasks: a contiguous range, the same in every call with as many tasks, so that what it read and wrote last time is in its caches.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};  ///< next task to take
  };
  int64_t share_begin(int worker) const { return tasks_ * worker / threads_; }
  /// A task of the worker's own share, then of the others'; −1 when none is left. `offset`: 0 at first, how far it has come.
  int64_t take(int worker, int& offset);
  void work(int worker);
  void work_recorded(int worker);
  void open();
  /// Joins the open call, if it is not the one of `seen`.
  bool join(uint64_t& seen);
  void leave();
  /// No more helpers may join; waits for those inside.
  void close();
  void worker_main(int worker);

  int threads_;
  int pinned_ = 0;
  std::vector<unsigned char> callers_mask_;  ///< where the caller's thread might run before it was pinned; empty: it was not
  std::thread::native_handle_type caller_{};
  /// High bits: number of openings and closings so far, odd while a call is open. Low bits: helpers inside it.
  std::atomic<uint64_t> state_{0};
  std::atomic<bool> stop_{false};
  int64_t tasks_ = 0;
  std::vector<Share> shares_;
  const FunctionRef<void(int64_t, int)>* body_ = nullptr;
  Recorder* recorder_ = nullptr;
  const char* name_ = "pool";
  int32_t rank_ = 0;  ///< of the caller, for the helpers
  int64_t enqueued_ns_ = 0;
  std::vector<int64_t> last_end_ns_;  ///< [threads] end of the worker's last piece while recording, 0: none yet; written by that worker
  std::vector<std::thread> helpers_;
};

/// Threads to use when nobody says: those of system_plan (base/topology.h).
int default_thread_count();

}  // namespace lathe::base
