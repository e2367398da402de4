#include "evaluate/eval_report.h"

#include <fmt/format.h>

namespace lathe::evaluate {
namespace {

using config::Json;

Json interval(int64_t right, int64_t n) {
  const auto [low, high] = evaluate::wilson(right, n);
  return Json::Array{low, high};
}

Json drafts_json(const std::map<std::string, evaluate::DraftScore>& drafts) {
  Json::Object out;
  for (const auto& [kind, score] : drafts) {
    Json::Array rate;
    Json::Array right;
    Json::Array tried;
    Json::Array intervals;
    for (size_t i = 0; i < 3; ++i) {
      rate.push_back(score.rate(i));
      right.push_back(score.right[i]);
      tried.push_back(score.tried[i]);
      intervals.push_back(interval(score.right[i], score.tried[i]));
    }
    out.emplace_back(
        kind, Json::Object{{"rate", std::move(rate)}, {"right", std::move(right)}, {"tried", std::move(tried)}, {"interval", std::move(intervals)}});
  }
  return out;
}

void append_drafts(std::string& out, const char* title, const std::map<std::string, evaluate::DraftScore>& drafts) {
  if (drafts.empty()) return;
  out += fmt::format("\n{}\n", title);
  for (const auto& [kind, score] : drafts) {
    out += fmt::format("  {:<34}", kind);
    for (size_t i = 0; i < 3; ++i) out += fmt::format("  {:.3f} ({} of {})", score.rate(i), score.right[i], score.tried[i]);
    out += '\n';
  }
}

/// Rows of one set in a report.
Result<SetScore> read_rows(const Json& set, const std::string& place) {
  const Json* rows = set.find("rows");
  const Json* numbers = set.find("row_numbers");
  if (rows == nullptr || !rows->is_string() || numbers == nullptr || !numbers->is_array() || numbers->as_array().size() != rows->as_string().size()) {
    return err(Code::kInvalidArgument, "{}: expected 'rows' and as many 'row_numbers'", place);
  }
  SetScore out{.right = 0, .numbers = {}, .rows = rows->as_string()};
  int64_t before = -1;
  for (size_t i = 0; i < out.rows.size(); ++i) {
    const Json& number = numbers->as_array()[i];
    if (!number.is_int() || number.as_int() <= before) {
      return err(Code::kInvalidArgument, "{}: 'row_numbers' has {} at {}, expected an integer of at least {}", place, number.dump(), i, before + 1);
    }
    const char mark = out.rows[i];
    if (mark != '0' && mark != '1') return err(Code::kInvalidArgument, "{}: 'rows' has '{}' at {}, expected 0 or 1", place, mark, i);
    before = number.as_int();
    out.numbers.push_back(before);
    out.right += mark == '1' ? 1 : 0;
  }
  return out;
}

}  // namespace

Json report_json(const EvalReport& report) {
  Json::Object sets;
  for (const auto& [name, score] : report.sets) {
    const auto n = static_cast<int64_t>(score.rows.size());
    Json::Array numbers;
    for (const int64_t number : score.numbers) numbers.push_back(number);
    sets.emplace_back(
        name,
        Json::Object{
            {"n", n}, {"right", score.right}, {"interval", interval(score.right, n)}, {"rows", score.rows}, {"row_numbers", std::move(numbers)}});
  }
  return Json::Object{{"bits_per_byte", report.heldout.rows > 0 ? Json(report.heldout.bits_per_byte) : Json()},
                      {"heldout", Json::Object{{"rows", report.heldout.rows},
                                               {"tokens", report.heldout.tokens},
                                               {"nll_nats", report.heldout.nll_nats},
                                               {"half_width", report.heldout.half_width}}},
                      {"sets", std::move(sets)},
                      {"draft", drafts_json(report.drafts)},
                      {"draft_given", drafts_json(report.drafts_given)}};
}

std::string report_page(const EvalReport& report) {
  std::string out;
  if (report.heldout.rows > 0) {
    out += fmt::format("bits per byte                        {:.5f} ± {:.5f}  ({} rows, {} tokens)\n", report.heldout.bits_per_byte,
                       report.heldout.half_width, report.heldout.rows, report.heldout.tokens);
  }
  int64_t right = 0;
  int64_t rows = 0;
  for (const auto& [name, score] : report.sets) {
    const auto n = static_cast<int64_t>(score.rows.size());
    const auto [low, high] = evaluate::wilson(score.right, n);
    out += fmt::format("  {:<34} {:>5} of {:>5}  {:5.1f} %  [{:.1f}, {:.1f}]\n", name, score.right, n,
                       100.0 * static_cast<double>(score.right) / static_cast<double>(n), 100 * low, 100 * high);
    right += score.right;
    rows += n;
  }
  if (rows > 0) out += fmt::format("  {:<34} {:>5} of {:>5}\n", "all", right, rows);
  append_drafts(out, "Drafts right at steps 1, 2, 3 on own greedy texts", report.drafts);
  append_drafts(out, "The same on the given texts", report.drafts_given);
  return out;
}

Result<std::map<std::string, SetScore>> read_report(const std::string& path) {
  LATHE_TRY(const Json other, config::read_json_file(path));
  const Json* sets = other.find("sets");
  if (sets == nullptr || !sets->is_object()) return err(Code::kInvalidArgument, "{} is no report: it has no 'sets'", path);
  std::map<std::string, SetScore> run;
  for (const auto& [name, set] : sets->as_object()) {
    LATHE_TRY(run[name], read_rows(set, fmt::format("{} set {}", path, name)));
  }
  return run;
}

}  // namespace lathe::evaluate
