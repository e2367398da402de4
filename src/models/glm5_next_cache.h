#pragma once
// The cache families of a glm5_next model, and their planes in a store as the ops want to see them.

#include <string>
#include <vector>

#include "cache/store.h"
#include "models/glm5_next_config.h"
#include "models/glm5_next_plan.h"
#include "models/model.h"
#include "models/replay.h"
#include "ops/batch.h"

namespace lathe::models {

/// Names of the token caches of a DSA layer; the draft layer has its own, because they end at another position than the text layers'.
struct DsaFamilyNames {
  std::string latent, keys, tail;
};
extern const std::string kKdaStateFamily;    ///< "kda.state": candidates [H, K, V]; by replay one of them, and the rings
extern const std::string kKdaConvFamily;     ///< "kda.conv": ring of raw q|k|v rows, position p in ring row p mod R
extern const DsaFamilyNames kDsaFamilies;    ///< "mla.latent" per token, "index.keys" per pool, "index.tail": ring of normalised key and gate rows
extern const DsaFamilyNames kDraftFamilies;  ///< "draft.…"

/// Whether a model can run with these cache formats.
/// Errors  invalid_argument (those of check_cache_formats); unimplemented: states kept by replay, token ranges with rounded states or windows.
Result<void> check_glm5_next_caches(const ModelOptions& options);

/// Whether and how the model replays. The second one is for options that passed the first.
/// Errors  invalid_argument (a period that the rings cannot hold, a period without replay); unimplemented (gates without a lower bound).
Result<void> check_glm5_next_replay(const Glm5NextConfig& config, const ModelOptions& options);
ReplayPlan glm5_next_replay(const Glm5NextConfig& config, const ModelOptions& options);
ReplayBytes glm5_next_replay_bytes(const Glm5NextConfig& config, const CacheFormats& formats);

/// How often the prefill rounds states in a narrow format: FP16 at every token, as plain decoding does; INT8, which would lose what single tokens add, every 16,
/// and where a piece of a prompt ends. 0: nothing is rounded.
int64_t glm5_next_keep_states_every(const CacheFormats& formats);

/// Families of every layer that this rank holds something of, in the formats of options.cache_formats(); codes have a plane of scales. Layers that share a selection have latents only.
std::vector<cache::LayerFamily> glm5_next_cache_families(const Glm5NextConfig& config, const Glm5NextShards& shards, const ModelOptions& options);

/// Names of the families of `layer` (`layers`: the draft layer).
std::vector<std::string> glm5_next_layer_families(const Glm5NextConfig& config, const Glm5NextShards& shards, int64_t layer);

/// Candidate states as the recurrence takes them.
struct KdaStateViews {
  View states;  ///< f32, f16 or i8 [rows, H, K, V]
  View scales;  ///< of i8: f32 [rows, H, V]
};
KdaStateViews kda_state_views(const cache::Store& store, int32_t layer, const KdaConfig& config, int64_t heads);
/// The rings beside states that are kept by replay.
ops::ReplayRing kda_ring_view(const cache::Store& store, int32_t layer, const KdaConfig& config, int64_t heads);
/// f32 or bf16 [slots, R, channels].
View kda_conv_view(const cache::Store& store, int32_t layer);
/// [slots, R, 2, dx].
View index_tail_view(const cache::Store& store, int32_t layer, const std::string& family, int64_t head_dim);
/// Blocks of a token or pool family, with their scales; `table` [S, blocks].
ops::Paged paged_view(const cache::Store& store, int32_t layer, const std::string& family, const View& table);

}  // namespace lathe::models
