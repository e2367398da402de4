#include "observe/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/clock.h"
#include "base/file.h"

namespace lathe::observe {

void Timeline::span(const base::Span& span) {
  base::Lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) return keep(span);
  const base::ThreadPlace place = base::this_thread_place();
  const int64_t asked = base::now_ns();
  lock.lock();
  const int64_t got = base::now_ns();
  keep(span);
  keep({.name = mutex_.name(),
        .category = "lock",
        .ready_ns = asked,
        .start_ns = got,
        .end_ns = base::now_ns(),
        .worker = place.worker,
        .rank = place.rank});
}

void Timeline::keep(const base::Span& span) {
  if (spans_.size() < spans_max_) {
    spans_.push_back(span);
  } else {
    ++dropped_;
  }
}

std::string Timeline::to_chrome_json(std::string_view outcome) const {
  int64_t origin = INT64_MAX;
  for (const base::Span& span : spans_) origin = std::min({origin, span.ready_ns, span.start_ns});
  const auto micros = [&](int64_t ns) { return static_cast<double>(ns - origin) / 1000.0; };
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  const char* separator = "";
  for (const base::Span& span : spans_) {
    // Names are literals of the source: no escaping needed.
    fmt::format_to(std::back_inserter(out), "{}\n{{\"ph\":\"X\",\"name\":\"{}\",\"cat\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f}",
                   separator, span.name, span.category, span.rank, span.worker, micros(span.start_ns),
                   static_cast<double>(span.end_ns - span.start_ns) / 1000.0);
    fmt::format_to(std::back_inserter(out), ",\"args\":{{\"ready_us\":{:.3f},\"wait_us\":{:.3f}", micros(span.ready_ns),
                   static_cast<double>(span.start_ns - span.ready_ns) / 1000.0);
    if (span.layer >= 0) fmt::format_to(std::back_inserter(out), ",\"layer\":{}", span.layer);
    if (span.tokens > 0) fmt::format_to(std::back_inserter(out), ",\"tokens\":{}", span.tokens);
    if (span.detail[0] != '\0') fmt::format_to(std::back_inserter(out), ",\"detail\":\"{}\"", span.detail);
    out += "}}";
    separator = ",";
  }
  fmt::format_to(std::back_inserter(out), "\n],\"otherData\":{{\"outcome\":\"{}\",\"dropped_spans\":{}}}}}\n", outcome, dropped_);
  return out;
}

Result<void> Timeline::write(const std::string& path, std::string_view outcome) const { return base::write_file(path, to_chrome_json(outcome)); }

}  // namespace lathe::observe
