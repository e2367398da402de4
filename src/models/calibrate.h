#pragma once
// What the inputs of a model's matrices look like on some text: measured in exact mode, used by quantize.h to weigh errors.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/ids.h"
#include "base/result.h"

namespace lathe::models {

/// Input rows of a matrix.
struct ChannelStats {
  int64_t rows = 0;           ///< that were seen
  std::vector<float> square;  ///< [channels] mean of x², and a hundredth of the mean over channels: one that the text leaves alone is not free
  double amax_square = 0;     ///< mean over rows of (largest |x|)²: what an INT8 row's step grows with
};

struct Calibration {
  std::vector<ChannelStats> stats;
  std::map<std::string, size_t> of;  ///< index into stats by the matrix's released name
  int64_t tokens = 0;                ///< that were read
  uint64_t fingerprint = 0;          ///< of these tokens

  /// Null: the text never reached this matrix.
  const ChannelStats* find(const std::string& name) const;
};

struct CalibrateOptions {
  int threads = 0;             ///< 0: chosen for this machine
  int64_t batch_tokens = 512;  ///< rows of a step
};

/// Is told how many tokens are done; false ends the work.
using CalibrateProgress = base::FunctionRef<bool(int64_t done, int64_t total)>;

/// Runs the model in exact mode over the ids, as one sequence, and looks at what enters each matrix that INT8 could take.
///
/// Experts  Gate and up of all experts of a layer share the statistics of the layer's input. The inner activations of each expert are computed once more to
///          be seen; an expert that fewer than kFewRows tokens reach takes those of its layer.
/// Memory   That of exact mode for one sequence, and 4 bytes a channel. Weights are mapped: a checkpoint larger than memory is read from disk once for
///          each batch of tokens.
/// Errors   those of load_model and its steps; invalid_argument (no ids); cancelled
Result<Calibration> calibrate_model(const std::string& model, std::span<const TokenId> ids, const CalibrateOptions& options,
                                    CalibrateProgress progress);
inline constexpr int64_t kFewRows = 32;

}  // namespace lathe::models
