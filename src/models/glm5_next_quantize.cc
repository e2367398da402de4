// A glm5_next checkpoint in another format: shards, report, config, and the files beside them.

#include "models/glm5_next_quantize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/file.h"
#include "base/threads.h"
#include "models/companion_files.h"
#include "models/matrix_codes.h"
#include "models/quantize_report.h"
#include "models/random_values.h"
#include "models/stored_scales.h"
#include "weights/shards.h"
#include "weights/work_folder.h"

namespace lathe::models {
namespace {

using config::Json;
using weights::shard_name;
using weights::TensorEntry;

/// A stored tensor of the result: values or scales of a planned one.
struct Part {
  size_t source = 0;
  bool scales = false;
};

struct Shard {
  std::vector<TensorEntry> tensors;
  std::vector<Part> parts;  ///< one for each tensor
  uint64_t bytes = 0;

  void add(TensorEntry entry, Part part) {
    bytes += weights::stored_bytes(entry);
    tensors.push_back(std::move(entry));
    parts.push_back(part);
  }
};

std::vector<int64_t> scale_shape(const QuantizedTensor& t) {
  const int64_t rows = t.matrix.rows();
  if (t.to == DType::kI8) return {rows, 1};
  return {scale_blocks(rows), scale_blocks(t.matrix.cols())};
}

/// Values and scales stay together, values first: the scales are computed while the values are still in memory.
std::vector<Shard> make_shards(const QuantizePlan& plan, uint64_t shard_bytes) {
  std::vector<Shard> shards(1);
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const QuantizedTensor& t = plan.tensors[i];
    Shard one;
    one.add({.name = t.spec.name, .dtype = t.to, .shape = t.spec.shape}, {i, false});
    if (t.to == DType::kI8 || t.to == DType::kF8E4M3) {
      const std::string name = t.to == DType::kI8 ? int8_scale_name(t.spec.name) : fp8_scale_name(t.spec.name);
      one.add({.name = name, .dtype = DType::kF32, .shape = scale_shape(t)}, {i, true});
    }
    if (shards.back().bytes > 0 && shards.back().bytes + one.bytes > shard_bytes) shards.emplace_back();
    Shard& shard = shards.back();
    shard.bytes += one.bytes;
    std::move(one.tensors.begin(), one.tensors.end(), std::back_inserter(shard.tensors));
    shard.parts.insert(shard.parts.end(), one.parts.begin(), one.parts.end());
  }
  return shards;
}

std::unique_ptr<MatrixCodes> make_codes(const QuantizedTensor& t) {
  return std::make_unique<MatrixCodes>(t.matrix, t.to, t.stats != nullptr ? std::span<const float>(t.stats->square) : std::span<const float>());
}

/// The bytes of one shard, as the writer asks for them.
class ShardBytes {
 public:
  ShardBytes(const QuantizePlan& plan, const Shard& shard) : plan_(plan), shard_(shard), codes_(shard.parts.size()) {
    std::unique_ptr<MatrixCodes>* values = nullptr;  // of the tensor before, whose scales follow it
    for (size_t i = 0; i < shard.parts.size(); ++i) {
      const QuantizedTensor& t = plan.tensors[shard.parts[i].source];
      if (!shard.parts[i].scales) values = &codes_[i];
      if (t.converted && !shard.parts[i].scales) codes_[i] = make_codes(t);
      of_.push_back(values->get());
    }
  }

  Result<void> fill(size_t part, uint64_t begin, std::span<std::byte> out) const {
    const QuantizedTensor& t = plan_.tensors[shard_.parts[part].source];
    const bool scales = shard_.parts[part].scales;
    if (!t.converted) {
      const View& view = !t.matrix.present() ? t.vector : scales ? t.matrix.scales : t.matrix.values;
      LATHE_CHECK(view.contiguous(), "'{}' is stored as {}", t.spec.name, describe(view));
      std::memcpy(out.data(), static_cast<const std::byte*>(view.data) + begin, out.size());
      return {};
    }
    const Result<void> done = scales ? of_[part]->fill_scales(begin, out) : of_[part]->fill_values(begin, out);
    if (!done) return base::forward_error(done, fmt::format("tensor '{}'", t.spec.name));
    return {};
  }

  std::vector<QuantizedMatrix> report() const {
    std::vector<QuantizedMatrix> out;
    for (size_t i = 0; i < codes_.size(); ++i) {
      if (codes_[i] == nullptr) continue;
      const QuantizedTensor& t = plan_.tensors[shard_.parts[i].source];
      QuantizedMatrix row = matrix_errors(codes_[i]->errors());
      row.name = t.spec.name;
      row.kind = tensor_kind_name(t.spec.kind);
      row.from = t.matrix.values.dtype;
      row.to = t.to;
      row.rows = t.matrix.rows();
      row.cols = t.matrix.cols();
      row.bytes_before = static_cast<uint64_t>(t.matrix.bytes());
      row.bytes_after = weights::stored_bytes(shard_.tensors[i]);
      if (t.to != DType::kBF16) row.bytes_after += weights::stored_bytes(shard_.tensors[i + 1]);
      out.push_back(std::move(row));
    }
    return out;
  }

 private:
  const QuantizePlan& plan_;
  const Shard& shard_;
  std::vector<std::unique_ptr<MatrixCodes>> codes_;  ///< by part: of values that are converted
  std::vector<MatrixCodes*> of_;                     ///< by part: that of its values, null where they are copied
};

/// Name, size and time of the files that are read: another checkpoint is other work.
uint64_t fingerprint(const weights::Checkpoint& checkpoint) {
  std::string text;
  for (const std::string& file : checkpoint.files()) {
    std::error_code error;
    const auto bytes = std::filesystem::file_size(file, error);
    const auto time = std::filesystem::last_write_time(file, error).time_since_epoch().count();
    text += fmt::format("{} {} {}\n", file, bytes, time);
  }
  return random_key(0, text);
}

/// Everything that the files depend on, on one line.
std::string work_of(const QuantizeOptions& options, const weights::Checkpoint& checkpoint, const Json& config) {
  const char* const weights = options.weights == WeightFormat::kInt8 ? "int8" : options.weights == WeightFormat::kFp8 ? "fp8" : "bf16";
  const std::string calibrated = options.calibration != nullptr ? fmt::format(" calibrated by {:016x}", options.calibration->fingerprint) : "";
  return fmt::format("quantised weights, {}{}{}, {} patterns kept ({:016x}), shards of {} bytes, config {:016x}, input {:016x}", weights,
                     options.int8_activations ? " with int8 activations" : "", calibrated, options.keep.size(),
                     random_key(0, fmt::format("{}", fmt::join(options.keep, "\n"))), options.shard_bytes, random_key(0, config.dump()),
                     fingerprint(checkpoint));
}

/// The config of the result: that of the model with another quantization_config.
Result<Json> config_of(const std::string& model, const QuantizationConfig& quantization) {
  LATHE_TRY(Json json, config::read_json_file(model + "/config.json", base::kLimits.config_bytes));
  Json::Object& members = json.as_object();
  std::erase_if(members, [](const Json::Member& member) { return member.first == "quantization_config"; });
  if (quantization.weights != WeightFormat::kPlain) json.set("quantization_config", quantization_config_json(quantization));
  return json;
}

/// One run: what is written, and where.
class Run {
 public:
  Run(const QuantizeOptions& options, const QuantizePlan& plan, weights::WorkFolder& work)
      : plan_(plan), work_(work), shards_(make_shards(plan, options.shard_bytes)), pool_(options.threads) {
    for (const Shard& shard : shards_) {
      report_.tensors += static_cast<int64_t>(shard.tensors.size());
      report_.bytes_after += shard.bytes;
    }
    report_.shards = static_cast<int64_t>(shards_.size());
    report_.kept = plan.kept;
    report_.outliers = plan.outliers;
    if (options.calibration != nullptr) report_.calibrated_tokens = options.calibration->tokens;
  }

  Result<void> check_disk(const std::string& path, const std::vector<CompanionFile>& companions) const {
    uint64_t missing = 0;
    for (size_t i = 0; i < shards_.size(); ++i) missing += done(i) ? 0 : shards_[i].bytes;
    for (const CompanionFile& file : companions) missing += file.bytes;
    return base::check_disk_space(path, missing);
  }
  Result<void> write_shards(QuantizeProgress progress) {
    const auto tell = [&](uint64_t bytes) { return progress(bytes, report_.bytes_after); };
    const base::FunctionRef<bool(uint64_t)> told = tell;
    weights::StreamOptions stream{.pool = &pool_, .progress = &told};
    for (size_t i = 0; i < shards_.size(); ++i) {
      if (done(i)) ++report_.shards_kept;
      LATHE_TRY(std::vector<QuantizedMatrix> rows, done(i) ? read_report(i) : write_shard(i, stream));
      std::move(rows.begin(), rows.end(), std::back_inserter(report_.matrices));
      stream.done_before += shards_[i].bytes;
    }
    return {};
  }
  /// What stands beside the shards.
  Result<void> write_rest(const Json& config, const std::vector<CompanionFile>& companions) {
    const std::string& folder = work_.folder();
    std::vector<std::span<const TensorEntry>> tensors;
    for (const Shard& shard : shards_) tensors.emplace_back(shard.tensors);
    LATHE_TRY_VOID(weights::write_shard_index(folder, tensors));
    LATHE_TRY_VOID(base::write_file(folder + "/config.json", config.dump({.key_separator = ": ", .indent = 1})));
    LATHE_TRY_VOID(base::write_file(fmt::format("{}/{}", folder, kQuantizationReport), matrices_json(report_.matrices).dump({.indent = 1})));
    LATHE_TRY_VOID(copy_companions(companions, folder));
    std::error_code ignored;
    for (size_t i = 0; i < shards_.size(); ++i) std::filesystem::remove(folder + "/" + report_name(i), ignored);
    return work_.finish();
  }
  QuantizeReport& report() { return report_; }

 private:
  std::string name(size_t shard) const { return shard_name(shard, shards_.size()); }
  std::string report_name(size_t shard) const { return name(shard) + ".errors.json"; }
  /// The report comes last: with it the shard is whole.
  bool done(size_t shard) const { return work_.has(name(shard)) && work_.has(report_name(shard)); }
  Result<std::vector<QuantizedMatrix>> read_report(size_t shard) const {
    LATHE_TRY(const Json json, config::read_json_file(work_.folder() + "/" + report_name(shard)));
    return base::file_content(read_matrices(json));
  }
  Result<std::vector<QuantizedMatrix>> write_shard(size_t shard, const weights::StreamOptions& stream) const {
    const ShardBytes bytes(plan_, shards_[shard]);
    const auto fill = [&](size_t part, uint64_t begin, std::span<std::byte> out) { return bytes.fill(part, begin, out); };
    constexpr std::pair<const char*, const char*> kFormat = {"format", "pt"};
    const std::pair<std::string, std::string> metadata[] = {kFormat};
    LATHE_TRY_VOID(weights::write_safetensors(work_.folder() + "/" + name(shard),
                                              {.tensors = shards_[shard].tensors, .fill = fill, .metadata = metadata}, stream));
    std::vector<QuantizedMatrix> rows = bytes.report();
    LATHE_TRY_VOID(base::write_file(work_.folder() + "/" + report_name(shard), matrices_json(rows).dump()));
    return rows;
  }

  const QuantizePlan& plan_;
  weights::WorkFolder& work_;
  std::vector<Shard> shards_;
  base::ThreadPool pool_;
  QuantizeReport report_;
};

}  // namespace

Result<QuantizeReport> quantize_glm5_next(const std::string& model, const std::string& path, const QuantizeOptions& options,
                                          QuantizeProgress progress) {
  LATHE_TRY(const ParsedConfig parsed, read_glm5_next_config(model));
  LATHE_TRY(weights::Checkpoint checkpoint, base::file_content(weights::Checkpoint::open(model)));
  LATHE_TRY(const Glm5NextWeights bound, base::file_content(bind_glm5_next(parsed.config, checkpoint)));
  LATHE_TRY(const QuantizePlan plan, plan_glm5_next_quantize(parsed.config, bound, options));
  LATHE_TRY(const Json config, config_of(model, quantization_of(parsed.config, plan, options)));
  LATHE_TRY(const std::vector<CompanionFile> companions, companion_files(model));
  LATHE_TRY(weights::WorkFolder work, weights::WorkFolder::open(path, work_of(options, checkpoint, config)));
  Run run(options, plan, work);
  LATHE_TRY_VOID(run.check_disk(path, companions));
  LATHE_TRY_VOID(run.write_shards(progress));
  LATHE_TRY_VOID(run.write_rest(config, companions));
  run.report().bytes_before = checkpoint.data_bytes();
  return std::move(run.report());
}

}  // namespace lathe::models
