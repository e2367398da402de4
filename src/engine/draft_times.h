#pragma once
// What a step of n rows and a call of the draft layer cost: by bytes before anything was measured, then by the times that are measured while running.

#include <array>
#include <cstdint>

#include "models/decode_bytes.h"

namespace lathe::engine {

/// Nanoseconds a byte, by number of rows.
class RateCurve {
 public:
  void took(int64_t rows, double ns_per_byte);
  /// What was measured for these rows, else between or beside what was measured; `unknown` where nothing was. Rows far from all that was measured are taken
  /// to be somewhat cheaper than they look, so that they are tried once.
  double at(int64_t rows, double unknown) const;
  double any(double unknown) const;

 private:
  static constexpr int kBuckets = 48;
  static int bucket(int64_t rows);
  std::array<double, kBuckets> rate_{};  ///< 0: not measured
};

/// The costs of one engine. Only lengths of windows depend on it, no text.
class DraftTimes {
 public:
  explicit DraftTimes(const models::DecodeBytes& bytes) : bytes_(bytes) {}
  void step_took(int64_t rows, int64_t sequences, int64_t ns) { step_.took(rows, static_cast<double>(ns) / step_bytes(rows, sequences)); }
  void draft_took(int64_t rows, int64_t ns) { draft_.took(rows, static_cast<double>(ns) / draft_bytes(rows)); }
  double step_ns(int64_t rows, int64_t sequences) const { return step_bytes(rows, sequences) * step_.at(rows, draft_.any(kUnknown)); }
  double draft_ns(int64_t rows) const { return draft_bytes(rows) * draft_.at(rows, step_.any(kUnknown)); }

 private:
  static constexpr double kUnknown = 0.1;  ///< 10 GB/s: only ratios matter until something was measured
  double step_bytes(int64_t rows, int64_t sequences) const { return 1 + bytes_.step(static_cast<double>(rows), static_cast<double>(sequences)); }
  double draft_bytes(int64_t rows) const { return 1 + bytes_.draft(static_cast<double>(rows)); }
  models::DecodeBytes bytes_;
  RateCurve step_, draft_;
};

}  // namespace lathe::engine
