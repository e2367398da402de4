#include "apps/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "apps/outputs.h"
#include "apps/settings.h"
#include "apps/terminal.h"
#include "base/clock.h"
#include "base/threads.h"
#include "config/json.h"
#include "models/quantize.h"
#include "models/quantize_report.h"

namespace lathe::apps {
namespace {

using config::Json;
using models::QuantizedMatrix;
using models::WeightFormat;

constexpr uint64_t kMegabyte = 1'000'000;
constexpr size_t kWorst = 10;

double gigabytes(uint64_t bytes) { return static_cast<double>(bytes) / 1e9; }

Json report_json(const QuantizeVerbOptions& options, const models::QuantizeReport& report, double seconds) {
  Json::Array kinds;
  for (const models::QuantizedKind& kind : models::kinds_of(report.matrices)) {
    kinds.push_back(Json::Object{{"kind", kind.kind},
                                 {"matrices", kind.matrices},
                                 {"relative_rms", kind.relative_rms},
                                 {"bytes_before", static_cast<int64_t>(kind.bytes_before)},
                                 {"bytes_after", static_cast<int64_t>(kind.bytes_after)}});
  }
  return Json::Object{{"out", options.out},
                      {"weights", options.weights},
                      {"activations", options.activations},
                      {"tensors", report.tensors},
                      {"bytes_before", static_cast<int64_t>(report.bytes_before)},
                      {"bytes_after", static_cast<int64_t>(report.bytes_after)},
                      {"files", report.shards},
                      {"files_kept", report.shards_kept},
                      {"matrices_kept", report.kept},
                      {"seconds", seconds},
                      {"kinds", std::move(kinds)},
                      {"matrices", models::matrices_json(report.matrices)}};
}

std::string page(const QuantizeVerbOptions& options, const models::QuantizeReport& report) {
  std::string out = fmt::format("{}: {} tensors in {} files, {:.3f} GB (were {:.3f} GB)\n", options.out, report.tensors, report.shards,
                                gigabytes(report.bytes_after), gigabytes(report.bytes_before));
  if (report.shards_kept > 0) out += fmt::format("{} files were there from a run that was stopped\n", report.shards_kept);
  if (report.kept > 0) out += fmt::format("{} matrices stay as --keep says\n", report.kept);
  if (report.matrices.empty()) return out + "no matrix changed its format\n";
  out += fmt::format("\n{:<12} {:>9} {:>13} {:>13} {:>14}\n", "kind", "matrices", "GB before", "GB after", "relative RMS");
  for (const models::QuantizedKind& kind : models::kinds_of(report.matrices)) {
    out += fmt::format("{:<12} {:>9} {:>13.4f} {:>13.4f} {:>14.2e}\n", kind.kind, kind.matrices, gigabytes(kind.bytes_before),
                       gigabytes(kind.bytes_after), kind.relative_rms);
  }
  std::vector<QuantizedMatrix> worst = report.matrices;
  std::stable_sort(worst.begin(), worst.end(), [](const QuantizedMatrix& a, const QuantizedMatrix& b) { return a.relative_rms > b.relative_rms; });
  worst.resize(std::min(worst.size(), kWorst));
  out += fmt::format("\nThe {} with the largest error (all: {} in the new folder)\n{:>13} {:>13} {:>9}  {}\n", worst.size(),
                     models::kQuantizationReport, "relative RMS", "worst channel", "its RMS", "matrix");
  for (const QuantizedMatrix& m : worst) {
    out += fmt::format("{:>13.2e} {:>13} {:>9.2e}  {} ({} to {})\n", m.relative_rms, m.worst_channel, m.worst_channel_rms, m.name,
                       tensor::dtype_name(m.from), tensor::dtype_name(m.to));
  }
  return out;
}

}  // namespace

const char* const kQuantizeHelp =
    "int8 takes the linear layers of attention, dense layers and experts: they hold nearly all bytes. As they are stay\n"
    "norms, router and streams (small, and they decide), embedding and head (each token reads one row; errors of logits are seen),\n"
    "decay, beta and gate projections of linear attention (small, and their errors add up in the state), keys, gate and weights of\n"
    "the indexer (small, and they choose what is read), kv_b (its products take no codes), the join of the draft layer, the vision tower.\n"
    "fp8 takes what the published FP8 model has so; bf16 widens every 8-bit matrix. The error of each matrix is reported, relative to its\n"
    "RMS: a matrix far above the others has outliers in its rows; --keep it and compare with `lathe eval OUT --against IN`.\n"
    "A run that was stopped goes on when it is started again.";

Result<int> quantize_verb(const QuantizeVerbOptions& options) {
  if (options.model.empty() || options.out.empty()) return err(Code::kInvalidArgument, "quantize needs two folders: IN, a model, and OUT");
  if (options.activations == "int8" && options.weights != "int8") {
    return err(Code::kInvalidArgument, "--act int8 needs --weights int8: products of {} weights take no INT8 activations", options.weights);
  }
  const NamedFile inputs[] = {{"--settings", options.settings_file}};
  LATHE_TRY_VOID(check_new_folder({"OUT", options.out}, {.model = options.model, .files = inputs}));
  const models::QuantizeOptions job{.weights = options.weights == "int8"  ? WeightFormat::kInt8
                                               : options.weights == "fp8" ? WeightFormat::kFp8
                                                                          : WeightFormat::kPlain,
                                    .int8_activations = options.activations == "int8",
                                    .keep = options.keep,
                                    .threads = options.threads > 0 ? static_cast<int>(options.threads) : base::default_thread_count()};
  const int64_t start = base::now_ns();
  const InterruptGuard guard;
  std::optional<Progress> progress;
  LATHE_TRY(const auto report, models::quantize_model(options.model, options.out, job, [&](uint64_t done, uint64_t total) {
              if (!progress) progress.emplace("writing MB", static_cast<int64_t>(total / kMegabyte), ProgressOptions{.quiet = options.json});
              progress->update(static_cast<int64_t>(done / kMegabyte));
              return !InterruptGuard::interrupted();
            }));
  progress.reset();
  const double seconds = static_cast<double>(base::now_ns() - start) / 1e9;
  print(options.json ? report_json(options, report, seconds).dump({.key_separator = ": ", .indent = 1}) + "\n" : page(options, report));
  return 0;
}

}  // namespace lathe::apps
