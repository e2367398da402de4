#pragma once
// What a decode step has to move, in numbers that know no family: how its cost grows with its rows.

#include <cmath>
#include <cstdint>

namespace lathe::models {

/// Experts that `rows` tokens touch where each takes `per_token` of `experts` with equal chance: E·(1 − (1 − k/E)^rows).
inline double expected_experts(double experts, double per_token, double rows) {
  return experts > 0 ? experts * (1 - std::pow(1 - per_token / experts, rows)) : 0;
}

/// Bytes of a step, of the whole model whatever its cut. Caches of tokens are left out: their share hardly changes with a row more.
struct DecodeBytes {
  double fixed = 0;   ///< weights that every step reads, the head included
  double expert = 0;  ///< one routed expert in every layer that has them
  double experts = 0, experts_per_token = 0;
  double state = 0;        ///< states and windows of one sequence
  double draft_fixed = 0;  ///< the same of the draft layer, the head included
  double draft_expert = 0;

  /// A step of `rows` rows for `sequences`: each reads its states once and every row writes them.
  double step(double rows, double sequences) const {
    return fixed + expert * expected_experts(experts, experts_per_token, rows) + state * (sequences + rows);
  }
  /// A call of the draft layer.
  double draft(double rows) const { return draft_fixed + draft_expert * expected_experts(experts, experts_per_token, rows); }
};

}  // namespace lathe::models
