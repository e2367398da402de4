#include "evaluate/bench_statistics.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/clock.h"

namespace lathe::evaluate {

int64_t process_cpu_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

SampleClock::SampleClock() : begin_ns_(base::now_ns()) {}

Sample SampleClock::take(int64_t units, base::FunctionRef<void()> body) {
  const int64_t cpu = process_cpu_ns();
  const int64_t start = base::now_ns();
  body();
  const int64_t end = base::now_ns();
  return {.order = order_++, .start_ns = start - begin_ns_, .wall_ns = end - start, .cpu_ns = process_cpu_ns() - cpu, .units = units};
}

double median(std::vector<double> values) {
  LATHE_CHECK(!values.empty(), "median of nothing");
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Summary summarise(const std::vector<Sample>& samples) {
  std::vector<double> values;
  for (const Sample& sample : samples) values.push_back(static_cast<double>(sample.wall_ns) / static_cast<double>(sample.units));
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {.median = median(values), .low = *low, .high = *high};
}

double student_t95(int64_t freedom) {
  LATHE_CHECK(freedom >= 1, "{} degrees of freedom", freedom);
  constexpr std::array<double, 30> kTable = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                                             2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
                                             2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  if (freedom <= static_cast<int64_t>(kTable.size())) return kTable[static_cast<size_t>(freedom - 1)];
  // First terms of the expansion of t around the normal quantile z: z + (z³ + z) / (4 n).
  constexpr double kNormal = 1.959964;
  return kNormal + (kNormal * kNormal * kNormal + kNormal) / (4 * static_cast<double>(freedom));
}

RatioInterval ratio_interval(const std::vector<double>& a, const std::vector<double>& b) {
  LATHE_CHECK(a.size() == b.size() && a.size() >= 2, "{} and {} values", a.size(), b.size());
  const auto n = static_cast<double>(a.size());
  double sum = 0;
  std::vector<double> logs;
  for (size_t i = 0; i < a.size(); ++i) {
    LATHE_CHECK(a[i] > 0 && b[i] > 0, "pair {} is {} and {}", i, a[i], b[i]);
    logs.push_back(std::log(b[i] / a[i]));
    sum += logs.back();
  }
  const double mean = sum / n;
  double squares = 0;
  for (const double value : logs) squares += (value - mean) * (value - mean);
  const double half = student_t95(static_cast<int64_t>(a.size()) - 1) * std::sqrt(squares / (n - 1) / n);
  return {.ratio = std::exp(mean), .low = std::exp(mean - half), .high = std::exp(mean + half)};
}

config::Json samples_json(const std::vector<Sample>& samples) {
  config::Json::Array out;
  for (const Sample& s : samples) {
    out.push_back(
        config::Json::Object{{"order", s.order}, {"start_ns", s.start_ns}, {"wall_ns", s.wall_ns}, {"cpu_ns", s.cpu_ns}, {"units", s.units}});
  }
  return out;
}

}  // namespace lathe::evaluate
