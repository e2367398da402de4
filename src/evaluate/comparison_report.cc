#include "evaluate/comparison_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace lathe::evaluate {
namespace {

using config::Json;

Json rows_json(const PairedRows& rows) {
  const auto [low, high] = rows.interval();
  return Json::Object{{"rows", rows.rows()},
                      {"both_right", rows.both_right},
                      {"right_here_only", rows.here_only},
                      {"right_there_only", rows.there_only},
                      {"difference", rows.difference()},
                      {"interval", Json::Array{low, high}}};
}

std::string rows_line(const std::string& name, const PairedRows& rows) {
  const auto [low, high] = rows.interval();
  return fmt::format("  {:<34} {:>5} {:>5} {:>5} {:>5}  {:+.2f} points [{:+.2f}, {:+.2f}]\n", name, rows.rows(), rows.both_right, rows.here_only,
                     rows.there_only, 100 * rows.difference(), 100 * low, 100 * high);
}

Json estimate_json(const char* name, const Estimate& estimate) {
  return Json::Object{{name, estimate.value}, {"half_width", estimate.half_width ? Json(*estimate.half_width) : Json()}};
}

std::string plus_minus(const Estimate& estimate, double scale) {
  return estimate.half_width ? fmt::format(" ± {:.3g}", scale * *estimate.half_width) : " (one row: no interval)";
}

Json heldout_json(const HeldoutComparison& heldout) {
  Json kl = estimate_json("mean", heldout.kl);
  kl.set("worst", Json::Object{{"kl", heldout.worst.kl},
                               {"row", heldout.worst.row},
                               {"position", heldout.worst.position},
                               {"best_here", heldout.worst.here},
                               {"best_there", heldout.worst.there}});
  return Json::Object{{"rows", heldout.rows},
                      {"tokens", heldout.tokens},
                      {"bits_per_byte_here", heldout.here.bits_per_byte},
                      {"bits_per_byte_there", heldout.there.bits_per_byte},
                      {"difference", estimate_json("bits_per_byte", heldout.difference)},
                      {"relative", heldout.relative()},
                      {"kl_nats", std::move(kl)},
                      {"top1_agreement", estimate_json("share", heldout.agreement)}};
}

std::string heldout_page(const HeldoutComparison& heldout) {
  std::string out = fmt::format("bits per byte                        {:.5f} here, {:.5f} there: {:+.6f}{}, {:+.3f} %  ({} rows, {} tokens)\n",
                                heldout.here.bits_per_byte, heldout.there.bits_per_byte, heldout.difference.value, plus_minus(heldout.difference, 1),
                                100 * heldout.relative(), heldout.rows, heldout.tokens);
  out += fmt::format("KL(there ‖ here)                     {:.3e}{} nats a token\n", heldout.kl.value, plus_minus(heldout.kl, 1));
  out += fmt::format("  worst token                        {:.3e} nats at row {}, position {}: most likely {} here, {} there\n", heldout.worst.kl,
                     heldout.worst.row, heldout.worst.position, heldout.worst.here, heldout.worst.there);
  out += fmt::format("same most likely token               {:.4f} %{}\n", 100 * heldout.agreement.value, plus_minus(heldout.agreement, 100));
  return out;
}

}  // namespace

Json paired_json(const PairedSets& sets) {
  Json out = Json::Object{};
  for (const auto& [name, rows] : sets) out.set(name, rows_json(rows));
  return out;
}

std::string paired_page(const PairedSets& sets) {
  std::string out = "rows in both, right in both, right here only, right there only, difference with its 95 % interval\n";
  for (const auto& [name, rows] : sets) out += rows_line(name, rows);
  for (const auto& [group, name] : {std::pair(SetGroup::kTasks, "all task rows"), std::pair(SetGroup::kRecall, "all recall rows")}) {
    if (const PairedRows rows = total(sets, group); rows.rows() > 0) out += rows_line(name, rows);
  }
  return out;
}

Json comparison_json(const ModelComparison& comparison) {
  return Json::Object{{"heldout", comparison.heldout.rows > 0 ? heldout_json(comparison.heldout) : Json()},
                      {"sets", paired_json(comparison.sets)},
                      {"tasks", rows_json(total(comparison.sets, SetGroup::kTasks))},
                      {"recall", rows_json(total(comparison.sets, SetGroup::kRecall))}};
}

std::string comparison_page(const ModelComparison& comparison) {
  return (comparison.heldout.rows > 0 ? heldout_page(comparison.heldout) : "") + (comparison.sets.empty() ? "" : paired_page(comparison.sets));
}

Json gate_json(const std::vector<GateCheck>& checks) {
  Json::Array list;
  for (const GateCheck& check : checks) {
    list.push_back(Json::Object{{"name", check.name},
                                {"lost", check.value},
                                {"limit", check.limit},
                                {"unit", check.unit},
                                {"rows", check.of},
                                {"passed", check.measured() ? Json(check.passed()) : Json()}});
  }
  const GateVerdict verdict = judge(checks);
  const bool judged = verdict.complete() || !verdict.failure.empty();
  return Json::Object{{"passed", judged ? Json(verdict.failure.empty()) : Json()}, {"complete", verdict.complete()}, {"checks", std::move(list)}};
}

std::string gate_page(const std::vector<GateCheck>& checks) {
  std::string out = "\nGate\n";
  int64_t sets = 0;
  for (const GateCheck& check : checks) {
    const bool set = check.name.starts_with("set ");
    if (set && check.passed()) {
      ++sets;
      continue;
    }
    out += fmt::format("  {:<6} {}\n", !check.measured() ? "-" : check.passed() ? "ok" : "FAILED", gate_sentence(check));
  }
  out += fmt::format("  {:<6} {} sets within their limits\n", sets > 0 ? "ok" : "-", sets);
  const GateVerdict verdict = judge(checks);
  if (!verdict.complete()) out += fmt::format("  Not judged as a whole: {} not measured\n", verdict.not_measured);
  return out;
}

}  // namespace lathe::evaluate
