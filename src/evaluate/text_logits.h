#pragma once
// Logits of a text, piece by piece: two models can be compared at every position without the logits of a whole text in memory.

#include <span>
#include <vector>

#include "engine/engine.h"

namespace lathe::evaluate {

/// Reads `ids` as a prompt in a sequence of its own. Bits do not depend on the sizes of the pieces.
///
/// Threads   the engine's. Engine and ids outlive the reader.
class TextLogits {
 public:
  TextLogits(engine::Engine& engine, std::span<const TokenId> ids) : engine_(engine), ids_(ids) {}
  ~TextLogits();
  TextLogits(const TextLogits&) = delete;
  TextLogits& operator=(const TextLogits&) = delete;

  /// Logits [n, vocabulary] of the next at most `tokens` positions; empty behind the last. Valid until the next call.
  /// Errors: those of the model; data_loss for logits that are not finite.
  Result<std::span<const float>> next(int64_t tokens);

 private:
  engine::Engine& engine_;
  std::span<const TokenId> ids_;
  SequenceId sequence_;
  bool open_ = false;
  size_t position_ = 0;
  std::vector<float> rows_;
};

/// Error data_loss naming position, token and value. `what`: "logits", "draft logits".
Result<void> check_finite(std::span<const float> row, const char* what, int64_t position);

/// log Σ exp(row), in double.
double log_sum_exp(std::span<const float> row);

}  // namespace lathe::evaluate
