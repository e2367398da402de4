#pragma once
// The parts of a glm5_next config.json and the bounds they share. Internal to the family.

#include <string>

#include "config/json.h"
#include "models/config_reader.h"
#include "models/glm5_next_config.h"

namespace lathe::models {

inline constexpr FloatRange kEpsRange = {1e-30, 0.1};
inline constexpr FloatRange kLimitRange = {1e-6, 1e6};

/// Fills everything that the text part says. `section` stands before keys in messages: "text_config." or "".
Result<void> read_text_config(const config::Json& json, const std::string& section, ParsedConfig& out);

/// The announced dtype; the stored one of each tensor wins.
DType read_dtype(ConfigReader& reader, DType fallback);

}  // namespace lathe::models
