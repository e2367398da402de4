#include "apps/terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "base/clock.h"

namespace lathe::apps {
namespace {

// All that the signal handler touches: a flag, and a pipe for who waits in poll(), where a flag that is set just before would go unseen.
volatile std::sig_atomic_t g_interrupted = 0;
int g_wake[2] = {-1, -1};

void on_interrupt(int) {
  const int error = errno;
  g_interrupted = 1;
  if (::write(g_wake[1], "", 1) < 0) errno = error;  // a full pipe wakes as well
}

}  // namespace

bool stdin_is_terminal() { return ::isatty(STDIN_FILENO) == 1; }
bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }
bool stdout_has_colour() { return stdout_is_terminal() && std::getenv("NO_COLOR") == nullptr; }

Progress::Progress(std::string what, int64_t total, ProgressOptions options)
    : what_(std::move(what)), total_(total), enabled_(!options.quiet && stderr_is_terminal()), begin_ns_(base::now_ns()) {}

Progress::~Progress() { finish(); }

void Progress::update(int64_t done) {
  constexpr int64_t kFirstNs = 300'000'000;  // work shorter than this shows nothing
  constexpr int64_t kEveryNs = 100'000'000;
  const int64_t now = base::now_ns();
  if (!enabled_ || now - begin_ns_ < kFirstNs || now - last_ns_ < kEveryNs) return;
  last_ns_ = now;
  std::string left;
  if (done > 0 && done < total_) {
    const double seconds = static_cast<double>(now - begin_ns_) / 1e9 * static_cast<double>(total_ - done) / static_cast<double>(done);
    left = fmt::format("  {:.0f} s left", seconds);
  }
  std::fputs(fmt::format("\r\x1b[K{}  {}/{}{}", what_, done, total_, left).c_str(), stderr);
  std::fflush(stderr);
  shown_ = true;
}

void Progress::finish() {
  if (!shown_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

void Stages::show(const std::string& what, int64_t done, int64_t total) {
  if (what != what_ || progress_ == nullptr) {
    progress_.reset();
    progress_ = std::make_unique<Progress>(what, total, options_);
  }
  what_ = what;
  progress_->update(done);
}

InterruptGuard::InterruptGuard() {
  if (::pipe2(g_wake, O_CLOEXEC | O_NONBLOCK) != 0) g_wake[0] = g_wake[1] = -1;
  clear();
  struct sigaction action{};
  action.sa_handler = on_interrupt;  // without SA_RESTART: a blocked read returns
  ::sigaction(SIGINT, &action, nullptr);
}

InterruptGuard::~InterruptGuard() {
  std::signal(SIGINT, SIG_DFL);
  for (int& end : g_wake) {
    if (end >= 0) ::close(end);
    end = -1;
  }
}
bool InterruptGuard::interrupted() { return g_interrupted != 0; }
void InterruptGuard::clear() {
  g_interrupted = 0;
  char bytes[64];
  while (::read(g_wake[0], bytes, sizeof(bytes)) > 0) {
  }
}

bool wait_for_input() {
  while (!InterruptGuard::interrupted()) {
    pollfd ends[2] = {{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0}, {.fd = g_wake[0], .events = POLLIN, .revents = 0}};
    if (::poll(ends, 2, -1) > 0 && ends[0].revents != 0) return !InterruptGuard::interrupted();
  }
  return false;
}

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

Result<void> stdout_status() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return {};
  return err(Code::kUnavailable, "cannot write to stdout: what was printed is not whole");
}

}  // namespace lathe::apps
