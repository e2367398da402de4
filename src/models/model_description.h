#pragma once
// What is known of a model before it runs, in a form that names no family: for `inspect`.

#include <cstdint>
#include <string>
#include <vector>

#include "cache/family.h"
#include "config/json.h"
#include "models/model.h"

namespace lathe::models {

/// The point at which work and bytes are counted.
struct DescribeOptions {
  int64_t context = 0;           ///< tokens of a sequence; 0: as many as the model was made for
  bool context_at_most = false;  ///< a model made for less than `context` is described at what it was made for; else that is an error
  int64_t batch = 1;             ///< sequences that decode together
  int64_t chunk_tokens = 512;    ///< a prompt is read in chunks of so many tokens
  ModelOptions model;            ///< precision, path of prefill, tentative tokens, draft
};

struct ModelDescription {
  ModelInfo info;        ///< of the config; counts of loaded bytes are 0
  int64_t context = 0;   ///< at which it is described
  bool weights = false;  ///< sizes come from stored tensors; else from the config alone
  std::vector<std::string> warnings;
  std::vector<cache::LayerFamily> cache_families;
  /// An object of sections: dimensions, quantisation (a sentence), cache_formats (as `--cache-dtype` takes them), layers [list], kinds, total (tensors, fp8_matrices, int8_matrices, parameters, bytes), flops_decode, flops_prefill (per_token,
  /// parts), decode_step_bytes, prefill_token_bytes.
  config::Json facts;
};

/// What a directory or a config file tells of its model. Errors: as load_model; invalid_argument (a context beyond the model's).
Result<ModelDescription> describe_model(const std::string& path, const DescribeOptions& options);

}  // namespace lathe::models
