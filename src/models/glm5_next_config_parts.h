#pragma once
// The parts of a glm5_next config.json and the bounds they share. Internal to the family.

#include <string>

#include "config/json.h"
#include "models/config_reader.h"
#include "models/glm5_next_config.h"

namespace lathe::models {

// Bounds far beyond every real model, so low that a product of any three of them fits int64.
inline constexpr int64_t kMaxWidth = int64_t{1} << 20;
inline constexpr int64_t kMaxVocab = int64_t{1} << 24;
inline constexpr int64_t kMaxLayers = 1 << 10;
inline constexpr int64_t kMaxHeads = 1 << 14;
inline constexpr int64_t kMaxHeadDim = 1 << 14;
inline constexpr int64_t kMaxExperts = 1 << 14;
inline constexpr int64_t kMaxSmall = 64;  // streams, patch edges in merge units, channels
inline constexpr int64_t kMaxTopk = int64_t{1} << 24;
inline constexpr int64_t kMaxPositions = int64_t{1} << 31;
inline constexpr FloatRange kEpsRange = {1e-30, 0.1};
inline constexpr FloatRange kLimitRange = {1e-6, 1e6};

/// Fills everything that the text part says. `section` stands before keys in messages: "text_config." or "".
Result<void> read_text_config(const config::Json& json, const std::string& section, ParsedConfig& out);

/// The announced dtype; the stored one of each tensor wins.
DType read_dtype(ConfigReader& reader, DType fallback);

}  // namespace lathe::models
