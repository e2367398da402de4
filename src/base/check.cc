#include "base/check.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

namespace lathe::base {

void check_failed(const char* file, int line, const char* condition, fmt::string_view format, fmt::format_args args) {
  const std::string detail = fmt::vformat(format, args);
  std::fprintf(stderr, "%s:%d: CHECK failed: %s%s%s\n", file, line, condition, detail.empty() ? "" : ": ", detail.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace lathe::base
