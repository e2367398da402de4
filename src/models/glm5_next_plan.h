#pragma once
// Which part of a glm5_next model a rank holds, and the sizes that follow from it.

#include <cstdint>

#include "base/result.h"
#include "models/glm5_next_config.h"
#include "models/model.h"

namespace lathe::models {

/// Channels of one leaf of the dense and shared down projections, and rows of one unit of the vocabulary.
inline constexpr int64_t kChannelUnit = 128;
inline constexpr int64_t kVocabularyUnit = 128;

/// A checked ShardPlan: every shard has its total. A shard of kind kReplicated is whole and its sums are taken by this rank alone;
/// any other kind takes part in its group's collectives, even where this rank happens to hold everything or nothing.
struct Glm5NextShards {
  ShardPlan plan;
  /// Elements of the cut axes that this rank holds.
  int64_t kda_heads = 0, mla_heads = 0;
  int64_t dense_begin = 0, dense_end = 0;
  int64_t shared_begin = 0, shared_end = 0;
  int64_t expert_begin = 0, expert_end = 0;
  int64_t vocabulary_begin = 0, vocabulary_end = 0;
};

/// Completes and checks `plan` against the model and the groups.
/// Errors  invalid_argument: a total that is not the model's, a range outside it, a cut without a group.
Result<Glm5NextShards> resolve_shards(const Glm5NextConfig& config, const ShardPlan& plan, const Groups& groups);

/// The default cut for rank `rank` of `ranks` (spec parallel §2.2): everything that has more than one unit is cut.
ShardPlan default_shard_plan(const Glm5NextConfig& config, int rank, int ranks);

}  // namespace lathe::models
