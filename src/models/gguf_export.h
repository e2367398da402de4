#pragma once
// Models as GGUF files, for comparisons with programs that read those.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "weights/gguf_vocabulary.h"

namespace lathe::models {

struct GgufExportOptions {
  std::string name;  ///< of the model, for people
  /// Of the matrices; norms, biases and what decides choices (router, index weights, streams) is f32 in every file. Rows of q8_0 that are no whole number
  /// of blocks are f16.
  weights::GgufType type = weights::GgufType::kBF16;
  std::optional<weights::GgufVocabulary> vocabulary;  ///< none: the file takes and gives ids
  int threads = 1;
};

/// Whether the folder holds a model of a kind that can be written. Errors: those of load_model for a folder and its config.
Result<void> check_gguf_export(const std::string& model);

struct GgufExportReport {
  int64_t tensors = 0;
  uint64_t bytes = 0;                    ///< of the file
  std::vector<std::string> kept_as_f16;  ///< tensors whose rows q8_0 cannot hold
  std::vector<std::string> notes;        ///< what the file does not hold: a sentence each
};

/// Is told how many bytes of the tensors are done; false ends the work.
using GgufProgress = base::FunctionRef<bool(uint64_t done, uint64_t total)>;

/// Writes the model of a folder to `path`, tensor by tensor.
///
/// Memory  rows of a few MiB a thread; the checkpoint is mapped
/// Errors  those of config and checkpoint; unimplemented (a model of another kind, or one that the files' readers cannot compute: the key and its value);
///         data_loss (weights that are no finite numbers or beyond the type: the tensor); those of write_gguf.
Result<GgufExportReport> export_gguf(const std::string& model, const std::string& path, const GgufExportOptions& options, GgufProgress progress);

}  // namespace lathe::models
