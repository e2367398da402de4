#pragma once
// How much a cheaper format may cost against the exact mode of the same checkpoint. Pure: a comparison in, a verdict out.

#include <map>
#include <string>
#include <vector>

#include "evaluate/comparison.h"

namespace lathe::evaluate {

struct GateLimits {
  double bits_per_byte = 0.005;               ///< relative
  int64_t recall_rows = 2;                    ///< lost in all recall sets together
  double task_share = 0.01;                   ///< lost of all task rows together
  int64_t set_rows = 3;                       ///< lost in any one set, unless close calls allow more
  std::map<std::string, int64_t> could_turn;  ///< by set: rows that a change of half a logit can turn
};

/// One limit and what was measured against it.
struct GateCheck {
  std::string name;  ///< "bits per byte", "recall", "tasks", "set add_2_digits"
  double value = 0;  ///< what was lost, in the unit of the limit; negative: gained
  double limit = 0;
  std::string unit;  ///< "%", "rows", "points"
  int64_t of = 0;    ///< rows that were compared; 0: not measured, then neither passed nor failed
  bool measured() const { return of > 0; }
  bool passed() const { return measured() && value <= limit; }
  bool failed() const { return measured() && !(value <= limit); }
};

/// In this order: bits per byte, recall, tasks, then every set.
std::vector<GateCheck> check_gate(const ModelComparison& comparison, const GateLimits& limits);

/// What all checks say together.
struct GateVerdict {
  int64_t measured = 0;
  std::string failure;       ///< sentence of the first check that failed; empty: none
  std::string not_measured;  ///< names of the checks that could not be judged: "recall, tasks"
  bool complete() const { return not_measured.empty(); }
};
GateVerdict judge(const std::vector<GateCheck>& checks);

/// "bits per byte: 0.71 % worse over 59 rows, at most 0.50 % worse is allowed"
std::string gate_sentence(const GateCheck& check);

}  // namespace lathe::evaluate
