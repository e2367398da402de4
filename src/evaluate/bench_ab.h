#pragma once
// `bench ab`: two programs or settings side by side, in pairs whose order is drawn, until the ratio has an interval.

#include <map>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "config/json.h"
#include "evaluate/bench_statistics.h"

namespace lathe::evaluate {

/// One arm: a program and what it gets on its command line besides the common part.
struct BenchArm {
  std::string name;  ///< as the user wrote it
  std::string program;
  std::vector<std::string> arguments;
};
/// What stands between blanks.
std::vector<std::string> split_words(const std::string& text);
/// "PROGRAM FLAGS…", or flags alone: then of `self`. Words are separated by blanks. Errors: invalid_argument (empty).
Result<BenchArm> parse_arm(const std::string& text, const std::string& self);

struct BenchAbOptions {
  BenchArm a, b;
  std::vector<std::string> common;  ///< after the arm's own arguments
  int pairs = 5;
  uint64_t seed = 1;  ///< of the order inside the pairs
};

/// One run of one arm.
struct ArmRun {
  bool is_b = false;
  int64_t order = 0, start_ns = 0, wall_ns = 0, cpu_ns = 0;  ///< of the whole process
  int pair = 0;
};

/// One figure: what both arms gave, pair by pair, and how many times the tokens per second of A B has.
struct BenchMetric {
  std::string name;          ///< "prefill 512", "decode 16"
  std::vector<double> a, b;  ///< tokens per second
  RatioInterval ratio;
};

struct AbBench {
  std::vector<ArmRun> runs;
  std::vector<BenchMetric> metrics;
};

/// Before anything is measured: is there such a program, and does it take these settings, this model and these lengths? Programs that know
/// `bench model --check` say so themselves; of others only the first is known. Errors: naming the arm,
/// invalid_argument (its command line does not hold), failed_precondition; its program says why.
Result<void> check_arm(const BenchArm& arm, const std::vector<std::string>& common);

/// "prefill 512" → tokens per second.
using BenchFigures = std::map<std::string, double>;
/// One run of an arm, which is a program of this kind; fills the times of `run`. Errors: failed_precondition (it failed, or reports no figures).
Result<BenchFigures> run_arm(const BenchArm& arm, const std::vector<std::string>& common, ArmRun& run);

struct PairOptions {
  int pairs = 5;
  uint64_t seed = 1;  ///< of the order inside the pairs
};
/// Runs A or B, as run.is_b says.
using RunOfPair = base::FunctionRef<Result<BenchFigures>(ArmRun& run)>;
/// Whatever A and B are. Errors: invalid_argument (fewer than two pairs), failed_precondition (other figures than in the first run), those of `run`.
Result<AbBench> bench_pairs(const PairOptions& options, RunOfPair run, base::FunctionRef<void(int done, int total)> progress);

/// Both arms are checked first. Each run is a process of its own: `PROGRAM bench model --json --samples-only ARGUMENTS… COMMON…`, whose standard error is the caller's.
/// Errors: invalid_argument (fewer than two pairs), failed_precondition (a run failed, or gave other figures than the first).
Result<AbBench> bench_ab(const BenchAbOptions& options, base::FunctionRef<void(int done, int total)> progress);

std::string ab_page(const BenchAbOptions& options, const AbBench& bench);
config::Json ab_json(const BenchAbOptions& options, const AbBench& bench);

}  // namespace lathe::evaluate
