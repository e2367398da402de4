#include "models/glm5_next_plan.h"

namespace lathe::models {
namespace {

using tensor::Shard;
using tensor::ShardKind;

int64_t units(int64_t elements, int64_t unit) { return (elements + unit - 1) / unit; }

/// What a shard cuts, and whether somebody is there to sum with.
struct Whole {
  const char* name = "";
  int64_t total = 0;
  int64_t unit = 1;
  bool has_group = false;
};

Result<void> resolve(Shard& shard, const Whole& whole) {
  const auto& [name, total, unit, has_group] = whole;
  if (shard.kind == ShardKind::kReplicated) {
    if (shard.total != 0 && !shard.whole())
      return err(Code::kInvalidArgument, "shard '{}' is replicated but holds [{}, {}) of {}", name, shard.begin, shard.end, shard.total);
    shard = Shard{.kind = ShardKind::kReplicated, .axis = 0, .unit = unit, .begin = 0, .end = total, .total = total};
    return {};
  }
  if (shard.total != total) return err(Code::kInvalidArgument, "shard '{}' cuts {} units, the model has {}", name, shard.total, total);
  if (shard.begin < 0 || shard.begin > shard.end || shard.end > total) {
    return err(Code::kInvalidArgument, "shard '{}' holds [{}, {}) of {} units", name, shard.begin, shard.end, total);
  }
  if (!has_group && !shard.whole())
    return err(Code::kInvalidArgument, "shard '{}' holds [{}, {}) of {} units and has no group to sum with", name, shard.begin, shard.end, total);
  shard.unit = unit;
  return {};
}

}  // namespace

Result<Glm5NextShards> resolve_shards(const Glm5NextConfig& config, const ShardPlan& plan, const Groups& groups) {
  Glm5NextShards out{.plan = plan};
  ShardPlan& p = out.plan;
  const int64_t shared = config.moe.shared_intermediate();
  LATHE_TRY_VOID(resolve(p.kda_heads, {"kda_heads", config.kda.heads, 1, groups.tp_kda != nullptr}));
  LATHE_TRY_VOID(resolve(p.mla_heads, {"mla_heads", config.mla.heads, 1, groups.attn != nullptr}));
  LATHE_TRY_VOID(resolve(p.dense_channels, {"dense_channels", units(config.intermediate, kChannelUnit), kChannelUnit, groups.tp_ffn != nullptr}));
  LATHE_TRY_VOID(resolve(p.shared_channels, {"shared_channels", units(shared, kChannelUnit), kChannelUnit, groups.tp_ffn != nullptr}));
  LATHE_TRY_VOID(resolve(p.experts, {"experts", config.moe.experts, 1, groups.ep != nullptr}));
  // Logits are not summed: a vocabulary range needs no group here.
  LATHE_TRY_VOID(resolve(p.vocabulary, {"vocabulary", units(config.vocab, kVocabularyUnit), kVocabularyUnit, true}));
  out.kda_heads = p.kda_heads.units();
  out.mla_heads = p.mla_heads.units();
  out.dense_begin = p.dense_channels.element_begin(config.intermediate);
  out.dense_end = p.dense_channels.element_end(config.intermediate);
  out.shared_begin = p.shared_channels.element_begin(shared);
  out.shared_end = p.shared_channels.element_end(shared);
  out.expert_begin = p.experts.begin;
  out.expert_end = p.experts.end;
  out.vocabulary_begin = p.vocabulary.element_begin(config.vocab);
  out.vocabulary_end = p.vocabulary.element_end(config.vocab);
  return out;
}

ShardPlan default_shard_plan(const Glm5NextConfig& config, int rank, int ranks) {
  const auto cut = [&](ShardKind kind, int64_t unit, int64_t total) {
    return total > 1 && ranks > 1 ? tensor::default_shard({.kind = kind, .unit = unit, .total = total}, rank, ranks) : Shard{};
  };
  return {.kda_heads = cut(ShardKind::kHead, 1, config.kda.heads),
          .mla_heads = cut(ShardKind::kHead, 1, config.mla.heads),
          .dense_channels = cut(ShardKind::kRow, kChannelUnit, units(config.intermediate, kChannelUnit)),
          .shared_channels = cut(ShardKind::kRow, kChannelUnit, units(config.moe.shared_intermediate(), kChannelUnit)),
          .experts = cut(ShardKind::kExpert, 1, config.moe.experts),
          .vocabulary = cut(ShardKind::kVocabulary, kVocabularyUnit, units(config.vocab, kVocabularyUnit))};
}

}  // namespace lathe::models
