#include "base/result.h"

#include <fmt/format.h>

#include <iterator>

namespace lathe::base {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kInvalidArgument: return "invalid_argument";
    case Code::kNotFound: return "not_found";
    case Code::kAlreadyExists: return "already_exists";
    case Code::kResourceExhausted: return "resource_exhausted";
    case Code::kFailedPrecondition: return "failed_precondition";
    case Code::kUnavailable: return "unavailable";
    case Code::kDeadlineExceeded: return "deadline_exceeded";
    case Code::kCancelled: return "cancelled";
    case Code::kUnimplemented: return "unimplemented";
    case Code::kDataLoss: return "data_loss";
    case Code::kDeviceLost: return "device_lost";
    case Code::kInternal: return "internal";
  }
  return "internal";
}

int exit_code(Code code) {
  if (code == Code::kCancelled) return 130;
  return code == Code::kInvalidArgument ? 2 : 1;
}

std::string one_line(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      line += "\\n";
    } else if (c == '\r') {
      line += "\\r";
    } else if (c == '\t') {
      line += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      fmt::format_to(std::back_inserter(line), "\\x{:02x}", byte);
    } else {
      line += c;
    }
  }
  return line;
}

Error Error::with_context(std::string_view context) const { return Error{code, one_line(context) + ": " + message}; }

tl::unexpected<Error> verr(Code code, fmt::string_view format, fmt::format_args args) {
  return tl::unexpected<Error>(Error{code, one_line(fmt::vformat(format, args))});
}

}  // namespace lathe::base
