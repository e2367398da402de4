#pragma once
// Checkpoints with random weights and the dimensions of a published model, but fewer layers and experts: real shapes that fit a small machine.

#include <cstdint>
#include <string>

#include "base/function_ref.h"
#include "base/result.h"

namespace lathe::models {

struct SliceOptions {
  std::string config;     ///< config.json whose dimensions are taken; empty: those of the published model
  std::string companion;  ///< folder of a model whose tokenizer, template and defaults are copied; its token ids go into the config
  int64_t layers = 4;
  int64_t dense_layers = -1;  ///< with a dense FFN; −1: a quarter of the layers, at least one and at most as many as the model has
  int64_t experts = 32;
  int64_t vocabulary = 0;  ///< rows of embedding and head; 0: as the model. Rows that the tokenizer lacks are padding, as in the release
  bool fp8 = true;         ///< the matrices of the FP8 release in E4M3 with 128 x 128 block scales; else all in BF16
  bool draft = true;       ///< with the draft layer, if the model has one
  bool vision = true;      ///< with the vision tower, if the model has one
  uint64_t seed = 1;
  int threads = 1;
  uint64_t shard_bytes = uint64_t{2} << 30;  ///< of a file; only a larger tensor makes a larger one
};

struct SliceReport {
  int64_t layers = 0, kda_layers = 0, dense_layers = 0;
  int64_t vocabulary = 0;
  int64_t tensors = 0;  ///< scales included
  int64_t parameters = 0;
  uint64_t bytes = 0;  ///< of tensors
  int64_t shards = 0;
  int64_t shards_kept = 0;  ///< written by an earlier run that was interrupted
};

/// What make_slice would write. Errors: invalid_argument (a number that does not fit the model), those of reading configs.
Result<SliceReport> plan_slice(const SliceOptions& options);

/// Writes the checkpoint. Its weights are a function of seed and names alone: the same for any number of threads and however often it was interrupted.
/// They are spread so that every activation keeps about the size it has in a trained model.
///
/// Memory  a few MiB a thread
/// Disk    asked for before anything is written; the folder gets its name when it is whole (weights/work_folder.h)
/// `progress` is told the bytes done of report.bytes and says false to stop.
/// Errors  those of plan_slice, WorkFolder and OutputFile; cancelled.
Result<SliceReport> make_slice(const std::string& path, const SliceOptions& options, base::FunctionRef<bool(uint64_t done)> progress);

}  // namespace lathe::models
