#include "models/glm5_next_cache.h"

#include <algorithm>

namespace lathe::models {

const std::string kKdaStateFamily = "kda.state";
const std::string kKdaConvFamily = "kda.conv";
const DsaFamilyNames kDsaFamilies = {.latent = "mla.latent", .keys = "index.keys", .tail = "index.tail"};
const DsaFamilyNames kDraftFamilies = {.latent = "draft.latent", .keys = "draft.keys", .tail = "draft.tail"};

namespace {

using cache::Family;
using cache::LayerFamily;
using cache::Unit;

/// Latents and pooled keys are rounded when they are written and only ever read from the cache: BF16 there changes no equality.
DType cache_dtype(const ModelOptions& options) { return options.precision == Precision::kExact ? DType::kF32 : DType::kBF16; }

/// What decides the families of a model on one rank.
struct Sizes {
  const Glm5NextConfig& config;
  const Glm5NextShards& shards;
  const ModelOptions& options;
};

void add_kda(std::vector<LayerFamily>& out, int32_t layer, const Sizes& sizes) {
  const auto& [config, shards, options] = sizes;
  if (shards.kda_heads == 0) return;
  const KdaConfig& kda = config.kda;
  tensor::Shard state_shard = shards.plan.kda_heads;
  state_shard.unit = kda.head_dim * kda.head_dim;
  out.push_back({layer, Family{.name = kKdaStateFamily,
                               .unit = Unit::kSequence,
                               .planes = {{"state", DType::kF32, shards.kda_heads * kda.head_dim * kda.head_dim, options.tentative_max + 1}},
                               .candidates = true,
                               .shard = state_shard}});
  // A dropped token leaves its row in the ring: longer by that many, the rows before it survive.
  const int64_t ring = std::max<int64_t>(kda.conv_width - 1 + options.tentative_max, 1);
  out.push_back({layer, Family{.name = kKdaConvFamily,
                               .unit = Unit::kSequence,
                               .planes = {{"window", DType::kF32, 3 * shards.kda_heads * kda.head_dim, ring}},
                               .shard = shards.plan.kda_heads}});
}

void add_latents(std::vector<LayerFamily>& out, int32_t layer, const DsaFamilyNames& names, const Sizes& sizes) {
  const std::vector<cache::Plane> planes = {{"latent", cache_dtype(sizes.options), sizes.config.mla.kv_lora_rank}};
  out.push_back({layer, Family{.name = names.latent, .unit = Unit::kToken, .planes = planes, .shard = {}}});
}

void add_index(std::vector<LayerFamily>& out, int32_t layer, const DsaFamilyNames& names, const Sizes& sizes) {
  const ModelOptions& options = sizes.options;
  const DType dtype = cache_dtype(options);
  const IndexerConfig& index = sizes.config.indexer;
  out.push_back(
      {layer,
       Family{.name = names.keys, .unit = Unit::kPool, .tokens_per_unit = index.kpool, .planes = {{"key", dtype, index.head_dim}}, .shard = {}}});
  const int64_t ring = std::max<int64_t>(index.kpool - 1 + options.tentative_max, 1);
  out.push_back(
      {layer, Family{.name = names.tail, .unit = Unit::kSequence, .planes = {{"raw", DType::kF32, 2 * index.head_dim, ring}}, .shard = {}}});
}

int64_t ring_rows(const cache::Store& store, int32_t layer, const std::string& family) {
  return store.family(layer, family).planes.front().rows_per_unit;
}

}  // namespace

std::vector<LayerFamily> glm5_next_cache_families(const Glm5NextConfig& config, const Glm5NextShards& shards, const ModelOptions& options) {
  const Sizes sizes{.config = config, .shards = shards, .options = options};
  std::vector<LayerFamily> out;
  for (int64_t i = 0; i < config.layers; ++i) {
    const auto layer = static_cast<int32_t>(i);
    if (config.mixers[static_cast<size_t>(i)] == MixerKind::kKda) {
      add_kda(out, layer, sizes);
    } else {
      add_latents(out, layer, kDsaFamilies, sizes);
      if (config.indexers[static_cast<size_t>(i)] == IndexerKind::kFull) add_index(out, layer, kDsaFamilies, sizes);
    }
  }
  if (config.draft_layer && options.draft) {
    add_latents(out, static_cast<int32_t>(config.layers), kDraftFamilies, sizes);
    add_index(out, static_cast<int32_t>(config.layers), kDraftFamilies, sizes);
  }
  return out;
}

std::vector<std::string> glm5_next_layer_families(const Glm5NextConfig& config, const Glm5NextShards& shards, int64_t layer) {
  if (layer == config.layers) return {kDraftFamilies.latent, kDraftFamilies.keys, kDraftFamilies.tail};
  if (config.mixers[static_cast<size_t>(layer)] == MixerKind::kKda) {
    if (shards.kda_heads == 0) return {};
    return {kKdaStateFamily, kKdaConvFamily};
  }
  if (config.indexers[static_cast<size_t>(layer)] == IndexerKind::kFull) return {kDsaFamilies.latent, kDsaFamilies.keys, kDsaFamilies.tail};
  return {kDsaFamilies.latent};
}

View kda_state_view(const cache::Store& store, int32_t layer, const KdaConfig& config, int64_t heads) {
  const View plane = store.plane(layer, kKdaStateFamily);
  return plane.reshape({plane.dim(0), heads, config.head_dim, config.head_dim});
}

View kda_conv_view(const cache::Store& store, int32_t layer) {
  const View plane = store.plane(layer, kKdaConvFamily);
  const int64_t ring = ring_rows(store, layer, kKdaConvFamily);
  return plane.reshape({plane.dim(0) / ring, ring, plane.dim(1)});
}

View index_tail_view(const cache::Store& store, int32_t layer, const std::string& family, int64_t head_dim) {
  const View plane = store.plane(layer, family);
  const int64_t ring = ring_rows(store, layer, family);
  return plane.reshape({plane.dim(0) / ring, ring, 2, head_dim});
}

ops::Paged paged_view(const cache::Store& store, int32_t layer, const std::string& family, const View& table) {
  return {.pool = store.plane(layer, family), .table = table, .block_rows = store.block_rows(store.family(layer, family))};
}

}  // namespace lathe::models
