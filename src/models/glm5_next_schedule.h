#pragma once
// Which layer is which: layer_types, mlp_layer_types, indexer_types and the older forms they replace (spec/glm5_next.md §1.5, §1.6, §2.9).

#include <cstdint>
#include <optional>
#include <vector>

#include "models/config_reader.h"
#include "models/glm5_next_config.h"

namespace lathe::models {

/// The lists of linear_attn_config, where it has them.
struct LayerLists {
  std::optional<std::vector<int64_t>> kda_layers;
  std::optional<std::vector<int64_t>> full_layers;
};

/// Fills config.mixers, ffns and indexers; config.layers is set. Errors go to `text`.
void read_schedule(ConfigReader& text, const LayerLists& lists, Glm5NextConfig& config);

}  // namespace lathe::models
