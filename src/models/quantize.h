#pragma once
// Checkpoints in another weight format: INT8 channels, FP8 blocks or BF16, written in bounded memory. Formats: docs/formats.md.

#include <cstdint>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "models/calibrate.h"
#include "models/quantization_config.h"
#include "tensor/dtype.h"

namespace lathe::models {

struct QuantizeOptions {
  WeightFormat weights = WeightFormat::kInt8;  ///< kPlain: BF16
  bool int8_activations = false;               ///< announced with INT8 weights
  /// Matrices that stay as stored: patterns over whole names, released spelling, * for any text and ? for any character.
  std::vector<std::string> keep;
  /// INT8 only: what enters the matrices on some text. Scales are then those that lose least of it, and matrices that would lose more than kKeptAbove stay as
  /// stored. Not owned.
  const Calibration* calibration = nullptr;
  int threads = 1;
  uint64_t shard_bytes = uint64_t{2} << 30;  ///< of a file; only a larger tensor makes a larger one
};

/// What became of a matrix that changed its format.
struct QuantizedMatrix {
  std::string name;
  std::string kind;  ///< "kda", "expert", …
  DType from = DType::kBF16, to = DType::kI8;
  int64_t rows = 0, cols = 0;
  double relative_rms = 0;                     ///< sqrt of the mean squared difference over the mean square
  int64_t worst_channel = 0;                   ///< output channel with the largest error of its own
  double worst_channel_rms = 0;                ///< relative to its own mean square
  double error = 0, square = 0;                ///< sums of squared differences and of squares, for totals
  double output_rms = 0;                       ///< calibrated: of the outputs, relative to theirs; 0: not calibrated
  double output_rms_plain = 0;                 ///< the same with the scale of the largest magnitude
  int64_t channels_clipped = 0;                ///< output channels with a smaller scale than that
  uint64_t bytes_before = 0, bytes_after = 0;  ///< scales included
};

/// A matrix that stays as stored because calibration expects too much of an error.
struct OutlierMatrix {
  std::string name;
  // RMS of an output's error, relative to the RMS of the output:
  double weights = 0;      ///< of its INT8 weights, from some of the rows
  double activations = 0;  ///< of the INT8 activations that would meet it; 0: there are none
};
/// Most that both together may be. An INT8 row of normally distributed values has 0.7 %, in weights and activations.
inline constexpr double kKeptAbove = 0.05;

struct QuantizeReport {
  std::vector<QuantizedMatrix> matrices;
  int64_t kept = 0;  ///< matrices that --keep named
  std::vector<OutlierMatrix> outliers;
  int64_t calibrated_tokens = 0;
  int64_t tensors = 0;
  uint64_t bytes_before = 0, bytes_after = 0;  ///< of all tensors
  int64_t shards = 0;
  int64_t shards_kept = 0;  ///< written by an earlier run that was interrupted
};

inline constexpr const char* kQuantizationReport = "quantization_report.json";

/// Is told how many bytes of the tensors are done; false ends the work.
using QuantizeProgress = base::FunctionRef<bool(uint64_t done, uint64_t total)>;

/// Writes the model of a folder into a new folder: shards with an index, config.json with its quantization_config, kQuantizationReport, and copies of all
/// other files. Stored block scales are applied in f32 before anything is rounded.
///
/// Which    INT8: every linear layer of attention, dense layers and experts. BF16 or as stored stay: norms, router, streams (mHC), embedding, head and
///          draft join, the small projections that steer the KDA state (decay, beta, gate) and choose pools (indexer key, gate and weights), kv_b (its
///          kernels take no codes), the vision tower. FP8: what the FP8 release has so. BF16: all of these, and the head and embedding.
/// Memory   a few MiB a thread; the checkpoint is mapped
/// Disk     asked for before anything is written; the folder gets its name when it is whole, and a run that was stopped goes on (weights/work_folder.h)
/// Errors   those of config and checkpoint; invalid_argument (a pattern that names no matrix); data_loss (weights that are no finite numbers: the tensor);
///          those of WorkFolder and OutputFile; cancelled.
Result<QuantizeReport> quantize_model(const std::string& model, const std::string& path, const QuantizeOptions& options, QuantizeProgress progress);

}  // namespace lathe::models
