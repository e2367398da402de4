#include "base/log.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdio>

namespace lathe::base {
namespace {
// The one process-wide pointer: logging has to work before and after every other object lives.
std::atomic<LogSink*> g_sink{nullptr};
}  // namespace

void set_log_sink(LogSink* sink) { g_sink.store(sink); }

void vlog(LogLevel level, fmt::string_view format, fmt::format_args args) {
  if (LogSink* sink = g_sink.load()) {
    sink->write(level, fmt::vformat(format, args));
  } else if (level >= LogLevel::kWarning) {
    std::fprintf(stderr, "%s: %s\n", level == LogLevel::kError ? "error" : "warning", fmt::vformat(format, args).c_str());
  }
}

}  // namespace lathe::base
