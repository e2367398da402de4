#include "base/sync.h"

namespace lathe::base {

void Mutex::lock() {
  if (recorder_ == nullptr) {
    mutex_.lock();
    return;
  }
  const int64_t asked = now_ns();
  mutex_.lock();
  asked_ns_ = asked;
  got_ns_ = now_ns();
}

bool Mutex::try_lock() {
  if (!mutex_.try_lock()) return false;
  asked_ns_ = got_ns_ = recorder_ ? now_ns() : 0;
  return true;
}

void Mutex::unlock() {
  Recorder* recorder = recorder_;
  const Span span{.name = name_, .category = "lock", .ready_ns = asked_ns_, .start_ns = got_ns_, .end_ns = recorder ? now_ns() : 0};
  mutex_.unlock();
  if (recorder != nullptr) recorder->span(span);
}

}  // namespace lathe::base
