#pragma once
// Comparisons as a page and as JSON.

#include <string>

#include "config/json.h"
#include "evaluate/comparison.h"
#include "evaluate/gate.h"

namespace lathe::evaluate {

/// {SET: {rows, both_right, right_here_only, right_there_only, difference, interval [low, high]}}
config::Json paired_json(const PairedSets& sets);
/// The same as lines, all task rows and all recall rows below.
std::string paired_page(const PairedSets& sets);

/// heldout {rows, tokens, bits_per_byte_here, bits_per_byte_there, difference, relative, kl {mean, half_width, worst}, top1_agreement}, sets, tasks, recall.
config::Json comparison_json(const ModelComparison& comparison);
std::string comparison_page(const ModelComparison& comparison);

/// {passed, complete, checks [{name, lost, limit, unit, rows, passed}]}. `passed` is null where nothing failed but not all was measured, and for a check
/// that was not.
config::Json gate_json(const std::vector<GateCheck>& checks);
std::string gate_page(const std::vector<GateCheck>& checks);

}  // namespace lathe::evaluate
