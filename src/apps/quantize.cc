#include "apps/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "apps/outputs.h"
#include "apps/settings.h"
#include "apps/terminal.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/threads.h"
#include "config/json.h"
#include "models/calibrate.h"
#include "models/quantize.h"
#include "models/quantize_report.h"
#include "text/tokenizer.h"

namespace lathe::apps {
namespace {

using config::Json;
using models::QuantizedMatrix;
using models::WeightFormat;

constexpr uint64_t kMegabyte = 1'000'000;
constexpr size_t kWorst = 10;
constexpr size_t kCalibrationTokens = 8192;  // moments of more change little, and a large model reads its weights again for every 512

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
  Json::Array outliers;
  for (const models::OutlierMatrix& m : report.outliers) {
    outliers.push_back(Json::Object{{"name", m.name}, {"weights_error", m.weights}, {"activations_error", m.activations}});
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
                      {"calibrated_tokens", report.calibrated_tokens},
                      {"outliers", std::move(outliers)},
                      {"seconds", seconds},
                      {"kinds", std::move(kinds)},
                      {"matrices", models::matrices_json(report.matrices)}};
}

/// What calibration chose, and why.
std::string calibration_page(const models::QuantizeReport& report) {
  if (report.calibrated_tokens == 0) return "";
  int64_t matrices = 0, channels = 0, clipped = 0;
  double plain = 0, chosen = 0;
  for (const QuantizedMatrix& m : report.matrices) {
    if (m.output_rms <= 0) continue;
    ++matrices, channels += m.rows, clipped += m.channels_clipped;
    plain += m.output_rms_plain * m.output_rms_plain, chosen += m.output_rms * m.output_rms;
  }
  const double count = static_cast<double>(std::max<int64_t>(matrices, 1));
  std::string out = fmt::format(
      "\nCalibrated over {} tokens: {} of {} channels of {} matrices have a scale below their largest magnitude;\n"
      "error of the outputs, relative, RMS over matrices: {:.3e} (with the largest magnitude {:.3e})\n",
      report.calibrated_tokens, clipped, channels, matrices, std::sqrt(chosen / count), std::sqrt(plain / count));
  if (report.outliers.empty()) return out + fmt::format("no matrix is expected to lose more than {:.0f} %\n", 100 * models::kKeptAbove);
  out += fmt::format("{} matrices stay as stored, because their outputs would lose more than {:.0f} %:\n{:>10} {:>12}  {}\n", report.outliers.size(),
                     100 * models::kKeptAbove, "weights", "activations", "matrix");
  for (const models::OutlierMatrix& m : report.outliers) {
    out += fmt::format("{:>8.2f} % {:>10.2f} %  {}\n", 100 * m.weights, 100 * m.activations, m.name);
  }
  return out;
}

std::string page(const QuantizeVerbOptions& options, const models::QuantizeReport& report) {
  std::string out = fmt::format("{}: {} tensors in {} files, {:.3f} GB (were {:.3f} GB)\n", options.out, report.tensors, report.shards,
                                gigabytes(report.bytes_after), gigabytes(report.bytes_before));
  if (report.shards_kept > 0) out += fmt::format("{} files were there from a run that was stopped\n", report.shards_kept);
  if (report.kept > 0) out += fmt::format("{} matrices stay as --keep says\n", report.kept);
  out += calibration_page(report);
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

Result<models::Calibration> calibrate(const QuantizeVerbOptions& options) {
  LATHE_TRY(const std::string text, base::read_file(options.calibrate, base::kLimits.prompt_bytes));
  LATHE_TRY(const auto tokenizer, base::file_content(text::Tokenizer::load(options.model + "/tokenizer.json")));
  auto ids = tokenizer->encode(text);
  if (!ids) return base::forward_error(ids, options.calibrate);
  if (ids->empty()) return err(Code::kDataLoss, "{} holds no text, expected some to calibrate with", options.calibrate);
  if (ids->size() > kCalibrationTokens) {
    base::log(base::LogLevel::kWarning, "{}: the first {} of {} tokens are used", options.calibrate, kCalibrationTokens, ids->size());
    ids->resize(kCalibrationTokens);
  }
  std::optional<Progress> progress;
  return models::calibrate_model(options.model, *ids, {.threads = static_cast<int>(options.threads)}, [&](int64_t done, int64_t total) {
    if (!progress) progress.emplace("calibrating", total, ProgressOptions{.quiet = options.json});
    progress->update(done);
    return !InterruptGuard::interrupted();
  });
}

}  // namespace

const char* const kQuantizeHelp =
    "int8 takes the linear layers of attention, dense layers and experts: they hold nearly all bytes. As they are stay\n"
    "norms, router and streams (small, and they decide), embedding and head (each token reads one row; errors of logits are seen),\n"
    "decay, beta and gate projections of linear attention (small, and their errors add up in the state), keys, gate and weights of\n"
    "the indexer (small, and they choose what is read), kv_b (its products take no codes), the join of the draft layer, the vision tower.\n"
    "fp8 takes what the published FP8 model has so; bf16 widens every 8-bit matrix. The error of each matrix is reported, relative to its\n"
    "RMS: a matrix far above the others has outliers in its rows; --keep it and compare with `lathe eval OUT --against IN`.\n"
    "--calibrate does this by itself: it runs the model in exact mode over a text (of the kind that the model will read), weighs errors by the size "
    "of\n"
    "the inputs, takes for each output channel the scale with the least error, and leaves a matrix as stored whose outputs would lose more than 5 "
    "%.\n"
    "A run that was stopped goes on when it is started again.";

Result<int> quantize_verb(const QuantizeVerbOptions& options) {
  if (options.model.empty() || options.out.empty()) return err(Code::kInvalidArgument, "quantize needs two folders: IN, a model, and OUT");
  if (options.activations == "int8" && options.weights != "int8") {
    return err(Code::kInvalidArgument, "--act int8 needs --weights int8: products of {} weights take no INT8 activations", options.weights);
  }
  if (!options.calibrate.empty() && options.weights != "int8") {
    return err(Code::kInvalidArgument, "--calibrate needs --weights int8: {} has no scales to choose", options.weights);
  }
  const NamedFile inputs[] = {{"--settings", options.settings_file}, {"--calibrate", options.calibrate}};
  LATHE_TRY_VOID(check_new_folder({"OUT", options.out}, {.model = options.model, .files = inputs}));
  models::QuantizeOptions job{.weights = options.weights == "int8"  ? WeightFormat::kInt8
                                         : options.weights == "fp8" ? WeightFormat::kFp8
                                                                    : WeightFormat::kPlain,
                              .int8_activations = options.activations == "int8",
                              .keep = options.keep,
                              .threads = options.threads > 0 ? static_cast<int>(options.threads) : base::default_thread_count()};
  const int64_t start = base::now_ns();
  const InterruptGuard guard;
  models::Calibration calibration;
  if (!options.calibrate.empty()) {
    LATHE_TRY(calibration, calibrate(options));
    job.calibration = &calibration;
  }
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
