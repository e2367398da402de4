#pragma once
// Programmer errors: a broken invariant of our own ends the process with place and values. Never for input (result.h).

#include <fmt/core.h>

namespace lathe::base {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, fmt::string_view format, fmt::format_args args);
template <class... Args>
[[noreturn]] void check_failed_with(const char* file, int line, const char* condition, fmt::format_string<Args...> format, Args&&... args) {
  check_failed(file, line, condition, format, fmt::make_format_args(args...));
}
[[noreturn]] inline void check_failed_with(const char* file, int line, const char* condition) { check_failed(file, line, condition, "", {}); }
}  // namespace lathe::base

/// Always on. LATHE_CHECK(rows == 3, "rows {}", rows);
#define LATHE_CHECK(condition, ...)                                                                \
  do {                                                                                             \
    if (!(condition)) [[unlikely]]                                                                 \
      ::lathe::base::check_failed_with(__FILE__, __LINE__, #condition __VA_OPT__(, ) __VA_ARGS__); \
  } while (false)

#ifdef LATHE_DCHECKS
#define LATHE_DCHECK(condition, ...) LATHE_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#else
#define LATHE_DCHECK(condition, ...) \
  do {                               \
  } while (false)
#endif
