#include "apps/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "base/clock.h"

namespace lathe::apps {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;  // set by the signal handler: nothing else may be touched there

void on_interrupt(int) { g_interrupted = 1; }

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
  clear();
  struct sigaction action{};
  action.sa_handler = on_interrupt;  // without SA_RESTART: a blocked read returns
  ::sigaction(SIGINT, &action, nullptr);
}

InterruptGuard::~InterruptGuard() { std::signal(SIGINT, SIG_DFL); }
bool InterruptGuard::interrupted() { return g_interrupted != 0; }
void InterruptGuard::clear() { g_interrupted = 0; }

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

Result<void> stdout_status() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return {};
  return err(Code::kUnavailable, "cannot write to stdout: what was printed is not whole");
}

}  // namespace lathe::apps
