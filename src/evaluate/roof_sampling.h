#pragma once
// How a roof is taken from timed runs: only runs in which all threads really worked at the same time count, and of those the best one.

#include <cstdint>
#include <vector>

#include "base/function_ref.h"

namespace lathe::evaluate {

/// When one thread's part of a run began and ended, and which worker ran it.
struct PartTime {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int worker = 0;
};

/// Runs `rounds` rounds on every thread at once; one entry a part.
using RoofSampler = base::FunctionRef<std::vector<PartTime>(int64_t rounds)>;

struct PeakOptions {
  int64_t sample_ns = 4'000'000;  ///< shortest sample: long against waking a thread, short against a machine's moods
  int samples = 7;                ///< as many that count
  int attempts = 28;              ///< no more runs than that
};

/// The best of some samples, in work per second.
struct Peak {
  double value = 0;
  std::vector<double> samples;  ///< those that count; where none does, all of them
  int rejected = 0;             ///< runs in which a thread slept, waited for its turn, or ran two parts
  bool together = true;         ///< false: no run counted, and the value is too low
};

/// Did every part have a worker of its own, and do at least nine tenths of the run belong to all of them?
bool ran_together(const std::vector<PartTime>& parts);

/// work_per_round: of all threads together. Warms up until the workers run together, finds how many rounds a sample needs, then samples.
Peak measure_peak(RoofSampler run, double work_per_round, const PeakOptions& options = {});

/// The better of two measurements of the same roof, with the samples of both.
Peak merged(const Peak& a, const Peak& b);

}  // namespace lathe::evaluate
