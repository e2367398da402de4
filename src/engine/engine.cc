#include "engine/engine.h"

#include "models/registry.h"
#ifdef LATHE_PLANTED_FAULTS
#include "backend/planted.h"
#endif

namespace lathe::engine {
namespace {

// A block of 64 tokens: large enough that tables are short, small enough that a short chat wastes little.
constexpr int64_t kBlockTokens = 64;

}  // namespace

models::ModelOptions model_options(const EngineOptions& options) {
  return {.precision = options.precision,
          .prefill_mla = options.prefill_mla,
          .max_batch_tokens = options.batch_tokens,
          .tentative_max = options.tentative_max,
          .draft = options.draft,
          .vision = options.vision,
          .caches = options.caches,
          .shards = {},
          .groups = {}};
}

cache::StoreOptions store_options(const EngineOptions& options, const models::ModelInfo& info) {
  const int64_t multiple = std::max<int64_t>(info.block_tokens_multiple, 1);
  const int64_t block = (kBlockTokens + multiple - 1) / multiple * multiple;
  const int64_t tokens = options.context_tokens + options.tentative_max;
  return {.block_tokens = block,
          .blocks = (tokens + block - 1) / block * options.sequences,
          .slots = options.sequences,
          .tentative_max = options.tentative_max,
          .keep_stale_slots = options.keep_stale_slots};
}

Result<void> Engine::load_model() {
  DraftOptions& drafts = options_.drafts;
  if (drafts.most < 0 || drafts.most > kDraftsMax)
    return err(Code::kInvalidArgument, "{} drafts a window: expected 0 to {}", drafts.most, kDraftsMax);
  const int32_t tentative = options_.tentative_max;
  options_.tentative_max = std::max(tentative, drafts.most);
  models::ModelOptions model = model_options(options_);
  LATHE_TRY(model_, models::load_model(options_.model, *dispatch_, model));
  if (drafts.most == 0 || model_->info().has_draft) return {};
  if (!drafts.adaptive)
    return err(Code::kInvalidArgument, "{} drafts a window are wanted, but the model has no draft layer: expected 0", drafts.most);
  drafts.most = 0;  // and no room for tentative tokens
  model.tentative_max = options_.tentative_max = tentative;
  model_.reset();
  LATHE_TRY(model_, models::load_model(options_.model, *dispatch_, model));
  return {};
}

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options) {
  std::unique_ptr<Engine> engine(new Engine(options));
#ifdef LATHE_PLANTED_FAULTS
  engine->options_.keep_stale_slots = backend::planted("stale_slot");
#endif
  LATHE_TRY(engine->device_, backend::make_cpu_device(options.cpu));
  LATHE_TRY(engine->dispatch_,
            backend::Dispatch::create(
                *engine->device_, {.no_fallback = options.no_fallback, .kernels = options.kernels, .host_reference = backend::reference_table()}));
  LATHE_TRY_VOID(engine->load_model());
  const models::ModelInfo& info = engine->model_->info();
  int64_t& context = engine->options_.context_tokens;
  if (options.context_is_default) context = std::min(context, info.max_positions);
  if (context < 1 || context > info.max_positions)
    return err(Code::kInvalidArgument, "context is {} tokens, the model takes 1 to {}", context, info.max_positions);
  LATHE_TRY(engine->store_, cache::Store::create(*engine->device_, engine->model_->cache_families(), store_options(engine->options_, info)));
  engine->experience_ = std::make_unique<DraftExperience>(DraftExperience{.times = DraftTimes(info.decode_bytes)});
  return engine;
}

std::span<const float> Engine::rows(const View& view, std::vector<float>& buffer) {
  if (!device_->host_visible() || view.step(0) != view.dim(1)) {
    read_rows(view, 0, view.dim(0), buffer);
    return buffer;
  }
  device_->synchronise();
  return {view.f32(), static_cast<size_t>(view.elements())};
}

void Engine::read_rows(const View& view, int64_t begin, int64_t count, std::vector<float>& out) {
  const int64_t width = view.dim(1);
  out.resize(static_cast<size_t>(count * width));
  if (count == 0) return;
  device_->synchronise();
  if (view.step(0) == width) {
    device_->copy_to_host(out.data(), view.rows(begin, begin + count).data, count * width * 4);
    return;
  }
  for (int64_t row = 0; row < count; ++row) {
    device_->copy_to_host(out.data() + row * width, view.rows(begin + row, begin + row + 1).data, width * 4);
  }
}

}  // namespace lathe::engine
