#include <algorithm>
#include <cstring>

#include "base/file.h"
#include "base/threads.h"
#include "models/gguf_export.h"
#include "models/glm5_next_export.h"
#include "models/glm5_next_gguf.h"

namespace lathe::models {
namespace {

using weights::GgufTensor;
using weights::GgufType;

/// The type of a tensor in a file of `wanted`.
GgufType type_of(const GgufSource& source, GgufType wanted) {
  if (!source.chosen_type) return GgufType::kF32;
  return wanted == GgufType::kQ8 && source.tensor.row_values() % weights::kQ8Values != 0 ? GgufType::kF16 : wanted;
}

Result<void> fill_rows(const GgufSource& source, uint64_t begin, std::span<std::byte> out) {
  const GgufTensor& tensor = source.tensor;
  const uint64_t row_bytes = weights::gguf_row_bytes(tensor.type, tensor.row_values());
  std::vector<float> row(static_cast<size_t>(tensor.row_values()));
  for (uint64_t at = 0; at < out.size(); at += row_bytes) {
    const auto index = static_cast<int64_t>((begin + at) / row_bytes);
    source.read_row(index, row);
    const auto done = base::file_content(weights::gguf_encode_row(tensor.type, row, out.subspan(at, row_bytes)));
    if (!done) return base::forward_error(done, fmt::format("tensor '{}', row {}", tensor.name, index));
  }
  return {};
}

}  // namespace

Result<GgufExportReport> export_glm5_next_gguf(const std::string& model, const std::string& path, const GgufExportOptions& options,
                                               GgufProgress progress) {
  LATHE_TRY(const ParsedConfig parsed, read_glm5_next_config(model));
  const Glm5NextConfig& config = parsed.config;
  LATHE_TRY(std::vector<weights::GgufKey> keys, gguf_keys(config, options.name, options.type));
  auto vocabulary =
      options.vocabulary ? base::file_content(gguf_vocabulary_keys(*options.vocabulary, config.vocab)) : weights::gguf_no_vocabulary_keys();
  if (!vocabulary) return base::forward_error(vocabulary, model);
  std::move(vocabulary->begin(), vocabulary->end(), std::back_inserter(keys));
  LATHE_TRY(weights::Checkpoint checkpoint, base::file_content(weights::Checkpoint::open(model)));
  LATHE_TRY(const Glm5NextWeights bound, base::file_content(bind_glm5_next(config, checkpoint)));
  GgufExportReport report;
  if (config.vision) report.notes.emplace_back("the vision tower is left out: files of this arch hold the text model");
  std::vector<GgufSource> sources = gguf_sources(config, bound);
  std::vector<GgufTensor> tensors;
  uint64_t total = 0;
  for (GgufSource& source : sources) {
    source.tensor.type = type_of(source, options.type);
    if (source.chosen_type && source.tensor.type != options.type) report.kept_as_f16.push_back(source.tensor.name);
    total += source.tensor.bytes();
    tensors.push_back(source.tensor);
  }
  report.tensors = static_cast<int64_t>(tensors.size());
  report.bytes = weights::gguf_file_bytes(keys, tensors);
  base::ThreadPool pool(options.threads);
  const auto tell = [&](uint64_t done) { return progress(done, total); };
  const base::FunctionRef<bool(uint64_t)> told = tell;
  const auto fill = [&](size_t part, uint64_t begin, std::span<std::byte> out) { return fill_rows(sources[part], begin, out); };
  LATHE_TRY_VOID(weights::write_gguf(path, keys, tensors, fill, {.pool = &pool, .progress = &told}));
  return report;
}

}  // namespace lathe::models
