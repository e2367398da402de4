#include "models/glm5_next_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "tensor/quantised.h"

namespace lathe::models {

const std::string kKdaStateFamily = "kda.state";
const std::string kKdaConvFamily = "kda.conv";
const DsaFamilyNames kDsaFamilies = {.latent = "mla.latent", .keys = "index.keys", .tail = "index.tail"};
const DsaFamilyNames kDraftFamilies = {.latent = "draft.latent", .keys = "draft.keys", .tail = "draft.tail"};

namespace {

using cache::Family;
using cache::LayerFamily;
using cache::Unit;

/// What decides the families of a model on one rank.
struct Sizes {
  const Glm5NextConfig& config;
  const Glm5NextShards& shards;
  const ModelOptions& options;
  CacheFormats formats;
};

/// Of a ring's keys and values.
struct RingFormats {
  DType keys = DType::kF32, values = DType::kF32;
};
/// BF16 keys would cost more accuracy than FP16 states do, and save 3 % of their traffic.
RingFormats ring_formats(DType state) { return state == DType::kI8 ? RingFormats{.keys = DType::kBF16, .values = DType::kF32} : RingFormats{}; }

/// Rows of a token or pool family. They are rounded when they are written and only ever read from the cache: no format changes an equality.
std::vector<cache::Plane> row_planes(const char* name, DType dtype, int64_t width) {
  std::vector<cache::Plane> planes = {{name, dtype, width}};
  if (tensor::is_code(dtype)) planes.push_back({"scale", DType::kF32, tensor::runs_of(width)});
  return planes;
}

/// States of all heads: [H, K, V], and of i8 a scale for each column [H, V]. One for each tentative token and one more; by replay one, and the rings.
std::vector<cache::Plane> state_planes(const Sizes& sizes, const ReplayPlan& replay) {
  const int64_t heads = sizes.shards.kda_heads, width = sizes.config.kda.head_dim;
  const int64_t states = replay.on() ? 1 : sizes.options.tentative_max + 1;
  std::vector<cache::Plane> planes = {{"state", sizes.formats.state, heads * width * width, states}};
  if (tensor::is_code(sizes.formats.state)) planes.push_back({"scale", DType::kF32, heads * width, states});
  if (!replay.on()) return planes;
  // Rows of another period mean something else: the name is part of the layout.
  const std::string rule =
      replay.anchor > 0 ? fmt::format(", period {}, anchor {}", replay.period, replay.anchor) : fmt::format(", period {}", replay.period);
  const RingFormats ring = ring_formats(sizes.formats.state);
  planes.push_back({"ring keys" + rule, ring.keys, heads * width, replay.ring_rows()});
  planes.push_back({"ring values", ring.values, heads * width, replay.ring_rows()});
  planes.push_back({"ring decay", DType::kF32, heads * width, replay.decay_rows()});
  return planes;
}

void add_kda(std::vector<LayerFamily>& out, int32_t layer, const Sizes& sizes) {
  const auto& [config, shards, options, formats] = sizes;
  if (shards.kda_heads == 0) return;
  const KdaConfig& kda = config.kda;
  tensor::Shard state_shard = shards.plan.kda_heads;
  state_shard.unit = kda.head_dim * kda.head_dim;
  const ReplayPlan replay = glm5_next_replay(config, options);
  out.push_back({layer, Family{.name = kKdaStateFamily,
                               .unit = Unit::kSequence,
                               .planes = state_planes(sizes, replay),
                               .candidates = !replay.on(),
                               .trails = replay.on(),
                               .shard = state_shard}});
  // A dropped token leaves its row in the ring: longer by that many, the rows before it survive.
  const int64_t ring = std::max<int64_t>(kda.conv_width - 1 + options.tentative_max, 1);
  out.push_back({layer, Family{.name = kKdaConvFamily,
                               .unit = Unit::kSequence,
                               .planes = {{"window", formats.conv, 3 * shards.kda_heads * kda.head_dim, ring}},
                               .shard = shards.plan.kda_heads}});
}

void add_latents(std::vector<LayerFamily>& out, int32_t layer, const DsaFamilyNames& names, const Sizes& sizes) {
  out.push_back({layer, Family{.name = names.latent,
                               .unit = Unit::kToken,
                               .planes = row_planes("latent", sizes.formats.latent, sizes.config.mla.kv_lora_rank),
                               .shard = {}}});
}

void add_index(std::vector<LayerFamily>& out, int32_t layer, const DsaFamilyNames& names, const Sizes& sizes) {
  const IndexerConfig& index = sizes.config.indexer;
  out.push_back({layer, Family{.name = names.keys,
                               .unit = Unit::kPool,
                               .tokens_per_unit = index.kpool,
                               .planes = row_planes("key", sizes.formats.index, index.head_dim),
                               .shard = {}}});
  const int64_t ring = std::max<int64_t>(index.kpool - 1 + sizes.options.tentative_max, 1);
  out.push_back(
      {layer, Family{.name = names.tail, .unit = Unit::kSequence, .planes = {{"raw", DType::kF32, 2 * index.head_dim, ring}}, .shard = {}}});
}

int64_t ring_rows(const cache::Store& store, int32_t layer, const std::string& family) {
  return store.family(layer, family).planes.front().rows_per_unit;
}

}  // namespace

Result<void> check_glm5_next_caches(const ModelOptions& options) {
  const CacheFormats formats = options.cache_formats();
  LATHE_TRY_VOID(check_cache_formats(formats));
  // Ranks hand on states and raw rows as they are.
  if (options.token_ranges && (formats.state != DType::kF32 || formats.conv != DType::kF32)) {
    return err(Code::kUnimplemented, "cache formats {}: token ranges take states and windows of fp32 alone", cache_formats_text(formats));
  }
  return {};
}

Result<void> check_glm5_next_replay(const Glm5NextConfig& config, const ModelOptions& options) {
  const ReplayOptions& replay = options.replay;
  if (options.cache_formats().keeping == StateKeeping::kPlain) {
    if (replay.period == 0 && replay.anchor == 0) return {};
    return err(Code::kInvalidArgument, "replay period {} and anchor {} for states that are kept as they are: expected a state format with +replay",
               replay.period, replay.anchor);
  }
  if (!config.kda.gate_lower_bound) return err(Code::kUnimplemented, "replay needs gates with a lower bound, the model has softplus gates");
  const float bound = *config.kda.gate_lower_bound;
  const int32_t longest = longest_replay_period(bound);
  if (replay.period < 0 || replay.period > longest || replay.anchor < 0) {
    return err(Code::kInvalidArgument,
               "replay period {} and anchor {}: expected a period of 0 to {} for gates down to {}, and an anchor of at least 0", replay.period,
               replay.anchor, longest, bound);
  }
  return {};
}

ReplayBytes glm5_next_replay_bytes(const Glm5NextConfig& config, const CacheFormats& formats) {
  const auto bytes_of = [](DType dtype) { return static_cast<int64_t>(tensor::dtype_bytes(dtype)); };
  const RingFormats ring = ring_formats(formats.state);
  const int64_t width = config.kda.head_dim;
  return {.state = width * width * bytes_of(formats.state) + (tensor::is_code(formats.state) ? width * bytes_of(DType::kF32) : 0),
          .entry = width * (bytes_of(ring.keys) + bytes_of(ring.values)),
          .decay = width * bytes_of(DType::kF32)};
}

ReplayPlan glm5_next_replay(const Glm5NextConfig& config, const ModelOptions& options) {
  const CacheFormats formats = options.cache_formats();
  ReplayPlan plan{.window = options.tentative_max + 1};
  if (formats.keeping == StateKeeping::kPlain) return plan;
  const int32_t best = best_replay_period(glm5_next_replay_bytes(config, formats), config.kda.gate_lower_bound.value_or(-5.0f));
  plan.period = options.replay.period > 0 ? options.replay.period : best;
  plan.anchor = options.replay.anchor;
  return plan;
}

int64_t glm5_next_keep_states_every(const CacheFormats& formats) {
  switch (formats.state) {
    case DType::kF32: return 0;
    case DType::kI8: return 16;
    default: return 1;
  }
}

std::vector<LayerFamily> glm5_next_cache_families(const Glm5NextConfig& config, const Glm5NextShards& shards, const ModelOptions& options) {
  const Sizes sizes{.config = config, .shards = shards, .options = options, .formats = options.cache_formats()};
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

KdaStateViews kda_state_views(const cache::Store& store, int32_t layer, const KdaConfig& config, int64_t heads) {
  const View plane = store.plane(layer, kKdaStateFamily);
  KdaStateViews out{.states = plane.reshape({plane.dim(0), heads, config.head_dim, config.head_dim}), .scales = {}};
  if (tensor::is_code(plane.dtype)) out.scales = store.plane(layer, kKdaStateFamily, 1).reshape({plane.dim(0), heads, config.head_dim});
  return out;
}

ops::ReplayRing kda_ring_view(const cache::Store& store, int32_t layer, const KdaConfig& config, int64_t heads) {
  const cache::Family& family = store.family(layer, kKdaStateFamily);
  const int first = tensor::is_code(family.planes.front().dtype) ? 2 : 1;
  const auto ring = [&](int plane) {
    const View rows = store.plane(layer, kKdaStateFamily, plane);
    const int64_t each = family.planes[static_cast<size_t>(plane)].rows_per_unit;
    return rows.reshape({rows.dim(0) / each, each, heads, config.head_dim});
  };
  return {.keys = ring(first), .values = ring(first + 1), .decay = ring(first + 2)};
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
  const View pool = store.plane(layer, family);
  return {.pool = pool,
          .table = table,
          .block_rows = store.block_rows(store.family(layer, family)),
          .scales = tensor::is_code(pool.dtype) ? store.plane(layer, family, 1) : View{}};
}

}  // namespace lathe::models
