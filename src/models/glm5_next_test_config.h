#pragma once
// For tests: configs written from the published values (spec/glm5_next.md §1.1–1.4), and changes to them.

#include <string_view>

#include "config/json.h"

namespace lathe::models {

/// The FP8 release: 45 layers, quantization_config with names that lack `language_model.`.
config::Json release_config();

/// The object `section` ("text_config") of a config, to change it.
config::Json& section(config::Json& config, std::string_view name);

/// Removes a key; false if it was not there.
bool erase(config::Json& object, std::string_view key);

}  // namespace lathe::models
