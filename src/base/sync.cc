#include "base/sync.h"

namespace lathe::base {

ThreadPlace& this_thread_place() {
  static thread_local ThreadPlace place;
  return place;
}

void Mutex::lock() {
  if (recorder_ == nullptr) {
    mutex_.lock();
    return;
  }
  if (mutex_.try_lock()) return;
  const int64_t asked = now_ns();
  mutex_.lock();
  waited_ = true;
  asked_ns_ = asked;
  got_ns_ = now_ns();
}

void Mutex::unlock() {
  if (!waited_) {
    mutex_.unlock();
    return;
  }
  waited_ = false;
  Recorder* const recorder = recorder_;
  const ThreadPlace place = this_thread_place();
  const Span span{
      .name = name_, .category = "lock", .ready_ns = asked_ns_, .start_ns = got_ns_, .end_ns = now_ns(), .worker = place.worker, .rank = place.rank};
  mutex_.unlock();
  if (recorder != nullptr) recorder->span(span);
}

void CondVar::record(const Mutex& mutex, int64_t start_ns) {
  const ThreadPlace place = this_thread_place();
  mutex.recorder_->span({.name = mutex.name_,
                         .category = "wait",
                         .ready_ns = start_ns,
                         .start_ns = start_ns,
                         .end_ns = now_ns(),
                         .worker = place.worker,
                         .rank = place.rank});
}

}  // namespace lathe::base
