#pragma once
// Programs that a benchmark runs.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace lathe::evaluate {

struct ProcessResult {
  std::string output;  ///< standard output, up to limits.benchmark_output_bytes
  int status = 0;
  int64_t wall_ns = 0, cpu_ns = 0;

  bool succeeded() const;
  bool usage_refused() const;  ///< exit code 2, as programs end whose command line does not hold
  /// "ended with exit code 3"
  std::string end() const;
};

/// Runs a program to its end, in a process group of its own and without input; standard error and the rest are the caller's. A program that cannot be
/// started ends with exit code 127. SIGINT, SIGTERM and SIGHUP stop its group, then this process; it does not outlive this process in any case.
///
/// Threads  one at a time in a process.
/// Errors: resource_exhausted.
Result<ProcessResult> run_process(const std::vector<std::string>& words);

}  // namespace lathe::evaluate
