#pragma once
// What two runs over the same rows say about their difference: the rows are the sample, whatever happens inside one.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lathe::evaluate {

struct SetScore {
  int64_t right = 0;
  std::vector<int64_t> numbers;  ///< of the rows, in their file, ascending
  std::string rows;              ///< '1' right, '0' wrong, in that order
};

/// A figure with half the width of its 95 % interval; one row alone has none.
struct Estimate {
  double value = 0;
  std::optional<double> half_width;
};

/// Σ sums / Σ counts with an interval over rows: tokens of one row are not independent.
/// Numerics  the variance of a ratio of sums, n / (n − 1) · Σ (sᵢ − value · cᵢ)² / (Σ c)².
Estimate ratio_over_rows(std::span<const double> sums, std::span<const double> counts);

/// The rows that two runs have in common.
struct PairedRows {
  int64_t both_right = 0, here_only = 0, there_only = 0, both_wrong = 0;

  int64_t rows() const { return both_right + here_only + there_only + both_wrong; }
  /// Rows that are right there and lost here; negative: won.
  int64_t lost() const { return there_only - here_only; }
  /// Share right here minus share right there.
  double difference() const { return share(here_only - there_only); }
  /// Of the rows; 0 of none.
  double share(int64_t count) const { return rows() == 0 ? 0 : static_cast<double>(count) / static_cast<double>(rows()); }
  /// 95 % interval of the difference (Agresti and Min: half a row is added to each kind, so that few rows without a difference do not prove that there is none).
  std::pair<double, double> interval() const;
  PairedRows& operator+=(const PairedRows& other);
};
/// Rows are matched by number.
PairedRows pair_rows(const SetScore& here, const SetScore& there);

/// By set, those that both have with at least one common row.
using PairedSets = std::map<std::string, PairedRows>;
PairedSets pair_sets(const std::map<std::string, SetScore>& here, const std::map<std::string, SetScore>& there);

enum class SetGroup : uint8_t { kTasks, kRecall };
PairedRows total(const PairedSets& sets, SetGroup group);

}  // namespace lathe::evaluate
