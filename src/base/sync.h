#pragma once
// Mutex and condition variable that can report site, wait and hold to a Recorder. tools/check refuses the standard ones elsewhere.

#include <condition_variable>
#include <mutex>

#include "base/clock.h"
#include "base/recorder.h"

namespace lathe::base {

/// A mutex with a name. With a recorder, each acquisition that had to wait is a "lock" span (ready = asked, start = got, end = released).
class Mutex {
 public:
  explicit Mutex(const char* name) : name_(name) {}
  void lock();
  void unlock();
  bool try_lock();
  /// Not owned; null switches recording off. Call while nobody holds the mutex.
  void set_recorder(Recorder* recorder) { recorder_ = recorder; }

 private:
  friend class CondVar;
  std::mutex mutex_;
  const char* name_;
  Recorder* recorder_ = nullptr;
  int64_t asked_ns_ = 0;
  int64_t got_ns_ = 0;
};

using Lock = std::unique_lock<Mutex>;

/// Condition variable over Mutex.
class CondVar {
 public:
  template <class Predicate>
  void wait(Lock& lock, Predicate predicate) {
    while (!predicate()) condition_.wait(lock);
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable_any condition_;
};

}  // namespace lathe::base
