#pragma once
// Samples of a measurement, and what may be said about them.

#include <cstdint>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "config/json.h"

namespace lathe::evaluate {

/// One timed run. Every one is kept: medians alone cannot be judged again.
struct Sample {
  int64_t order = 0;     ///< over all samples of the run, in the order they were taken
  int64_t start_ns = 0;  ///< monotonic clock, from the beginning of the run
  int64_t wall_ns = 0;
  int64_t cpu_ns = 0;  ///< of the process, all threads
  int64_t units = 1;   ///< calls or tokens that the sample timed
};

/// Takes samples and numbers them.
class SampleClock {
 public:
  SampleClock();
  /// Times one call of `body`, which does `units` units.
  Sample take(int64_t units, base::FunctionRef<void()> body);

 private:
  int64_t begin_ns_;
  int64_t order_ = 0;
};

struct Summary {
  double median = 0;
  double low = 0, high = 0;  ///< smallest and largest
};
/// Of wall time per unit, in nanoseconds.
Summary summarise(const std::vector<Sample>& samples);
/// Middle value; the mean of the two middle ones if their number is even. Not of nothing.
double median(std::vector<double> values);

/// How many times B is A, by pairs taken side by side.
struct RatioInterval {
  double ratio = 1;
  double low = 1, high = 1;  ///< 95 %
};
/// From the logarithms of b / a, pair by pair: their mean, and Student's t over their spread. At least two pairs, all values above 0.
RatioInterval ratio_interval(const std::vector<double>& a, const std::vector<double>& b);
/// Two-sided 95 % point of Student's t.
double student_t95(int64_t freedom);

/// {"order", "start_ns", "wall_ns", "cpu_ns", "units"} for each.
config::Json samples_json(const std::vector<Sample>& samples);

/// CPU time of this process so far.
int64_t process_cpu_ns();

}  // namespace lathe::evaluate
