#include "apps/input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "apps/terminal.h"
#include "base/file.h"
#include "base/limits.h"
#include "text/utf8.h"

namespace lathe::apps {
namespace {

constexpr size_t kPiece = 1 << 16;
constexpr size_t kPromptMax = base::kLimits.prompt_bytes;

/// Appends what one read gives. 0: the end. `name` is for the message.
Result<size_t> read_piece(int descriptor, std::string_view name, std::string& text) {
  const size_t begin = text.size();
  text.resize(begin + kPiece);
  const ssize_t got = ::read(descriptor, text.data() + begin, kPiece);
  const int cause = errno;
  text.resize(begin + static_cast<size_t>(got > 0 ? got : 0));
  if (got >= 0) return static_cast<size_t>(got);
  if (cause == EINTR) return err(Code::kCancelled, "interrupted while {} was read", name);
  return err(Code::kUnavailable, "cannot read {}: {}", name, std::strerror(cause));
}

Result<std::string> read_to_end(int descriptor, const std::string& name) {
  std::string text;
  for (;;) {
    LATHE_TRY(const size_t got, read_piece(descriptor, name, text));
    if (got == 0) return text;
    if (text.size() > kPromptMax) return err(Code::kInvalidArgument, "the prompt in {} is longer than the limit of {} bytes", name, kPromptMax);
  }
}

bool is_pipe(const std::string& path) {
  struct stat info{};
  return path.find('\0') == std::string::npos && ::stat(path.c_str(), &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode));
}

Result<std::string> read_pipe(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // one without a writer must not be waited for
  if (descriptor < 0) return err(Code::kUnavailable, "cannot open '{}': {}", path, std::strerror(errno));
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
  struct stat info{};
  const bool fifo = ::fstat(descriptor, &info) == 0 && S_ISFIFO(info.st_mode);
  auto text = read_to_end(descriptor, fmt::format("'{}'", path));
  ::close(descriptor);
  if (text && text->empty() && fifo) return err(Code::kFailedPrecondition, "the pipe '{}' gave nothing: expected a program that writes to it", path);
  return text;
}

Result<std::string> read_anything(const std::string& path) {
  if (path.empty() || path == "-" || path == "/dev/stdin") return read_to_end(STDIN_FILENO, "stdin");
  return is_pipe(path) ? read_pipe(path) : base::read_file(path, kPromptMax);
}

}  // namespace

Result<Input::Line> Input::line(std::string& out) {
  for (;;) {
    const size_t end = buffer_.find('\n');
    if (end != std::string::npos || (buffer_.size() > kPromptMax && !skipping_)) {
      const bool too_long = end == std::string::npos || end > kPromptMax;
      out = buffer_.substr(0, end);
      buffer_.erase(0, end == std::string::npos ? end : end + 1);
      const bool tail = std::exchange(skipping_, end == std::string::npos);
      if (tail) continue;  // of a line that was refused
      if (too_long) return err(Code::kInvalidArgument, "a turn is longer than the limit of {} bytes", kPromptMax);
      return Line::kText;
    }
    if (skipping_) buffer_.clear();
    const auto got = read_piece(STDIN_FILENO, "stdin", buffer_);
    if (!got && got.error().code == Code::kCancelled) return Line::kInterrupted;
    if (!got) return base::forward_error(got);
    if (*got == 0 && (buffer_.empty() || skipping_)) return Line::kEnd;
    if (*got == 0) buffer_ += '\n';  // a last line without an end
  }
}

Result<std::string> read_prompt(const std::string& path) {
  const InterruptGuard guard;
  LATHE_TRY(std::string text, read_anything(path));
  const bool from_stdin = path.empty() || path == "-";
  LATHE_TRY_VOID(check_utf8(from_stdin ? "the prompt on stdin" : fmt::format("'{}'", path), text));
  return text;
}

Result<void> check_utf8(std::string_view what, std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const text::Utf8Step step = text::utf8_step(text, at);
    if (step.kind != text::Utf8::kValid) {
      return err(Code::kInvalidArgument, "{} is not UTF-8 at byte {}: expected text", what, at);
    }
    at += step.length;
  }
  return {};
}

void hold_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    (void)::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // takes the lowest free number, which is this one
  }
}

}  // namespace lathe::apps
