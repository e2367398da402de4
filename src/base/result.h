#pragma once
// Expected failures. Why one vocabulary: it is mapped once to HTTP statuses and once to exit codes
// (docs/adr/0001-errors.md). Programmer errors use check.h instead.

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace lathe::base {

/// Canonical codes. The comment is the question a caller asks to choose one.
enum class Code {
  kInvalidArgument,     ///< Is the value wrong whatever the state of the system? (flag, request)
  kNotFound,            ///< Does the named thing not exist?
  kAlreadyExists,       ///< Would it overwrite something?
  kResourceExhausted,   ///< Would it succeed with more memory, queue or budget?
  kFailedPrecondition,  ///< Is the system in the wrong state for it?
  kUnavailable,         ///< Is it worth a retry later?
  kDeadlineExceeded,    ///< Did time run out?
  kCancelled,           ///< Did the caller stop it?
  kUnimplemented,       ///< Is it legal, but not supported here?
  kDataLoss,            ///< Are stored bytes truncated, corrupt, or not what such a file must hold?
  kDeviceLost,          ///< Is the device gone for good?
  kInternal,            ///< Is it our own bug, found without a CHECK?
};

/// Name of a code as it appears in logs and JSON: "invalid_argument".
std::string_view code_name(Code code);

/// Exit code of a program that ends with this error: 2 for usage (invalid_argument), 130 when stopped by hand, 1 for failures.
int exit_code(Code code);

/// The text with control characters written as \\n, \\t, \\x00 …: what a message quotes comes from files and peers.
std::string one_line(std::string_view text);

/// One failure: what a person reads, and what a program branches on.
struct Error {
  Code code = Code::kInternal;
  std::string message;  ///< One sentence on one line: the thing, its value, what was expected.

  /// The same error with "context: " in front of the message, e.g. the file being read.
  Error with_context(std::string_view context) const;
};

template <class T>
using Result = tl::expected<T, Error>;

/// Formats an Error, its text through one_line(): `return err(Code::kNotFound, "no tensor '{}' in {}", name, file);`
tl::unexpected<Error> verr(Code code, fmt::string_view format, fmt::format_args args);
template <class... Args>
[[nodiscard]] tl::unexpected<Error> err(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return verr(code, format, fmt::make_format_args(args...));
}

template <class T>
[[nodiscard]] tl::unexpected<Error> forward_error(const Result<T>& result) {
  return tl::unexpected<Error>(result.error());
}

template <class T>
[[nodiscard]] tl::unexpected<Error> forward_error(const Result<T>& result, std::string_view context) {
  return tl::unexpected<Error>(result.error().with_context(context));
}

}  // namespace lathe::base

namespace lathe {
using base::Code;
using base::err;
using base::Error;
using base::Result;
}  // namespace lathe

#define LATHE_CONCAT_INNER(a, b) a##b
#define LATHE_CONCAT(a, b) LATHE_CONCAT_INNER(a, b)
#define LATHE_TRY_NAMED(result, target, expression)         \
  auto result = (expression);                               \
  if (!result) return ::lathe::base::forward_error(result); \
  target = std::move(*result)
/// `LATHE_TRY(auto x, f());` — x = value of f(), or return its error.
#define LATHE_TRY(target, expression) LATHE_TRY_NAMED(LATHE_CONCAT(try_result_, __LINE__), target, expression)
/// `LATHE_TRY_VOID(f());` for Result<void>.
#define LATHE_TRY_VOID(expression) \
  if (auto try_void = (expression); !try_void) return ::lathe::base::forward_error(try_void)
