#include <fmt/format.h>

#include <algorithm>

#include "apps/settings.h"
#include "apps/terminal.h"
#include "apps/verbs.h"
#include "config/json.h"
#include "feedback/selftest.h"

namespace lathe::apps {
namespace {

using config::Json;

std::string budget_text(double budget) { return budget == 0 ? "bits" : fmt::format("{:.0e}", budget); }

}  // namespace

Result<int> selftest_verb(const config::Settings& settings, SelftestOptions how) {
  LATHE_TRY(const engine::EngineOptions options, engine_options(settings));
  std::unique_ptr<Progress> progress;
  LATHE_TRY(const auto rows, feedback::run_selftest(options, [&](int64_t done, int64_t total) {
              if (progress == nullptr) progress = std::make_unique<Progress>("self-test", total, ProgressOptions{.quiet = how.json});
              progress->update(done);
            }));
  progress.reset();
  const bool passed = std::all_of(rows.begin(), rows.end(), [](const feedback::SelftestRow& row) { return row.passed; });
  if (how.json) {
    Json::Array list;
    for (const feedback::SelftestRow& row : rows) {
      list.push_back(Json::Object{{"name", row.name},
                                  {"compared", row.compared},
                                  {"worst", row.worst},
                                  {"budget", row.budget},
                                  {"passed", row.passed},
                                  {"detail", row.detail}});
    }
    print(Json(Json::Object{{"model", options.model}, {"passed", passed}, {"rows", std::move(list)}}).dump({.key_separator = ": ", .indent = 1}) +
          "\n");
    return passed ? 0 : 1;
  }
  for (const feedback::SelftestRow& row : rows) {
    print(fmt::format("{:<6} {:<11} worst {:<9.2e} budget {:<6} {}{}\n", row.passed ? "ok" : "FAILED", row.name, row.worst, budget_text(row.budget),
                      row.compared, row.detail.empty() || row.worst == 0 ? "" : " [" + row.detail + "]"));
  }
  print(passed ? "all checks passed\n" : "self-test FAILED\n");
  return passed ? 0 : 1;
}

}  // namespace lathe::apps
