#pragma once
// Logging as the kernel ring sees it. `observe` installs the real sink (spdlog); the default writes warnings and errors to stderr.

#include <fmt/core.h>

#include <string_view>

namespace lathe::base {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Receives every message at or above the sink's own level. Called from any thread.
class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void write(LogLevel level, std::string_view message) = 0;
};

/// Installs `sink` (not owned; null restores the default). Call before threads start.
void set_log_sink(LogSink* sink);

void vlog(LogLevel level, fmt::string_view format, fmt::format_args args);
template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  vlog(level, format, fmt::make_format_args(args...));
}

}  // namespace lathe::base
