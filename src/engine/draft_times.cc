#include "engine/draft_times.h"

#include <algorithm>
#include <bit>

namespace lathe::engine {
namespace {

constexpr double kNew = 1.0 / 8;  // share of a new time in the mean
constexpr double kOutlier = 2;    // a time beyond so many means counts as that: other work held the processors
constexpr double kUntried = 0.8;  // of the nearest measured rate

}  // namespace

/// One each up to 8 rows, then four an octave.
int RateCurve::bucket(int64_t rows) {
  const auto n = static_cast<uint64_t>(std::max<int64_t>(rows, 1));
  if (n <= 8) return static_cast<int>(n) - 1;
  const int octave = static_cast<int>(std::bit_width(n)) - 1;  // 3 for 8 … 15
  const auto quarter = static_cast<int>((n >> (octave - 2)) & 3);
  return std::min(8 + 4 * (octave - 3) + quarter, kBuckets - 1);
}

void RateCurve::took(int64_t rows, double ns_per_byte) {
  double& rate = rate_[static_cast<size_t>(bucket(rows))];
  rate = rate == 0 ? ns_per_byte : rate + kNew * (std::min(ns_per_byte, kOutlier * rate) - rate);
}

double RateCurve::at(int64_t rows, double unknown) const {
  const int here = bucket(rows);
  int below = here, above = here;
  while (below >= 0 && rate_[static_cast<size_t>(below)] == 0) --below;
  while (above < kBuckets && rate_[static_cast<size_t>(above)] == 0) ++above;
  if (below == here) return rate_[static_cast<size_t>(here)];
  if (below < 0 && above == kBuckets) return unknown;
  if (below < 0) return kUntried * rate_[static_cast<size_t>(above)];
  if (above == kBuckets) return kUntried * rate_[static_cast<size_t>(below)];
  const double share = static_cast<double>(here - below) / static_cast<double>(above - below);
  return rate_[static_cast<size_t>(below)] * (1 - share) + rate_[static_cast<size_t>(above)] * share;
}

double RateCurve::any(double unknown) const {
  const auto found = std::find_if(rate_.begin(), rate_.end(), [](double rate) { return rate > 0; });
  return found == rate_.end() ? unknown : *found;
}

}  // namespace lathe::engine
