#pragma once
// generation_config.json: what a model's makers propose for sampling. The same file for every family.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "config/json.h"

namespace lathe::models {

/// Absent values stay empty.
struct GenerationDefaults {
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int64_t> top_k;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<double> presence_penalty;
  std::optional<double> frequency_penalty;
  std::optional<int64_t> max_tokens;  ///< max_new_tokens
  std::vector<TokenId> eos;
  std::vector<std::string> warnings;  ///< what the file asks for and does not get, one sentence each
};

/// Errors: invalid_argument, naming the key, its value and what was expected.
Result<GenerationDefaults> parse_generation_config(const config::Json& json);

/// Reads DIR/generation_config.json; a directory without one has no defaults. Errors: data_loss (not what it should be), those of read_file.
Result<GenerationDefaults> read_generation_config(const std::string& directory);

}  // namespace lathe::models
