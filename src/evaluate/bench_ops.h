#pragma once
// `bench ops`: every op at the sizes of real models, against its floor and against the reference.

#include <array>
#include <map>
#include <string>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "evaluate/bench_statistics.h"
#include "evaluate/machine.h"

namespace lathe::evaluate {

struct BenchOpsOptions {
  std::string op;                               ///< only this one; empty: all
  std::vector<std::string> shapes = {"model"};  ///< "model", "published"
  std::vector<int64_t> tokens = {1, 128};       ///< rows of one call
  ops::Compute compute = ops::Compute::kBF16;
  backend::CpuOptions cpu;
  std::map<std::string, std::string> kernels;  ///< op → variant
  bool reference = true;                       ///< time the reference too
};

/// One op at one size.
struct OpBench {
  std::string shapes, op, name, variant, note;
  int64_t tokens = 0;
  Work work;                    ///< what the contract asks for
  double floor_ns = 0;          ///< by roofs of the same run, measured before and after
  std::vector<Sample> samples;  ///< units: calls
  std::vector<Sample> reference;
  int64_t reference_tokens = 0;  ///< rows of the reference's calls: fewer where all of them would take seconds
  double reference_work = 1;     ///< FLOPs of the whole over those of the reference's calls
  bool counted = false;
  std::array<int64_t, ops::kCounterCount> done{};    ///< one run of the counting twin, outside the timing
  std::array<int64_t, ops::kCounterCount> needed{};  ///< by cost()

  double time_ns() const { return summarise(samples).median; }
  double share_of_floor() const { return floor_ns / time_ns(); }
  /// How many times faster than the reference; 0 if that was not timed.
  double over_reference() const { return reference.empty() ? 0 : summarise(reference).median * reference_work / time_ns(); }
};

/// What bench_ops() finds wrong before it measures anything: op, tokens, shapes, instruction set, names of kernels. Errors: invalid_argument.
Result<void> check_bench_ops(const BenchOpsOptions& options);

/// Called before each case: number, of how many.
using BenchProgress = base::FunctionRef<void(const std::string& what, int64_t done, int64_t total)>;

/// Threads  the caller's, and the device's pool. Errors: invalid_argument (op, variant, shapes unknown; tokens < 1; instruction set).
Result<std::vector<OpBench>> bench_ops(const BenchOpsOptions& options, Roofs& roofs, BenchProgress progress);

/// A table for people.
std::string ops_page(const std::vector<OpBench>& benches);
/// Everything, samples included.
config::Json ops_json(const std::vector<OpBench>& benches);

}  // namespace lathe::evaluate
