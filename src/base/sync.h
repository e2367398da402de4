#pragma once
// Mutex and condition variable that can report waits and holds to a Recorder. tools/check refuses the standard ones elsewhere.

#include <condition_variable>
#include <mutex>

#include "base/clock.h"
#include "base/recorder.h"

namespace lathe::base {

/// A mutex with a name, which is the site that spans show.
///
/// Recording   An acquisition that had to wait is a "lock" span: ready = asked for, start = got, end = released. Those that found the mutex free are not
///             recorded. Without a recorder lock() and unlock() cost one comparison more than the mutex of the standard library.
class Mutex {
 public:
  explicit Mutex(const char* name) : name_(name) {}
  void lock();
  void unlock();
  const char* name() const { return name_; }
  bool try_lock() { return mutex_.try_lock(); }
  /// Not owned; null switches recording off. Call while nobody holds the mutex. The recorder must not use this mutex itself.
  void set_recorder(Recorder* recorder) { recorder_ = recorder; }

 private:
  friend class CondVar;
  std::mutex mutex_;
  const char* name_;
  Recorder* recorder_ = nullptr;
  // Written by the holder.
  bool waited_ = false;
  int64_t asked_ns_ = 0;
  int64_t got_ns_ = 0;
};

using Lock = std::unique_lock<Mutex>;

/// Condition variable over Mutex. With a recorder at the mutex, a wait that found its predicate false is a "wait" span with the mutex's name.
class CondVar {
 public:
  template <class Predicate>
  void wait(Lock& lock, Predicate predicate) {
    if (predicate()) return;
    Recorder* const recorder = lock.mutex()->recorder_;
    const int64_t start = recorder != nullptr ? now_ns() : 0;
    do {
      condition_.wait(lock);
    } while (!predicate());
    if (recorder != nullptr) record(*lock.mutex(), start);
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  static void record(const Mutex& mutex, int64_t start_ns);
  std::condition_variable_any condition_;
};

}  // namespace lathe::base
