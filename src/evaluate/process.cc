#include "evaluate/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/clock.h"
#include "base/limits.h"

namespace lathe::evaluate {
namespace {

constexpr size_t kOutputMax = base::kLimits.benchmark_output_bytes;

int64_t nanoseconds(const timeval& time) { return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + static_cast<int64_t>(time.tv_usec) * 1000; }

constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP};

volatile std::sig_atomic_t g_group = 0;  // of the program that runs: the signal handler needs it and gets no argument

/// Stops the program with all that it started, and then this process as if there had been no handler.
void on_stop(int signal) {
  if (g_group > 0) ::kill(-static_cast<pid_t>(g_group), SIGTERM);
  std::signal(signal, SIG_DFL);
  ::raise(signal);
}

/// While alive, the signals that stop this process stop the program first.
class StopGuard {
 public:
  StopGuard() {
    sigemptyset(&stops_);
    for (size_t i = 0; i < std::size(kStopSignals); ++i) {
      sigaddset(&stops_, kStopSignals[i]);
      struct sigaction action{};
      action.sa_handler = on_stop;
      ::sigaction(kStopSignals[i], nullptr, &before_[i]);
      if (before_[i].sa_handler != SIG_IGN) ::sigaction(kStopSignals[i], &action, nullptr);
    }
    ::sigprocmask(SIG_BLOCK, &stops_, &mask_);  // until there is a program to stop
  }
  ~StopGuard() {
    g_group = 0;
    for (size_t i = 0; i < std::size(kStopSignals); ++i) ::sigaction(kStopSignals[i], &before_[i], nullptr);
    unblock();
  }
  StopGuard(const StopGuard&) = delete;
  StopGuard& operator=(const StopGuard&) = delete;

  void started(pid_t child) {
    g_group = child;
    unblock();
  }
  void unblock() const { ::sigprocmask(SIG_SETMASK, &mask_, nullptr); }

 private:
  sigset_t stops_{}, mask_{};
  struct sigaction before_[std::size(kStopSignals)]{};
};

/// What the child does before it becomes the program: a group of its own, nothing to read, no life beyond its parent's.
void become_child(const StopGuard& guard, int output, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(127);
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing > 0) ::dup2(nothing, 0);
  ::dup2(output, 1);
  guard.unblock();  // the handlers themselves end with exec
}

}  // namespace

Result<ProcessResult> run_process(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));  // NOLINT(cppcoreguidelines-pro-type-const-cast): execvp
  argv.push_back(nullptr);
  int pipe_ends[2];
  if (::pipe2(pipe_ends, O_CLOEXEC) != 0) return err(Code::kResourceExhausted, "cannot make a pipe: {}", std::strerror(errno));
  ProcessResult result;
  const int64_t start = base::now_ns();
  StopGuard guard;
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    become_child(guard, pipe_ends[1], parent);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(pipe_ends[1]);
  if (child < 0) {
    ::close(pipe_ends[0]);
    return err(Code::kResourceExhausted, "cannot start {}: {}", words[0], std::strerror(errno));
  }
  ::setpgid(child, child);  // in both: whoever comes first
  guard.started(child);
  char buffer[65536];
  for (;;) {
    const ssize_t got = ::read(pipe_ends[0], buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    if (result.output.size() < kOutputMax) result.output.append(buffer, static_cast<size_t>(got));
  }
  ::close(pipe_ends[0]);
  rusage usage{};
  while (::wait4(child, &result.status, 0, &usage) < 0 && errno == EINTR) {
  }
  result.wall_ns = base::now_ns() - start;
  result.cpu_ns = nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime);
  return result;
}

bool ProcessResult::succeeded() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

bool ProcessResult::usage_refused() const { return WIFEXITED(status) && WEXITSTATUS(status) == 2; }

std::string ProcessResult::end() const {
  return WIFEXITED(status) ? fmt::format("ended with exit code {}", WEXITSTATUS(status)) : fmt::format("ended with signal {}", WTERMSIG(status));
}

}  // namespace lathe::evaluate
