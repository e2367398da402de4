#pragma once
// Logits of given ids, computed whole, in chunks or token by token: for people who compare implementations.

#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "engine/engine.h"
#include "engine/image_rows.h"

namespace lathe::evaluate {

struct LogitsJob {
  std::vector<TokenId> ids;
  std::vector<int64_t> chunks;  ///< sizes of the first prefill chunks; what remains is a last one
  int64_t decode_from = -1;     ///< ≥ 0: tokens from this position on are decoded one by one
  std::vector<int64_t> at;      ///< positions wanted, ascending; empty: all
  bool draft = false;           ///< also the draft layer's logits, fed with the next id (the last position: with the best token of its logits)
  std::vector<engine::PromptImage> images;
};

struct LogitsTable {
  int64_t rows = 0;
  int64_t vocabulary = 0;
  std::vector<float> logits;        ///< [rows, vocabulary]
  std::vector<float> draft_logits;  ///< [rows, vocabulary], empty without draft
};

/// `progress(tokens done)` is called after every step.
/// Errors  those of the model; invalid_argument for positions or chunks outside the ids; data_loss for logits that are not finite.
Result<LogitsTable> compute_logits(engine::Engine& engine, const LogitsJob& job, base::FunctionRef<void(int64_t)> progress);

/// Positions as given on a command line: negative ones count from the end. Errors: invalid_argument naming the position. Result ascending, without repeats.
Result<std::vector<int64_t>> resolve_positions(std::span<const int64_t> positions, int64_t length);

/// Encodes pictures and assigns them, in order, to the runs of placeholders in `ids`.
/// `patches`: all pictures' patches one after the other; `grids` [n][3]: steps, height, width in patches.
/// Errors: invalid_argument if counts do not match.
Result<std::vector<engine::PromptImage>> place_images(engine::Engine& engine, std::span<const TokenId> ids, std::span<const float> patches,
                                                      std::span<const std::array<int64_t, 3>> grids);

}  // namespace lathe::evaluate
