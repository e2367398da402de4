#include "apps/make_slice.h"

#include <fmt/format.h>

#include "apps/outputs.h"
#include "apps/settings.h"
#include "apps/terminal.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/threads.h"
#include "config/json.h"
#include "models/slice.h"

namespace lathe::apps {
namespace {

using config::Json;

constexpr uint64_t kMegabyte = 1'000'000;

std::string facts_line(const models::SliceReport& report) {
  return fmt::format("{} layers ({} linear, {} dense), vocabulary {}: {} tensors, {:.3f} G parameters, {:.3f} GB in {} files", report.layers,
                     report.kda_layers, report.dense_layers, report.vocabulary, report.tensors, static_cast<double>(report.parameters) / 1e9,
                     static_cast<double>(report.bytes) / 1e9, report.shards);
}

Json facts(const models::SliceReport& report) {
  return Json::Object{{"layers", report.layers},
                      {"kda_layers", report.kda_layers},
                      {"dense_layers", report.dense_layers},
                      {"vocabulary", report.vocabulary},
                      {"tensors", report.tensors},
                      {"parameters", report.parameters},
                      {"files", report.shards},
                      {"bytes", static_cast<int64_t>(report.bytes)}};
}

}  // namespace

Result<int> make_slice_verb(const MakeSliceOptions& options) {
  models::SliceOptions slice{.config = options.config,
                             .companion = {},
                             .layers = options.layers,
                             .dense_layers = options.dense_layers,
                             .experts = options.experts,
                             .vocabulary = options.vocabulary,
                             .fp8 = options.weights == "fp8",
                             .draft = !options.no_draft,
                             .vision = !options.no_vision,
                             .seed = static_cast<uint64_t>(options.seed),
                             .threads = options.threads > 0 ? static_cast<int>(options.threads) : base::default_thread_count()};
  LATHE_TRY(slice.companion, builtin_model());
  if (options.out.empty() && !options.check) return err(Code::kInvalidArgument, "bench make-slice needs a folder to write: OUT_DIR");
  if (!options.out.empty()) {
    const NamedFile inputs[] = {{"--config", options.config}};
    LATHE_TRY_VOID(check_new_folder({"OUT_DIR", options.out}, {.model = slice.companion, .files = inputs}));
  }
  LATHE_TRY(const models::SliceReport plan, models::plan_slice(slice));
  Json report = facts(plan);
  if (!options.check) {
    const int64_t start = base::now_ns();
    const InterruptGuard guard;
    Progress progress("writing MB", static_cast<int64_t>(plan.bytes / kMegabyte), {.quiet = options.json});
    LATHE_TRY(const models::SliceReport done, models::make_slice(options.out, slice, [&](uint64_t bytes) {
                progress.update(static_cast<int64_t>(bytes / kMegabyte));
                return !InterruptGuard::interrupted();
              }));
    progress.finish();
    report.set("files_kept", done.shards_kept);
    report.set("seconds", static_cast<double>(base::now_ns() - start) / 1e9);
  }
  if (options.json) {
    print(report.dump({.key_separator = ": ", .indent = 1}) + "\n");
  } else {
    print((options.check ? "" : options.out + ": ") + facts_line(plan) + "\n");
  }
  return 0;
}

}  // namespace lathe::apps
