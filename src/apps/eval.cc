#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/settings.h"
#include "apps/terminal.h"
#include "apps/verbs.h"
#include "base/file.h"
#include "config/settings_json.h"
#include "evaluate/eval.h"
#include "text/tokenizer.h"

namespace lathe::apps {
namespace {

using config::Json;
using evaluate::EvalReport;

// As many rows at a time as fill a step's rows; more would only add memory.
constexpr int32_t kSequences = 32;
constexpr int64_t kBatchTokens = 2048;

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

Json report_json(const EvalReport& report, const config::Settings& settings, const std::string& model) {
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
  return Json::Object{{"model", model},
                      {"bits_per_byte", report.heldout.rows > 0 ? Json(report.heldout.bits_per_byte) : Json()},
                      {"heldout", Json::Object{{"rows", report.heldout.rows},
                                               {"tokens", report.heldout.tokens},
                                               {"nll_nats", report.heldout.nll_nats},
                                               {"half_width", report.heldout.half_width}}},
                      {"sets", std::move(sets)},
                      {"draft", drafts_json(report.drafts)},
                      {"draft_given", drafts_json(report.drafts_given)},
                      {"settings", config::settings_json(settings)}};
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

std::string page(const EvalReport& report) {
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

/// Rows of one set in another run's report, by number.
Result<std::map<int64_t, bool>> other_rows(const Json& set, const std::string& place) {
  const Json* rows = set.find("rows");
  const Json* numbers = set.find("row_numbers");
  if (rows == nullptr || !rows->is_string() || numbers == nullptr || !numbers->is_array() || numbers->as_array().size() != rows->as_string().size()) {
    return err(Code::kInvalidArgument, "{}: expected 'rows' and as many 'row_numbers'", place);
  }
  std::map<int64_t, bool> out;
  int64_t before = -1;
  for (size_t i = 0; i < rows->as_string().size(); ++i) {
    const Json& number = numbers->as_array()[i];
    if (!number.is_int() || number.as_int() <= before) {
      return err(Code::kInvalidArgument, "{}: 'row_numbers' has {} at {}, expected an integer of at least {}", place, number.dump(), i, before + 1);
    }
    const char mark = rows->as_string()[i];
    if (mark != '0' && mark != '1') return err(Code::kInvalidArgument, "{}: 'rows' has '{}' at {}, expected 0 or 1", place, mark, i);
    before = number.as_int();
    out[before] = mark == '1';
  }
  return out;
}

/// Another run's rows by set.
using OtherRun = std::map<std::string, std::map<int64_t, bool>>;

Result<OtherRun> read_other_run(const std::string& path) {
  LATHE_TRY(const Json other, config::read_json_file(path));
  const Json* sets = other.find("sets");
  if (sets == nullptr || !sets->is_object()) return err(Code::kInvalidArgument, "{} is no report: it has no 'sets'", path);
  OtherRun run;
  for (const auto& [name, set] : sets->as_object()) {
    LATHE_TRY(run[name], other_rows(set, fmt::format("{} set {}", path, name)));
  }
  return run;
}

/// There must be something to compare, before hours of work.
Result<void> check_common(const evaluate::EvalSets& sets, const OtherRun& other, const std::string& path) {
  for (const evaluate::TaskSet& set : sets.tasks) {
    const auto found = other.find(set.name);
    if (found == other.end()) continue;
    if (std::any_of(set.rows.begin(), set.rows.end(), [&](const evaluate::TaskRow& row) { return found->second.contains(row.number); })) return {};
  }
  return err(Code::kDataLoss, "{}: no row of its sets is among those of this run, expected some to compare", path);
}

/// Per set: rows in both, right only here, right only there, difference in points with its interval.
Json::Object comparison(const EvalReport& report, const OtherRun& other) {
  Json::Object out;
  for (const auto& [name, score] : report.sets) {
    const auto set = other.find(name);
    if (set == other.end()) continue;
    const auto& there = set->second;
    int64_t both = 0;
    int64_t here_only = 0;
    int64_t there_only = 0;
    for (size_t i = 0; i < score.rows.size(); ++i) {
      const auto found = there.find(score.numbers[i]);
      if (found == there.end()) continue;
      ++both;
      here_only += score.rows[i] == '1' && !found->second ? 1 : 0;
      there_only += score.rows[i] != '1' && found->second ? 1 : 0;
    }
    if (both == 0) continue;
    // Paired: the variance of the difference comes from the rows that differ.
    const double n = static_cast<double>(both);
    const double difference = static_cast<double>(here_only - there_only) / n;
    const double variance = (static_cast<double>(here_only + there_only) / n - difference * difference) / n;
    const double half = 1.96 * std::sqrt(std::max(variance, 0.0));
    out.emplace_back(name, Json::Object{{"rows", both},
                                        {"right_here_only", here_only},
                                        {"right_there_only", there_only},
                                        {"difference", difference},
                                        {"interval", Json::Array{difference - half, difference + half}}});
  }
  return out;
}

std::string comparison_page(const Json::Object& sets, const std::string& path) {
  std::string out = fmt::format("\nAgainst {}: rows in both, right here only, right there only, difference with its 95 % interval\n", path);
  for (const auto& [name, set] : sets) {
    const Json::Array& interval = set.find("interval")->as_array();
    out += fmt::format("  {:<34} {:>5} {:>5} {:>5}  {:+.2f} points [{:+.2f}, {:+.2f}]\n", name, set.find("rows")->as_int(),
                       set.find("right_here_only")->as_int(), set.find("right_there_only")->as_int(), 100 * set.find("difference")->as_double(),
                       100 * interval[0].as_double(), 100 * interval[1].as_double());
  }
  return out;
}

}  // namespace

Result<int> eval_verb(const config::Settings& settings, const EvalOptions& options) {
  LATHE_TRY(engine::EngineOptions engine_settings, engine_options(settings));
  OtherRun other;
  if (!options.compare.empty()) {
    LATHE_TRY(other, base::file_content(read_other_run(options.compare)));
  }
  std::string directory = options.sets;
  if (directory.empty()) {
    LATHE_TRY(directory, builtin_eval_sets());
  }
  evaluate::EvalSelection selection{.names = split_list(options.names), .every = options.every};
  if (std::find(selection.names.begin(), selection.names.end(), "") != selection.names.end()) {
    return err(Code::kInvalidArgument, "--only '{}': expected names of sets separated by commas", options.names);
  }
  if (options.rows_max > 0) selection.rows_max = selection.heldout_max = selection.recall_max = options.rows_max;
  LATHE_TRY(const evaluate::EvalSets sets, evaluate::read_eval_sets(directory, selection));
  if (!options.compare.empty()) LATHE_TRY_VOID(check_common(sets, other, options.compare));
  LATHE_TRY(const auto tokenizer, base::file_content(text::Tokenizer::load(engine_settings.model + "/tokenizer.json")));
  LATHE_TRY(const media::PreprocessConfig preprocess, base::file_content(media::read_preprocess_config(engine_settings.model)));
  engine_settings.sampled_vocabulary = sets.first_id_never_chosen > 0 ? sets.first_id_never_chosen : tokenizer->vocab_size();
  engine_settings.sequences = kSequences;
  if (settings.origin("engine.batch-tokens") == config::SettingOrigin::kDefault) engine_settings.batch_tokens = kBatchTokens;
  engine_settings.context_tokens = evaluate::longest_row(sets);
  LATHE_TRY(const std::unique_ptr<engine::Engine> engine, engine::Engine::create(engine_settings));
  std::string current;
  std::unique_ptr<Progress> progress;
  const auto show = [&](const std::string& what, int64_t done, int64_t total) {
    if (what != current || progress == nullptr) progress = std::make_unique<Progress>(what, total, options.json);
    current = what;
    progress->update(done);
  };
  LATHE_TRY(const EvalReport report, evaluate::run_eval(*engine, sets, preprocess, show));
  progress.reset();
  const Json::Object compared = comparison(report, other);
  if (options.json) {
    Json json = report_json(report, settings, engine_settings.model);
    if (!options.compare.empty()) json.set("compare", compared);
    print(json.dump({.key_separator = ": ", .indent = 1}) + "\n");
  } else {
    print(page(report) + (options.compare.empty() ? "" : comparison_page(compared, options.compare)));
  }
  return 0;
}

}  // namespace lathe::apps
