#include "evaluate/bench_baseline.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "base/file.h"

namespace lathe::evaluate {
namespace {

using config::Json;

struct Figure {
  double speed = 0;  ///< calls or tokens per second
  double share = 0;  ///< of the floor; 0: not known
};

double number(const Json& entry, const char* key) {
  const Json* value = entry.find(key);
  return value != nullptr && value->is_number() ? value->as_double() : 0;
}

std::string text(const Json& entry, const char* key) {
  const Json* value = entry.find(key);
  if (value == nullptr) return "";
  return value->is_string() ? value->as_string() : value->dump();
}

std::map<std::string, Figure> figures(const Json& report) {
  std::map<std::string, Figure> out;
  const auto each = [&](const char* list, auto&& add) {
    const Json* entries = report.find(list);
    if (entries == nullptr || !entries->is_array()) return;
    for (const Json& entry : entries->as_array()) add(entry);
  };
  each("ops", [&](const Json& e) {
    const double time = number(e, "median_ns");
    if (time > 0)
      out[fmt::format("{}/{} {} T={}", text(e, "op"), text(e, "name"), text(e, "shapes"), text(e, "tokens"))] = {1e9 / time,
                                                                                                                 number(e, "share_of_floor")};
  });
  each("prefill", [&](const Json& e) { out["prefill " + text(e, "tokens")] = {number(e, "tokens_per_second"), number(e, "linear_share_of_peak")}; });
  each("decode", [&](const Json& e) { out["decode " + text(e, "batch")] = {number(e, "tokens_per_second"), number(e, "share_of_floor")}; });
  return out;
}

}  // namespace

Result<Json> read_baseline(const std::string& path, const std::string& suite) {
  LATHE_TRY(Json report, base::file_content(config::read_json_file(path)));
  if (figures(report).empty()) return err(Code::kDataLoss, "{} is no report of bench ops or bench model: it has no figures", path);
  const Json* said = report.find("suite");
  if (said == nullptr || !said->is_string() || said->as_string() != suite) {
    return err(Code::kDataLoss, "{} is a report of suite {}, expected one of bench {}", path, said == nullptr ? "nothing" : said->dump(), suite);
  }
  return report;
}

Result<std::string> baseline_page(const Json& now, const Json& then, const std::string& place) {
  const std::map<std::string, Figure> before = figures(then);
  if (before.empty()) return err(Code::kDataLoss, "{} is no report of bench ops or bench model: it has no figures", place);
  std::string out =
      fmt::format("\nAgainst {} (load then {})\n  {:<52} {:>8} {:>10} {:>10}\n", place,
                  then.find("machine") != nullptr ? text(*then.find("machine"), "load_begin") : "unknown", "", "x faster", "% then", "% now");
  double logs = 0;
  int count = 0;
  for (const auto& [name, figure] : figures(now)) {
    const auto found = before.find(name);
    if (found == before.end() || !(found->second.speed > 0) || !(figure.speed > 0)) continue;
    const double ratio = figure.speed / found->second.speed;
    logs += std::log(ratio), ++count;
    out += fmt::format("  {:<52} {:>8.2f} {:>10.1f} {:>10.1f}\n", name, ratio, 100 * found->second.share, 100 * figure.share);
  }
  if (count > 0) out += fmt::format("  {:<52} {:>8.2f}\n", "geometric mean", std::exp(logs / count));
  return out;
}

}  // namespace lathe::evaluate
