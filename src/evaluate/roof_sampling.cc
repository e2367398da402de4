#include "evaluate/roof_sampling.h"

#include <algorithm>

namespace lathe::evaluate {
namespace {

constexpr int kWarmRuns = 50;
constexpr int64_t kRoundsMost = int64_t{1} << 40;

int64_t span_ns(const std::vector<PartTime>& parts) {
  int64_t begin = INT64_MAX;
  int64_t end = 0;
  for (const PartTime& part : parts) begin = std::min(begin, part.start_ns), end = std::max(end, part.end_ns);
  return std::max<int64_t>(end - begin, 1);
}

/// Rounds that take at least sample_ns, the threads being awake.
int64_t rounds_for(RoofSampler run, int64_t sample_ns) {
  for (int i = 0; i < kWarmRuns && !ran_together(run(1)); ++i) {
  }
  int64_t rounds = 1;
  for (;;) {
    const int64_t took = span_ns(run(rounds));
    if (took >= sample_ns || rounds >= kRoundsMost) return rounds;
    rounds *= std::clamp<int64_t>(sample_ns / took + 1, 2, 64);
  }
}

}  // namespace

bool ran_together(const std::vector<PartTime>& parts) {
  int64_t last_start = INT64_MIN;
  int64_t first_end = INT64_MAX;
  for (size_t i = 0; i < parts.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (parts[i].worker == parts[j].worker) return false;
    }
    last_start = std::max(last_start, parts[i].start_ns), first_end = std::min(first_end, parts[i].end_ns);
  }
  return !parts.empty() && 10 * (first_end - last_start) >= 9 * span_ns(parts);
}

Peak measure_peak(RoofSampler run, double work_per_round, const PeakOptions& options) {
  const int64_t rounds = rounds_for(run, options.sample_ns);
  Peak peak;
  std::vector<double> others;
  for (int attempt = 0; attempt < options.attempts && static_cast<int>(peak.samples.size()) < options.samples; ++attempt) {
    const std::vector<PartTime> parts = run(rounds);
    const double rate = work_per_round * static_cast<double>(rounds) * 1e9 / static_cast<double>(span_ns(parts));
    (ran_together(parts) ? peak.samples : others).push_back(rate);
  }
  peak.rejected = static_cast<int>(others.size());
  peak.together = !peak.samples.empty();
  if (!peak.together) peak.samples = std::move(others);
  peak.value = *std::max_element(peak.samples.begin(), peak.samples.end());
  return peak;
}

Peak merged(const Peak& a, const Peak& b) {
  if (a.together != b.together) return a.together ? a : b;
  Peak out = a;
  out.value = std::max(a.value, b.value);
  out.samples.insert(out.samples.end(), b.samples.begin(), b.samples.end());
  out.rejected += b.rejected;
  return out;
}

}  // namespace lathe::evaluate
