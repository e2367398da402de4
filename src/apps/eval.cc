#include <fmt/format.h>

#include <algorithm>

#include "apps/settings.h"
#include "apps/terminal.h"
#include "apps/verbs.h"
#include "base/file.h"
#include "config/settings_json.h"
#include "evaluate/comparison_report.h"
#include "evaluate/eval_report.h"
#include "text/tokenizer.h"

namespace lathe::apps {
namespace {

using config::Json;
using evaluate::SetScore;

// As many rows at a time as fill a step's rows; more would only add memory.
constexpr int32_t kSequences = 32;
constexpr int64_t kBatchTokens = 2048;
constexpr int64_t kContext = 256;  // at least, if nobody asks for another one

/// One model, ready to be evaluated.
struct Side {
  config::Settings settings;
  media::PreprocessConfig preprocess;
  std::string model;
  std::unique_ptr<engine::Engine> engine;
};

Result<Side> load(const config::Settings& settings, const evaluate::EvalSets& sets) {
  LATHE_TRY(engine::EngineOptions options, engine_options(settings));
  LATHE_TRY(const auto tokenizer, base::file_content(text::Tokenizer::load(options.model + "/tokenizer.json")));
  options.sampled_vocabulary = sets.first_id_never_chosen > 0 ? sets.first_id_never_chosen : tokenizer->vocab_size();
  options.sequences = kSequences;
  if (settings.origin("engine.batch-tokens") == config::SettingOrigin::kDefault) options.batch_tokens = kBatchTokens;
  const evaluate::RowLength longest = evaluate::longest_row(sets);
  options.context_is_default = settings.origin("engine.context") == config::SettingOrigin::kDefault;
  if (options.context_is_default) options.context_tokens = std::max(kContext, longest.tokens);
  if (longest.tokens > options.context_tokens) {
    return err(Code::kInvalidArgument, "--context is {}, but {} needs {} tokens: expected at least as many, or sets with shorter rows",
               options.context_tokens, longest.place, longest.tokens);
  }
  Side side{.settings = settings, .preprocess = {}, .model = options.model, .engine = {}};
  LATHE_TRY(side.preprocess, base::file_content(media::read_preprocess_config(options.model)));
  LATHE_TRY(side.engine, engine::Engine::create(options));
  return side;
}

/// Rows of each set that a change of half a logit can turn, as the record of a model says.
Result<std::map<std::string, int64_t>> read_could_turn(const std::string& path) {
  LATHE_TRY(const Json record, config::read_json_file(path));
  const Json* const sets = record.find("could_turn");
  if (sets == nullptr || !sets->is_object()) return err(Code::kDataLoss, "{}: 'could_turn' is missing or no object", path);
  std::map<std::string, int64_t> out;
  for (const auto& [name, set] : sets->as_object()) {
    const Json* const rows = set.is_object() ? set.find("0.5") : nullptr;
    if (rows == nullptr || !rows->is_int() || rows->as_int() < 0) {
      return err(Code::kDataLoss, "{}: 'could_turn' of set {} is {}, expected an object with a number of rows at \"0.5\"", path, name, set.dump());
    }
    out[name] = rows->as_int();
  }
  return out;
}

/// What the gate allows. The record of the built-in model goes with its sets alone.
Result<evaluate::GateLimits> gate_limits(const EvalOptions& options, const std::string& sets_folder) {
  evaluate::GateLimits limits;
  std::string record = options.could_turn;
  if (record.empty() && options.sets.empty()) record = sets_folder + "/../eval.json";
  if (record.empty() || (options.could_turn.empty() && !base::file_exists(record))) return limits;
  LATHE_TRY(limits.could_turn, read_could_turn(record));
  return limits;
}

/// There must be something to compare, before hours of work.
Result<void> check_common(const evaluate::EvalSets& sets, const std::map<std::string, SetScore>& other, const std::string& path) {
  for (const evaluate::TaskSet& set : sets.tasks) {
    const auto found = other.find(set.name);
    if (found == other.end()) continue;
    const std::vector<int64_t>& numbers = found->second.numbers;
    const auto common = [&](const evaluate::TaskRow& row) { return std::binary_search(numbers.begin(), numbers.end(), row.number); };
    if (std::any_of(set.rows.begin(), set.rows.end(), common)) return {};
  }
  return err(Code::kDataLoss, "{}: no row of its sets is among those of this run, expected some to compare", path);
}

Result<void> check_options(const EvalOptions& options) {
  if (!options.compare.empty() && !options.against.empty()) {
    return err(Code::kInvalidArgument, "--compare and --against both name what to compare with: expected one of them");
  }
  if (options.against.empty() && (options.gate || !options.could_turn.empty())) {
    return err(Code::kInvalidArgument, "--gate and --could-turn judge a comparison of two models: expected --against as well");
  }
  return {};
}

void put_out(const EvalOptions& options, const Json& json, const std::string& page) {
  print(options.json ? json.dump({.key_separator = ": ", .indent = 1}) + "\n" : page);
}

Json run_json(const Side& side, const evaluate::EvalReport& report) {
  Json json = Json::Object{{"model", side.model}};
  Json figures = evaluate::report_json(report);
  for (auto& [key, value] : figures.as_object()) json.set(key, std::move(value));
  json.set("context", side.engine->options().context_tokens);
  json.set("settings", config::settings_json(side.settings));
  return json;
}

/// A gate that does not judge all that it is there for is no pass, unless --only chose what is measured.
Result<void> gate_result(const EvalOptions& options, const evaluate::GateVerdict& verdict) {
  if (!verdict.failure.empty()) return err(Code::kFailedPrecondition, "the gate is not passed: {}", verdict.failure);
  if (verdict.complete() || (!options.names.empty() && verdict.measured > 0)) return {};
  return err(Code::kFailedPrecondition,
             "the gate cannot be judged as a whole: {} not measured, expected sets for it or --only with what is to be judged", verdict.not_measured);
}

/// One model, and perhaps the report of another run.
Result<int> evaluate_one(const config::Settings& settings, const EvalOptions& options, const evaluate::EvalSets& sets) {
  std::map<std::string, SetScore> other;
  if (!options.compare.empty()) {
    LATHE_TRY(other, base::file_content(evaluate::read_report(options.compare)));
    LATHE_TRY_VOID(check_common(sets, other, options.compare));
  }
  LATHE_TRY(const Side side, load(settings, sets));
  Stages stages({.quiet = options.json});
  LATHE_TRY(const evaluate::EvalReport report,
            evaluate::run_eval(*side.engine, sets, side.preprocess,
                               [&](const std::string& what, int64_t done, int64_t total) { stages.show(what, done, total); }));
  stages.finish();
  Json json = run_json(side, report);
  std::string page = evaluate::report_page(report);
  if (!options.compare.empty()) {
    const evaluate::PairedSets paired = evaluate::pair_sets(report.sets, other);
    json.set("compare", evaluate::paired_json(paired));
    page += fmt::format("\nAgainst {}: {}", options.compare, evaluate::paired_page(paired));
  }
  put_out(options, json, page);
  return 0;
}

/// Two models at once.
Result<int> evaluate_two(const config::Settings& settings, const EvalOptions& options, const evaluate::EvalSets& sets, const std::string& folder) {
  LATHE_TRY(const config::Settings other_settings, settings_with(settings, "--against", options.against));
  evaluate::GateLimits limits;
  if (options.gate) {
    LATHE_TRY(limits, base::file_content(gate_limits(options, folder)));
  }
  LATHE_TRY(const Side here, load(settings, sets));
  LATHE_TRY(const Side there, load(other_settings, sets));
  Stages stages({.quiet = options.json});
  LATHE_TRY(const evaluate::ModelComparison comparison,
            evaluate::run_comparison({*here.engine, here.preprocess}, {*there.engine, there.preprocess}, sets,
                                     [&](const std::string& what, int64_t done, int64_t total) { stages.show(what, done, total); }));
  stages.finish();
  Json json = run_json(here, {.heldout = comparison.heldout.here, .sets = comparison.here, .drafts = {}, .drafts_given = {}});
  json.set("against", run_json(there, {.heldout = comparison.heldout.there, .sets = comparison.there, .drafts = {}, .drafts_given = {}}));
  json.set("comparison", evaluate::comparison_json(comparison));
  std::string page = fmt::format("here {}; there {}, as --against '{}' says\n", here.model, there.model, options.against);
  page += evaluate::comparison_page(comparison);
  Result<void> judged;
  if (options.gate) {
    const std::vector<evaluate::GateCheck> checks = evaluate::check_gate(comparison, limits);
    json.set("gate", evaluate::gate_json(checks));
    page += evaluate::gate_page(checks);
    judged = gate_result(options, evaluate::judge(checks));
  }
  put_out(options, json, page);
  LATHE_TRY_VOID(judged);
  return 0;
}

}  // namespace

Result<int> eval_verb(const config::Settings& settings, const EvalOptions& options) {
  LATHE_TRY_VOID(check_options(options));
  LATHE_TRY_VOID(engine_options(settings));  // what is wrong with them is told before rows are read
  std::string folder = options.sets;
  if (folder.empty()) {
    LATHE_TRY(folder, builtin_eval_sets());
  }
  evaluate::EvalSelection selection{.names = split_list(options.names), .every = options.every};
  if (std::find(selection.names.begin(), selection.names.end(), "") != selection.names.end()) {
    return err(Code::kInvalidArgument, "--only '{}': expected names of sets separated by commas", options.names);
  }
  if (options.rows_max > 0) selection.rows_max = selection.heldout_max = selection.recall_max = options.rows_max;
  LATHE_TRY(const evaluate::EvalSets sets, evaluate::read_eval_sets(folder, selection));
  return options.against.empty() ? evaluate_one(settings, options, sets) : evaluate_two(settings, options, sets, folder);
}

}  // namespace lathe::apps
