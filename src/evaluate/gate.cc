#include "evaluate/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lathe::evaluate {

std::vector<GateCheck> check_gate(const ModelComparison& comparison, const GateLimits& limits) {
  const HeldoutComparison& heldout = comparison.heldout;
  const PairedRows recall = total(comparison.sets, SetGroup::kRecall);
  const PairedRows tasks = total(comparison.sets, SetGroup::kTasks);
  std::vector<GateCheck> checks = {
      {.name = "bits per byte", .value = 100 * heldout.relative(), .limit = 100 * limits.bits_per_byte, .unit = "%", .of = heldout.rows},
      {.name = "recall",
       .value = static_cast<double>(recall.lost()),
       .limit = static_cast<double>(limits.recall_rows),
       .unit = "rows",
       .of = recall.rows()},
      {.name = "tasks", .value = 100 * tasks.share(tasks.lost()), .limit = 100 * limits.task_share, .unit = "points", .of = tasks.rows()}};
  for (const auto& [name, rows] : comparison.sets) {
    const auto close = limits.could_turn.find(name);
    const int64_t allowed = std::max(limits.set_rows, close == limits.could_turn.end() ? 0 : close->second);
    checks.push_back(
        {.name = "set " + name, .value = static_cast<double>(rows.lost()), .limit = static_cast<double>(allowed), .unit = "rows", .of = rows.rows()});
  }
  return checks;
}

GateVerdict judge(const std::vector<GateCheck>& checks) {
  GateVerdict out;
  for (const GateCheck& check : checks) {
    out.measured += check.measured() ? 1 : 0;
    if (check.failed() && out.failure.empty()) out.failure = gate_sentence(check);
    if (!check.measured()) out.not_measured += (out.not_measured.empty() ? "" : ", ") + check.name;
  }
  return out;
}

std::string gate_sentence(const GateCheck& check) {
  if (!check.measured()) return check.name + ": not measured";
  const int digits = check.unit == "rows" ? 0 : 2;
  return fmt::format("{}: {:.{}f} {} {} over {} rows, at most {:.{}f} {} worse is allowed", check.name, std::abs(check.value), digits, check.unit,
                     check.value >= 0 ? "worse" : "better", check.of, check.limit, digits, check.unit);
}

}  // namespace lathe::evaluate
