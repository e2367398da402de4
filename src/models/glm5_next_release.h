#pragma once
// The published config of the FP8 release (spec/glm5_next.md §1.1–1.4), for checkpoints and tests with its dimensions.

#include "config/json.h"

namespace lathe::models {

/// config.json: 45 layers, quantization_config with names that lack `language_model.`.
config::Json glm5_next_release();

}  // namespace lathe::models
