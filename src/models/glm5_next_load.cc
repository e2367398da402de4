// Loading: config, checkpoint, weights on the device, buffers, and the dry passes that plan every op call.

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "models/glm5_next_tensors.h"
#include "models/glm5_next_text.h"
#include "models/glm5_next_totals.h"

namespace lathe::models {
namespace {

/// Stands in for the other ranks while a range is planned: wants everything, moves nothing.
class PlanRanges final : public StepHooks, public RangeExchange {
 public:
  Result<void> before_layer(int32_t, std::span<const std::string>) override { return {}; }
  Result<void> after_layer(int32_t, std::span<const std::string>) override { return {}; }
  void failed(const Error&) override {}  // the plan says it
  RangeExchange* ranges() override { return this; }
  Result<void> conv_halo(const RangeSite&, const View&) override { return {}; }
  bool wants_pair(const RangeSite&) override { return true; }
  Result<void> kda_begin(const RangeSite&, const View&, const View&) override { return {}; }
  Result<void> kda_end(const RangeSite&) override { return {}; }
  Result<void> index_halo(const RangeSite&) override { return {}; }
  Result<void> tokens_written(const RangeSite&) override { return {}; }
};

}  // namespace

Glm5NextModel::Glm5NextModel(backend::Dispatch& dispatch, const ModelOptions& options, Glm5NextConfig config, Glm5NextShards shards)
    : dispatch_(dispatch), options_(options), config_(std::move(config)), shards_(std::move(shards)) {
  options_.draft = options.draft && config_.draft_layer;
  options_.vision = options.vision && config_.vision.has_value();
  options_.max_batch_tokens = std::min(options.max_batch_tokens, config_.max_positions);
  const auto cut = [](const tensor::Shard& shard, backend::Group* group) {
    const bool is_cut = shard.kind != tensor::ShardKind::kReplicated && group != nullptr;
    return Cut{.cut = is_cut,
               .begin = shard.begin,
               .end = shard.end,
               .total = shard.total,
               .nodes = is_cut ? tensor::tree_cover(shard.total, shard.begin, shard.end) : std::vector<tensor::TreeNode>{},
               .group = group};
  };
  kda_cut_ = cut(shards_.plan.kda_heads, options.groups.tp_kda);
  mla_cut_ = cut(shards_.plan.mla_heads, options.groups.attn);
  dense_cut_ = cut(shards_.plan.dense_channels, options.groups.tp_ffn);
  shared_cut_ = cut(shards_.plan.shared_channels, options.groups.tp_ffn);
  expert_cut_ = cut(shards_.plan.experts, options.groups.ep);
  for (const Cut* one : {&kda_cut_, &mla_cut_, &dense_cut_, &shared_cut_, &expert_cut_}) {
    if (one->cut && std::find(sum_groups_.begin(), sum_groups_.end(), one->group) == sum_groups_.end()) sum_groups_.push_back(one->group);
  }
  layer_sites_.reserve(static_cast<size_t>(config_.layers));
  for (int32_t layer = 0; layer < config_.layers; ++layer) layer_sites_.emplace_back(layer);
  if (options_.draft) draft_sites_ = std::make_unique<DraftSites>(static_cast<int32_t>(config_.layers));
  set_site_heads();
  for (int64_t layer = 0; layer <= config_.layers; ++layer) layer_families_.push_back(glm5_next_layer_families(config_, shards_, layer));
}

void Glm5NextModel::set_site_heads() {
  const backend::OpRange kda{shards_.plan.kda_heads.begin, shards_.plan.kda_heads.end};
  const backend::OpRange mla{shards_.plan.mla_heads.begin, shards_.plan.mla_heads.end};
  const backend::OpRange index{0, config_.indexer.heads};
  for (LayerSites& sites : layer_sites_) sites.set_heads(kda, mla, index);
  if (draft_sites_ == nullptr) return;
  for (LayerSites* sites : {&draft_sites_->block, &draft_sites_->step_block}) sites->set_heads(kda, mla, index);
}

Result<std::unique_ptr<Model>> Glm5NextModel::load(const std::string& directory, backend::Dispatch& dispatch, const ModelOptions& options) {
  if (options.max_batch_tokens < 1 || options.tentative_max < 0) {
    return err(Code::kInvalidArgument, "model options: max_batch_tokens {}, tentative_max {}; expected at least 1 and 0", options.max_batch_tokens,
               options.tentative_max);
  }
  LATHE_TRY_VOID(check_glm5_next_caches(options));
  LATHE_TRY(ParsedConfig parsed, read_glm5_next_config(directory));
  for (const std::string& warning : parsed.warnings) base::log(base::LogLevel::kWarning, "{}", warning);
  LATHE_TRY_VOID(check_glm5_next_replay(parsed.config, options));
  LATHE_TRY(Glm5NextShards shards, resolve_shards(parsed.config, options.shards, options.groups));
  std::unique_ptr<Glm5NextModel> model(new Glm5NextModel(dispatch, options, std::move(parsed.config), std::move(shards)));
  LATHE_TRY_VOID(model->load_weights(directory));
  if (auto planned = model->plan(); !planned) {
    // A format that nobody asked for is not the reason.
    const std::string caches = options.caches ? fmt::format(" with caches {}", cache_formats_text(*options.caches)) : "";
    return base::forward_error(planned, directory + caches);
  }
  return std::unique_ptr<Model>(std::move(model));
}

Result<void> Glm5NextModel::load_weights(const std::string& directory) {
  Glm5NextWeights bound;
  if (options_.weights) {
    LATHE_TRY(checkpoint_, base::file_content(weights::Checkpoint::open(directory)));
    LATHE_TRY(bound, base::file_content(bind_glm5_next(config_, *checkpoint_)));
  } else {
    LATHE_TRY(zeros_, ZeroBytes::for_config(config_));
    bound = weights_from_config(config_, zeros_.data());
  }
  choose_compute(bound);
  decode_bytes_ = decode_bytes(config_, totals_from_weights(config_, bound), options_.cache_formats());
  if (!options_.draft) bound.mtp.reset();
  if (!options_.vision) bound.vision.reset();
  LATHE_TRY(weights_, place_weights(config_, shards_, std::move(bound), device()));
  if (weights_.bound.vision) {
    vision_ = std::make_unique<Glm5NextVision>(*config_.vision, *weights_.bound.vision, weights_.downsample, compute_, dispatch_);
  }
  const int64_t rows = options_.max_batch_tokens;
  const int64_t width = config_.hidden;
  LATHE_TRY(hidden_memory_, backend::Buffer::create(device(), rows * width * 4));
  hidden_ = tensor::make_view(hidden_memory_.data(), DType::kF32, {rows, width});
  if (!options_.draft) return {};
  const int64_t pools = config_.indexer.topk_pools();
  LATHE_TRY(draft_memory_, backend::Buffer::create(device(), 2 * rows * (width + pools) * 4));
  float* const memory = static_cast<float*>(draft_memory_.data());
  for (int64_t i = 0; i < 2; ++i) {
    draft_hidden_[static_cast<size_t>(i)] = tensor::make_view(memory + i * rows * width, DType::kF32, {rows, width});
    draft_selection_[static_cast<size_t>(i)] = tensor::make_view(memory + 2 * rows * width + i * rows * pools, DType::kI32, {rows, pools});
  }
  return {};
}

void Glm5NextModel::choose_compute(const Glm5NextWeights& bound) {
  if (options_.precision == Precision::kExact) return;
  const bool codes = config_.quantization.int8_activations && glm5_next_int8_matrices(config_, bound) > 0;
  compute_ = codes ? ops::Compute::kInt8 : ops::Compute::kBF16;
}

Result<void> Glm5NextModel::plan() {
  const int64_t rows = options_.max_batch_tokens;
  // A store to plan against: its memory is never touched beyond one cleared slot.
  const int64_t block_tokens = config_.indexer.kpool * 16;
  LATHE_TRY(
      const std::unique_ptr<cache::Store> store,
      cache::Store::create(device(), cache_families(),
                           {.block_tokens = block_tokens, .blocks = rows / block_tokens + 2, .slots = 1, .tentative_max = options_.tentative_max}));
  arena_.measure();
  dispatch_.begin_plan();
  Result<void> passes = plan_steps(*store, rows);
  if (passes && options_.draft) passes = plan_drafts(*store, rows);
  if (passes && vision_ != nullptr) passes = vision_->plan();
  Result<void> planned = dispatch_.end_plan();
  LATHE_TRY_VOID(planned);
  LATHE_TRY_VOID(passes);
  LATHE_TRY_VOID(arena_.reserve(device()));
  describe(weights_);
  return {};
}

Result<void> Glm5NextModel::plan_steps(cache::Store& store, int64_t rows) {
  const std::vector<TokenId> tokens(static_cast<size_t>(rows), 0);
  const EmbeddingRows all{.begin = 0, .rows = hidden_};
  PlanRanges ranges;
  const auto pass = [&](StepItem item, StepHooks* hooks) -> Result<void> {
    LATHE_TRY(item.sequence, store.open());
    item.tokens = tokens;
    LATHE_TRY_VOID(store.append(item.sequence, rows, item.tentative));
    LATHE_TRY_VOID(step({&item, 1}, store, hooks));
    store.close(item.sequence);
    return {};
  };
  LATHE_TRY_VOID(pass({.sequence = {}, .kind = ItemKind::kDecode, .tokens = {}, .rows = {}, .at = {}}, nullptr));
  LATHE_TRY_VOID(pass({.sequence = {}, .kind = ItemKind::kPrefill, .tokens = {}, .rows = {&all, 1}, .at = {}}, nullptr));
  if (!options_.token_ranges) return {};
  return pass({.sequence = {}, .kind = ItemKind::kPrefill, .tokens = {}, .rows = {}, .at = {}, .range = true}, &ranges);
}

Result<void> Glm5NextModel::plan_drafts(cache::Store& store, int64_t rows) {
  const std::vector<TokenId> tokens(static_cast<size_t>(rows), 0);
  const EmbeddingRows all{.begin = 0, .rows = hidden_};
  LATHE_TRY(const SequenceId sequence, store.open());
  LATHE_TRY_VOID(store.append(sequence, rows, 0));
  DraftItem item{.sequence = sequence, .kind = ItemKind::kDecode, .tokens = tokens, .rows = {}};
  LATHE_TRY_VOID(draft_prefill({&item, 1}, hidden_, store, nullptr));
  item.kind = ItemKind::kPrefill;
  item.rows = {&all, 1};
  LATHE_TRY_VOID(draft_prefill({&item, 1}, hidden_, store, nullptr));
  // One row: later steps take no more room than draft_prefill with as many.
  if (rows > 1) {
    const DraftStepItem later{.sequence = sequence, .position = 1, .origin_position = 0};
    LATHE_TRY_VOID(draft_step({&later, 1}, store, nullptr));
  }
  store.close(sequence);
  return {};
}

void Glm5NextModel::describe(const Glm5NextDeviceWeights& weights) {
  info_ = {.family = "glm5_next",
           .layers = config_.layers,
           .hidden = config_.hidden,
           .vocabulary = config_.vocab,
           .max_positions = config_.max_positions,
           .block_tokens_multiple = config_.indexer.kpool,
           .has_draft = options_.draft,
           .has_vision = vision_ != nullptr,
           .image_token = config_.tokens.image,
           .stop_tokens = config_.tokens.eos,
           .vocabulary_begin = shards_.vocabulary_begin,
           .vocabulary_end = shards_.vocabulary_end,
           .weight_bytes = weights.bytes,
           .uploaded_bytes = weights.uploaded_bytes,
           .activation_bytes = arena_.bytes() + hidden_memory_.bytes() + draft_memory_.bytes(),
           .decode_bytes = decode_bytes_};
  if (config_.vision) {
    info_.patch_values = config_.vision->patch_values();
    info_.patch_merge = config_.vision->merge;
  }
}

}  // namespace lathe::models
