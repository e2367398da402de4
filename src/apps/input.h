#pragma once
// What a person or a pipe gives as text: standard input and the file of -f.

#include <string>
#include <string_view>

#include "base/result.h"

namespace lathe::apps {

/// Standard input by whole reads and by lines. Unlike the streams of the library it tells an error from the end.
class Input {
 public:
  enum class Line : uint8_t { kText, kEnd, kInterrupted };

  /// The next line without its end. kInterrupted: SIGINT while an InterruptGuard lives. Errors: unavailable; invalid_argument (longer than
  /// limits.prompt_bytes; the line is skipped, the next one can be read).
  Result<Line> line(std::string& out);

 private:
  std::string buffer_;  ///< read and not yet given
  bool skipping_ = false;
};

/// The prompt of -f: a file, a pipe, or standard input ("-" and empty). Errors: those of base::read_file; failed_precondition (a pipe that nobody
/// writes to); invalid_argument (stdin longer than limits.prompt_bytes, text that is not UTF-8); cancelled.
Result<std::string> read_prompt(const std::string& path);

/// Error invalid_argument naming `what` and the first byte that is no UTF-8.
Result<void> check_utf8(std::string_view what, std::string_view text);

/// Descriptors 0 to 2 that the caller closed are opened so that using them stays an error: a file must not take their place.
void hold_standard_descriptors();

}  // namespace lathe::apps
