#include "base/result.h"

#include <fmt/format.h>

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

Error Error::with_context(std::string_view context) const { return Error{code, std::string(context) + ": " + message}; }

tl::unexpected<Error> verr(Code code, fmt::string_view format, fmt::format_args args) {
  return tl::unexpected<Error>(Error{code, fmt::vformat(format, args)});
}

}  // namespace lathe::base
