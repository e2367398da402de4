#pragma once
// Keeps spans and writes them as Chrome trace JSON, which Perfetto and Chromium's viewer open.

#include <string>
#include <string_view>
#include <vector>

#include "base/recorder.h"
#include "base/result.h"
#include "base/sync.h"

namespace lathe::observe {

/// Bounded store of spans. Its own mutex is on the timeline too: where recorders waited for each other, the trace itself took that time.
/// Threads  span() from any thread; write() when nobody records.
class Timeline : public base::Recorder {
 public:
  /// Keeps the first `spans_max` spans and counts the rest.
  explicit Timeline(size_t spans_max = 4u << 20) : spans_max_(spans_max) {}
  void span(const base::Span& span) override;

  std::vector<base::Span> spans() const { return spans_; }
  int64_t dropped() const { return dropped_; }
  /// One complete event per span: pid = rank, tid = worker, times in µs from the first span; args: ready, layer, tokens, detail.
  /// `outcome`: a word on how the recorded work ended, beside the count of dropped spans in "otherData".
  std::string to_chrome_json(std::string_view outcome) const;
  Result<void> write(const std::string& path, std::string_view outcome) const;

 private:
  void keep(const base::Span& span);  ///< under the mutex

  base::Mutex mutex_{"timeline"};
  size_t spans_max_;
  std::vector<base::Span> spans_;
  int64_t dropped_ = 0;
};

}  // namespace lathe::observe
