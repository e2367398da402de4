#include "evaluate/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/limits.h"

namespace lathe::evaluate {
namespace {

constexpr size_t kOutputMax = base::kLimits.benchmark_output_bytes;

int64_t nanoseconds(const timeval& time) { return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + static_cast<int64_t>(time.tv_usec) * 1000; }

}  // namespace

Result<ProcessResult> run_process(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));  // NOLINT(cppcoreguidelines-pro-type-const-cast): execvp
  argv.push_back(nullptr);
  int pipe_ends[2];
  if (::pipe2(pipe_ends, O_CLOEXEC) != 0) return err(Code::kResourceExhausted, "cannot make a pipe: {}", std::strerror(errno));
  ProcessResult result;
  const int64_t start = base::now_ns();
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(pipe_ends[1], 1);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(pipe_ends[1]);
  if (child < 0) {
    ::close(pipe_ends[0]);
    return err(Code::kResourceExhausted, "cannot start {}: {}", words[0], std::strerror(errno));
  }
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

std::string ProcessResult::end() const {
  return WIFEXITED(status) ? fmt::format("ended with exit code {}", WEXITSTATUS(status)) : fmt::format("ended with signal {}", WTERMSIG(status));
}

}  // namespace lathe::evaluate
