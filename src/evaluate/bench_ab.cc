#include "evaluate/bench_ab.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "evaluate/process.h"
#include "ops/cases/problem.h"

namespace lathe::evaluate {
namespace {

using config::Json;

/// "prefill 512" → tokens per second, from the JSON of `bench model`.
Result<BenchFigures> figures(const Json& report) {
  BenchFigures out;
  for (const auto& [list, key] : {std::pair{"prefill", "tokens"}, std::pair{"decode", "batch"}}) {
    const Json* entries = report.find(list);
    if (entries == nullptr || !entries->is_array()) return err(Code::kFailedPrecondition, "the report has no list '{}'", list);
    for (const Json& entry : entries->as_array()) {
      const Json* size = entry.find(key);
      const Json* rate = entry.find("tokens_per_second");
      if (size == nullptr || !size->is_int() || rate == nullptr || !rate->is_number() || !(rate->as_double() > 0)) {
        return err(Code::kFailedPrecondition, "an entry of '{}' lacks '{}' or 'tokens_per_second'", list, key);
      }
      out[fmt::format("{} {}", list, size->as_int())] = rate->as_double();
    }
  }
  return out;
}

}  // namespace

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  for (size_t at = text.find_first_not_of(' '); at != std::string::npos; at = text.find_first_not_of(' ', at)) {
    const size_t end = std::min(text.find(' ', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

Result<BenchArm> parse_arm(const std::string& text, const std::string& self) {
  std::vector<std::string> words = split_words(text);
  if (words.empty()) return err(Code::kInvalidArgument, "an arm is empty: expected a program, flags, or both");
  BenchArm arm{.name = text, .program = self, .arguments = {}};
  if (!words.front().starts_with("-")) {
    arm.program = words.front();
    words.erase(words.begin());
  }
  arm.arguments = std::move(words);
  return arm;
}

Result<void> check_arm(const BenchArm& arm, const std::vector<std::string>& common) {
  LATHE_TRY(const ProcessResult help, run_process({arm.program, "bench", "model", "--help"}));
  if (!help.succeeded()) {
    return err(Code::kFailedPrecondition, "arm '{}': '{} bench model --help' {}, expected a program of this kind", arm.name, arm.program, help.end());
  }
  if (help.output.find("--check ") == std::string::npos) return {};
  std::vector<std::string> words = {arm.program, "bench", "model", "--check"};
  words.insert(words.end(), arm.arguments.begin(), arm.arguments.end());
  words.insert(words.end(), common.begin(), common.end());
  LATHE_TRY(const ProcessResult check, run_process(words));
  if (check.usage_refused()) return err(Code::kInvalidArgument, "arm '{}' cannot be measured: its command line does not hold", arm.name);
  if (!check.succeeded()) return err(Code::kFailedPrecondition, "arm '{}' cannot be measured: its check {}", arm.name, check.end());
  return {};
}

Result<BenchFigures> run_arm(const BenchArm& arm, const std::vector<std::string>& common, ArmRun& run) {
  std::vector<std::string> words = {arm.program, "bench", "model", "--json", "--samples-only"};
  words.insert(words.end(), arm.arguments.begin(), arm.arguments.end());
  words.insert(words.end(), common.begin(), common.end());
  LATHE_TRY(const ProcessResult result, run_process(words));
  run.wall_ns = result.wall_ns, run.cpu_ns = result.cpu_ns;
  if (!result.succeeded()) return err(Code::kFailedPrecondition, "'{}' {}", fmt::join(words, " "), result.end());
  auto report = base::file_content(config::parse_json(result.output));
  if (!report) return base::forward_error(report, "output of " + arm.name);
  auto found = figures(*report);
  if (!found) return base::forward_error(found, "output of " + arm.name);
  return found;
}

Result<AbBench> bench_pairs(const PairOptions& options, RunOfPair run_one, base::FunctionRef<void(int, int)> progress) {
  constexpr int64_t kPairsMax = base::kLimits.benchmark_pairs;
  if (options.pairs < 2 || options.pairs > kPairsMax) return err(Code::kInvalidArgument, "{} pairs: expected 2 to {}", options.pairs, kPairsMax);
  AbBench out;
  const int64_t begin = base::now_ns();
  for (int pair = 0; pair < options.pairs; ++pair) {
    const bool b_first = (ops::cases::mix(options.seed * 1000003 + static_cast<uint64_t>(pair)) & 1) != 0;
    for (const bool is_b : {b_first, !b_first}) {
      progress(static_cast<int>(out.runs.size()), 2 * options.pairs);
      ArmRun run{.is_b = is_b, .order = static_cast<int64_t>(out.runs.size()), .start_ns = base::now_ns() - begin, .pair = pair};
      LATHE_TRY(const BenchFigures rates, run_one(run));
      if (out.runs.empty()) {
        for (const auto& [name, rate] : rates) out.metrics.push_back({.name = name, .a = {}, .b = {}, .ratio = {}});
      }
      if (rates.size() != out.metrics.size())
        return err(Code::kFailedPrecondition, "{} gave {} figures, the first run {}", is_b ? "B" : "A", rates.size(), out.metrics.size());
      for (BenchMetric& metric : out.metrics) {
        const auto found = rates.find(metric.name);
        if (found == rates.end())
          return err(Code::kFailedPrecondition, "{} gave no figure '{}', which the first run has", is_b ? "B" : "A", metric.name);
        (is_b ? metric.b : metric.a).push_back(found->second);
      }
      out.runs.push_back(run);
    }
  }
  for (BenchMetric& metric : out.metrics) metric.ratio = ratio_interval(metric.a, metric.b);
  return out;
}

Result<AbBench> bench_ab(const BenchAbOptions& options, base::FunctionRef<void(int, int)> progress) {
  for (const BenchArm* arm : {&options.a, &options.b}) LATHE_TRY_VOID(check_arm(*arm, options.common));
  const auto run = [&](ArmRun& one) { return run_arm(one.is_b ? options.b : options.a, options.common, one); };
  return bench_pairs({.pairs = options.pairs, .seed = options.seed}, run, progress);
}

std::string ab_page(const BenchAbOptions& options, const AbBench& bench) {
  std::string out =
      fmt::format("A: {}\nB: {}\n{} pairs, order drawn; how many times the tokens per second of A does B have\n\n  {:<16} {:>12} {:>12} {:>8}  {}\n",
                  options.a.name, options.b.name, options.pairs, "", "A median", "B median", "B / A", "95 % interval");
  for (const BenchMetric& m : bench.metrics) {
    const char* const verdict = m.ratio.low > 1 ? "B is faster" : m.ratio.high < 1 ? "A is faster" : "no difference seen";
    out += fmt::format("  {:<16} {:>12.1f} {:>12.1f} {:>8.3f}  [{:.3f}, {:.3f}]  {}\n", m.name, median(m.a), median(m.b), m.ratio.ratio, m.ratio.low,
                       m.ratio.high, verdict);
  }
  return out;
}

Json ab_json(const BenchAbOptions& options, const AbBench& bench) {
  const auto values = [](const std::vector<double>& list) {
    Json::Array out;
    for (const double value : list) out.push_back(value);
    return out;
  };
  const auto arm = [](const BenchArm& a) {
    Json::Array arguments;
    for (const std::string& word : a.arguments) arguments.push_back(word);
    return Json::Object{{"name", a.name}, {"program", a.program}, {"arguments", std::move(arguments)}};
  };
  Json::Array runs;
  for (const ArmRun& r : bench.runs) {
    runs.push_back(Json::Object{
        {"arm", r.is_b ? "b" : "a"}, {"pair", r.pair}, {"order", r.order}, {"start_ns", r.start_ns}, {"wall_ns", r.wall_ns}, {"cpu_ns", r.cpu_ns}});
  }
  Json::Array metrics;
  for (const BenchMetric& m : bench.metrics) {
    metrics.push_back(Json::Object{
        {"name", m.name}, {"a", values(m.a)}, {"b", values(m.b)}, {"ratio", m.ratio.ratio}, {"interval", Json::Array{m.ratio.low, m.ratio.high}}});
  }
  return Json::Object{{"a", arm(options.a)},           {"b", arm(options.b)},
                      {"pairs", options.pairs},        {"seed", static_cast<int64_t>(options.seed)},
                      {"metrics", std::move(metrics)}, {"runs", std::move(runs)}};
}

}  // namespace lathe::evaluate
