#pragma once
// The timeline as the kernel ring sees it: spans with ready, start and end. `observe` keeps and exports them.

#include <cstdint>

namespace lathe::base {

/// One piece of work or of waiting on one worker. Names are string literals: recording never allocates.
struct Span {
  const char* name = "";      ///< name of the op, the lock, or what was waited for
  const char* category = "";  ///< "op", "piece", "wait", "lock"
  const char* detail = "";    ///< chosen variant, call site
  int64_t ready_ns = 0;       ///< later of its enqueueing and the end of the previous piece on this worker; of a lock: when it was asked for
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int32_t worker = 0;
  int32_t layer = -1;
  int32_t rank = 0;
  int64_t tokens = 0;
};

/// Where the calling thread stands, for spans that are recorded where nobody else knows (locks). A thread is worker 0 of rank 0 until somebody says more:
/// a pool numbers its helpers and gives them the rank of whoever calls it, whoever switches recording on names the rank of its thread.
struct ThreadPlace {
  int32_t rank = 0;
  int32_t worker = 0;
};
ThreadPlace& this_thread_place();

/// Receives spans from any thread; must be cheap and must not throw.
class Recorder {
 public:
  virtual ~Recorder() = default;
  virtual void span(const Span& span) = 0;
};

}  // namespace lathe::base
