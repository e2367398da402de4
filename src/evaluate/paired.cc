#include "evaluate/paired.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "evaluate/eval_sets.h"

namespace lathe::evaluate {

constexpr double kNormal95 = 1.96;

Estimate ratio_over_rows(std::span<const double> sums, std::span<const double> counts) {
  const double count = std::accumulate(counts.begin(), counts.end(), 0.0);
  if (count == 0) return {};
  Estimate out{.value = std::accumulate(sums.begin(), sums.end(), 0.0) / count, .half_width = {}};
  if (sums.size() < 2) return out;
  double squares = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    const double residual = sums[i] - out.value * counts[i];
    squares += residual * residual;
  }
  const auto n = static_cast<double>(sums.size());
  out.half_width = kNormal95 * std::sqrt(n / (n - 1) * squares) / count;
  return out;
}

std::pair<double, double> PairedRows::interval() const {
  const double n = static_cast<double>(rows()) + 2;
  const double won = static_cast<double>(here_only) + 0.5;
  const double gone = static_cast<double>(there_only) + 0.5;
  const double centre = (won - gone) / n;
  const double half = kNormal95 * std::sqrt(std::max(0.0, (won + gone) / n - centre * centre) / n);
  return {std::max(-1.0, centre - half), std::min(1.0, centre + half)};
}

PairedRows& PairedRows::operator+=(const PairedRows& other) {
  both_right += other.both_right;
  here_only += other.here_only;
  there_only += other.there_only;
  both_wrong += other.both_wrong;
  return *this;
}

PairedRows pair_rows(const SetScore& here, const SetScore& there) {
  PairedRows out;
  size_t j = 0;
  for (size_t i = 0; i < here.numbers.size(); ++i) {
    while (j < there.numbers.size() && there.numbers[j] < here.numbers[i]) ++j;
    if (j == there.numbers.size() || there.numbers[j] != here.numbers[i]) continue;
    const bool right_here = here.rows[i] == '1';
    const bool right_there = there.rows[j] == '1';
    ++(right_here ? (right_there ? out.both_right : out.here_only) : (right_there ? out.there_only : out.both_wrong));
  }
  return out;
}

PairedSets pair_sets(const std::map<std::string, SetScore>& here, const std::map<std::string, SetScore>& there) {
  PairedSets out;
  for (const auto& [name, score] : here) {
    const auto other = there.find(name);
    if (other == there.end()) continue;
    const PairedRows paired = pair_rows(score, other->second);
    if (paired.rows() > 0) out.emplace(name, paired);
  }
  return out;
}

PairedRows total(const PairedSets& sets, SetGroup group) {
  PairedRows out;
  for (const auto& [name, rows] : sets) {
    if (is_recall(name) == (group == SetGroup::kRecall)) out += rows;
  }
  return out;
}

}  // namespace lathe::evaluate
