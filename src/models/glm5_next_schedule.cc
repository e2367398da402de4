#include "models/glm5_next_schedule.h"

#include <algorithm>

namespace lathe::models {
namespace {

using base::kLimits;
using config::Json;

/// Every fourth layer is sparse: the release's rule, used only where a config says nothing.
constexpr int64_t kPeriod = 4;

std::optional<std::vector<MixerKind>> mixers_from_types(ConfigReader& text, int64_t layers) {
  const auto names = text.optional_strings({"layer_types"});
  if (!names) return std::nullopt;
  if (static_cast<int64_t>(names->size()) != layers) {
    text.fail("layer_types has {} entries, expected num_hidden_layers = {}", names->size(), layers);
    return std::nullopt;
  }
  std::vector<MixerKind> mixers;
  for (const std::string& name : *names) {
    if (name == "linear_attention") {
      mixers.push_back(MixerKind::kKda);
    } else if (name == "deepseek_sparse_attention" || name == "full_attention") {
      mixers.push_back(MixerKind::kDsa);
    } else {
      text.fail("layer_types[{}] is '{}', expected linear_attention, deepseek_sparse_attention or full_attention", mixers.size(), name);
      return std::nullopt;
    }
  }
  return mixers;
}

std::optional<std::vector<MixerKind>> mixers_from_lists(ConfigReader& text, const LayerLists& lists, int64_t layers) {
  if (!lists.kda_layers && !lists.full_layers) return std::nullopt;
  std::vector<int> kda(static_cast<size_t>(layers), 0);
  std::vector<int> full(static_cast<size_t>(layers), 0);
  const auto tally = [&](const std::optional<std::vector<int64_t>>& list, std::vector<int>& counts) {
    for (const int64_t layer : list.value_or(std::vector<int64_t>())) {
      if (layer >= layers) {
        text.fail("linear_attn_config lists layer {}, but num_hidden_layers is {}", layer, layers);
        return;
      }
      ++counts[static_cast<size_t>(layer)];
    }
  };
  tally(lists.kda_layers, kda);
  tally(lists.full_layers, full);
  if (!text.status()) return std::nullopt;
  std::vector<MixerKind> mixers;
  for (size_t layer = 0; layer < kda.size(); ++layer) {
    // One list alone says what the other would.
    if (!lists.kda_layers) kda[layer] = full[layer] == 0 ? 1 : 0;
    if (!lists.full_layers) full[layer] = kda[layer] == 0 ? 1 : 0;
    if (kda[layer] + full[layer] != 1) {
      text.fail("linear_attn_config lists layer {} {} times in kda_layers and {} times in full_attn_layers, expected once in one of them", layer,
                kda[layer], full[layer]);
      return std::nullopt;
    }
    mixers.push_back(kda[layer] == 1 ? MixerKind::kKda : MixerKind::kDsa);
  }
  return mixers;
}

void read_mixers(ConfigReader& text, const LayerLists& lists, Glm5NextConfig& config) {
  const auto types = mixers_from_types(text, config.layers);
  if (types) {
    // The lists only repeat layer_types in the release: a mistake in them must not stop a model that layer_types describes.
    std::vector<std::string> unused;
    const Json empty = Json::Object{};
    ConfigReader silent(empty, "", unused);
    const auto listed = mixers_from_lists(silent, lists, config.layers);
    if (!silent.status() || (listed && *listed != *types)) text.warn("layer_types wins over the layer lists of linear_attn_config, which disagree");
    config.mixers = *types;
    return;
  }
  if (const auto listed = mixers_from_lists(text, lists, config.layers)) {
    text.warn("layer_types is missing, taken from the layer lists of linear_attn_config");
    config.mixers = *listed;
    return;
  }
  text.warn("layer_types is missing, every fourth layer is taken as deepseek_sparse_attention");
  config.mixers.clear();
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    config.mixers.push_back(layer % kPeriod == kPeriod - 1 ? MixerKind::kDsa : MixerKind::kKda);
  }
}

void read_ffns(ConfigReader& text, Glm5NextConfig& config) {
  const auto names = text.optional_strings({"mlp_layer_types"});
  std::vector<FfnKind> from_count;
  if (text.find({"first_k_dense_replace"}) != nullptr) {
    const int64_t dense = text.required_int({"first_k_dense_replace"}, {0, config.layers});
    for (int64_t layer = 0; layer < config.layers; ++layer) from_count.push_back(layer < dense ? FfnKind::kDense : FfnKind::kMoe);
  }
  config.ffns = from_count;
  if (!names) {
    if (from_count.empty()) {
      text.fail("mlp_layer_types and first_k_dense_replace are both missing, one is needed");
    } else {
      text.warn("mlp_layer_types is missing, taken from first_k_dense_replace");
    }
    return;
  }
  if (static_cast<int64_t>(names->size()) != config.layers) {
    text.fail("mlp_layer_types has {} entries, expected num_hidden_layers = {}", names->size(), config.layers);
    return;
  }
  config.ffns.clear();
  for (const std::string& name : *names) {
    if (name != "dense" && name != "sparse") {
      text.fail("mlp_layer_types[{}] is '{}', expected dense or sparse", config.ffns.size(), name);
      return;
    }
    config.ffns.push_back(name == "dense" ? FfnKind::kDense : FfnKind::kMoe);
  }
  if (!from_count.empty() && from_count != config.ffns) text.warn("mlp_layer_types wins over first_k_dense_replace, which disagrees");
}

/// One form of the selection schedule: true where a layer reuses the selection before it.
using Shared = std::optional<std::vector<bool>>;

Shared shared_from_types(ConfigReader& text, const Glm5NextConfig& config) {
  const auto names = text.optional_strings({"indexer_types"});
  if (!names) return std::nullopt;
  std::vector<bool> shared;
  for (const std::string& name : *names) {
    if (name != "full" && name != "shared") {
      text.fail("indexer_types[{}] is '{}', expected full or shared", shared.size(), name);
      return std::nullopt;
    }
    shared.push_back(name == "shared");
  }
  if (static_cast<int64_t>(shared.size()) != config.layers) {
    text.fail("indexer_types has {} entries, expected num_hidden_layers = {}", shared.size(), config.layers);
    return std::nullopt;
  }
  return shared;
}

Shared shared_from_pattern(ConfigReader& text, const Glm5NextConfig& config) {
  const auto pattern = text.optional_string({"index_topk_pattern"});
  if (!pattern) return std::nullopt;
  if (static_cast<int64_t>(pattern->size()) != config.layers || pattern->find_first_not_of("FS") != std::string::npos) {
    text.fail("index_topk_pattern is '{}', expected {} letters F (full) or S (shared)", *pattern, config.layers);
    return std::nullopt;
  }
  std::vector<bool> shared;
  for (const char letter : *pattern) shared.push_back(letter == 'S');
  return shared;
}

Shared shared_from_frequency(ConfigReader& text, const Glm5NextConfig& config) {
  constexpr int64_t kDefaultOffset = 2;
  const bool given = text.find({"index_topk_freq"}) != nullptr;
  const bool with_offset = text.find({"index_skip_topk_offset"}) != nullptr;
  if (!given) return std::nullopt;
  const int64_t frequency = text.required_int({"index_topk_freq"}, {1, kLimits.model_schedule});
  const int64_t offset = with_offset ? text.required_int({"index_skip_topk_offset"}, {0, kLimits.model_schedule}) : kDefaultOffset;
  std::vector<bool> shared;
  for (int64_t layer = 0; layer < config.layers; ++layer) shared.push_back(std::max<int64_t>(layer - offset + 1, 0) % frequency != 0);
  return shared;
}

void read_indexers(ConfigReader& text, Glm5NextConfig& config) {
  const Shared forms[] = {shared_from_types(text, config), shared_from_pattern(text, config), shared_from_frequency(text, config)};
  constexpr const char* kFormNames[] = {"indexer_types", "index_topk_pattern", "index_topk_freq"};
  if (!text.status()) return;
  int chosen = -1;
  for (int form = 0; form < 3; ++form) {
    if (!forms[form]) continue;
    if (chosen < 0) chosen = form;
    for (size_t layer = 0; layer < config.mixers.size(); ++layer) {
      if (config.mixers[layer] == MixerKind::kDsa && (*forms[form])[layer] != (*forms[chosen])[layer]) {
        text.fail("{} and {} disagree on layer {}: {} says {}", kFormNames[chosen], kFormNames[form], layer, kFormNames[chosen],
                  (*forms[chosen])[layer] ? "shared" : "full");
        return;
      }
    }
  }
  if (chosen < 0) text.warn("indexer_types is missing, every sparse layer is taken as full");
  if (chosen > 0) text.warn("indexer_types is missing, taken from {}", kFormNames[chosen]);
  config.indexers.clear();
  for (size_t layer = 0; layer < config.mixers.size(); ++layer) {
    const bool sparse = config.mixers[layer] == MixerKind::kDsa;
    const bool shared = sparse && chosen >= 0 && (*forms[chosen])[layer];
    if (shared && (layer == 0 || config.indexers[layer - 1] != IndexerKind::kFull)) {
      text.fail("layer {} shares a selection ({}), but the layer directly before it is no full sparse layer", layer, kFormNames[chosen]);
      return;
    }
    config.indexers.push_back(!sparse ? IndexerKind::kNone : shared ? IndexerKind::kShared : IndexerKind::kFull);
  }
}

}  // namespace

void read_schedule(ConfigReader& text, const LayerLists& lists, Glm5NextConfig& config) {
  read_mixers(text, lists, config);
  read_ffns(text, config);
  if (text.status()) read_indexers(text, config);
}

}  // namespace lathe::models
