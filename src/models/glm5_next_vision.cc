#include "models/glm5_next_vision.h"

#include "ops/basic.h"
#include "ops/vision.h"

namespace lathe::models {
namespace {

/// Of the merger's LayerNorm: a constant of the architecture, not a config key.
constexpr float kMergerNormEps = 1e-5f;

}  // namespace

Glm5NextVision::Glm5NextVision(const VisionConfig& config, const VisionWeights& weights, const View& downsample, ops::Compute compute,
                               backend::Dispatch& dispatch)
    : config_(config), weights_(weights), compute_(compute), dispatch_(dispatch), blocks_(weights.blocks.size()) {
  downsample_.values = downsample;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    BlockSites& b = blocks_[i];
    for (backend::OpSite* site : {&b.norm1, &b.qkv, &b.rope, &b.attend, &b.proj, &b.add_attend, &b.norm2, &b.gate_up, &b.down, &b.add_mlp}) {
      site->layer = static_cast<int32_t>(i);
    }
  }
}

Result<void> Glm5NextVision::check(const ImageInput& image) const {
  const int64_t merge = config_.merge;
  if (image.steps < 1 || image.height < merge || image.width < merge || image.height % merge != 0 || image.width % merge != 0) {
    return err(Code::kInvalidArgument, "picture of {} x {} x {} patches: expected at least one step, and sides that are multiples of {}", image.steps,
               image.height, image.width, merge);
  }
  const int64_t wanted = image.steps * image.height * image.width * config_.patch_values();
  if (static_cast<int64_t>(image.patches.size()) != wanted) {
    return err(Code::kInvalidArgument, "picture of {} x {} x {} patches has {} values, expected {}", image.steps, image.height, image.width,
               image.patches.size(), wanted);
  }
  return {};
}

Result<Glm5NextVision::Places> Glm5NextVision::place(const ImageInput& image, MetaPack& meta, Upload upload) {
  const int64_t cells = image.height * image.width;
  const int64_t rows = image.steps * cells;
  const int64_t positions = meta.add(rows * 2);
  const int64_t segments = meta.add(image.steps + 1);
  const int64_t merge = config_.merge;
  int64_t row = 0;
  for (int64_t step = 0; step < image.steps; ++step) {
    meta.at(segments)[step] = static_cast<int32_t>(step * cells);
    for (int64_t block = 0; block < cells / (merge * merge); ++block) {
      const int64_t top = block / (image.width / merge) * merge;
      const int64_t left = block % (image.width / merge) * merge;
      for (int64_t cell = 0; cell < merge * merge; ++cell, ++row) {
        meta.at(positions)[2 * row] = static_cast<int32_t>(top + cell / merge);
        meta.at(positions)[2 * row + 1] = static_cast<int32_t>(left + cell % merge);
      }
    }
  }
  meta.at(segments)[image.steps] = static_cast<int32_t>(rows);
  LATHE_TRY_VOID(meta.upload(dispatch_.device(), upload));
  return Places{.positions = meta.view(positions, {rows, 2}), .segment_begin = meta.view(segments, {image.steps + 1})};
}

void Glm5NextVision::linear(backend::OpSite& site, const View& x, const ops::MatmulPart& part) {
  ops::MatmulParams params;
  params.x = x;
  params.parts[0] = part;
  params.part_count = 1;
  params.compute = compute_;
  dispatch_.run(site, params);
}

void Glm5NextVision::block(Arena& arena, size_t index, const Places& places, const View& z) {
  const Arena::Scope scope(arena);
  const VisionBlockWeights& w = weights_.blocks[index];
  BlockSites& sites = blocks_[index];
  const int64_t rows = z.dim(0);
  const View x = arena.f32({rows, config_.hidden});
  const View qkv = arena.f32({rows, 3, config_.heads, config_.head_dim()});
  const View inner = arena.f32({rows, config_.intermediate});
  dispatch_.run(sites.norm1, ops::RmsNormParams{.x = z, .weight = w.norm1, .eps = config_.rms_norm_eps, .out = x});
  linear(sites.qkv, x, {.weight = w.qkv.weight, .bias = w.qkv.bias, .y = qkv.reshape({rows, 3 * config_.hidden})});
  dispatch_.run(sites.rope, ops::VisionRopeParams{
                                .qkv = qkv, .q_norm = w.q_norm, .k_norm = w.k_norm, .eps = config_.rms_norm_eps, .positions = places.positions});
  dispatch_.run(sites.attend, ops::VisionAttendParams{.qkv = qkv, .segment_begin = places.segment_begin, .out = x});
  const View y = qkv.reshape({rows, 3 * config_.hidden}).slice(1, 0, config_.hidden);  // q, k, v are done with
  linear(sites.proj, x, {.weight = w.proj.weight, .bias = w.proj.bias, .y = y});
  dispatch_.run(sites.add_attend, ops::AddParams{.a = z, .b = y, .out = z});
  dispatch_.run(sites.norm2, ops::RmsNormParams{.x = z, .weight = w.norm2, .eps = config_.rms_norm_eps, .out = x});
  dispatch_.run(sites.gate_up, ops::GateUpParams{.x = x,
                                                 .gate = w.gate.weight,
                                                 .up = w.up.weight,
                                                 .gate_bias = w.gate.bias,
                                                 .up_bias = w.up.bias,
                                                 .out = inner,
                                                 .limit = config_.swiglu_limit,
                                                 .compute = compute_});
  linear(sites.down, inner, {.weight = w.down.weight, .bias = w.down.bias, .y = y});
  dispatch_.run(sites.add_mlp, ops::AddParams{.a = z, .b = y, .out = z});
}

void Glm5NextVision::merge(Arena& arena, const View& z, const View& rows) {
  const Arena::Scope scope(arena);
  const int64_t tokens = rows.dim(0);
  const View blocks = z.reshape({tokens, config_.merge * config_.merge * config_.hidden});
  const View hidden = arena.f32({tokens, config_.out_hidden});
  const View merged = arena.f32({tokens, config_.out_hidden});
  const View inner = arena.f32({tokens, config_.projection_intermediate});
  linear(sites_.downsample, blocks, {.weight = downsample_, .bias = weights_.downsample.bias, .y = hidden});
  linear(sites_.merge, hidden, {.weight = weights_.merger_proj, .bias = {}, .y = merged});
  dispatch_.run(sites_.merge_norm,
                ops::LayerNormParams{
                    .x = merged, .weight = weights_.merger_norm_weight, .bias = weights_.merger_norm_bias, .eps = kMergerNormEps, .out = merged});
  dispatch_.run(sites_.gelu, ops::GeluParams{.x = merged, .out = merged});
  dispatch_.run(sites_.gate_up, ops::GateUpParams{.x = merged,
                                                  .gate = weights_.merger.gate,
                                                  .up = weights_.merger.up,
                                                  .gate_bias = {},
                                                  .up_bias = {},
                                                  .out = inner,
                                                  .limit = config_.swiglu_limit,
                                                  .compute = compute_});
  linear(sites_.down, inner, {.weight = weights_.merger.down, .bias = {}, .y = rows});
}

void Glm5NextVision::run(Arena& arena, const Places& places, const View& patches, const View& rows) {
  const View z = arena.f32({patches.dim(0), config_.hidden});
  linear(sites_.patch, patches, {.weight = weights_.patch_embed.weight, .bias = weights_.patch_embed.bias, .y = z});
  for (size_t i = 0; i < blocks_.size(); ++i) block(arena, i, places, z);
  dispatch_.run(sites_.post_norm, ops::RmsNormParams{.x = z, .weight = weights_.post_norm, .eps = config_.rms_norm_eps, .out = z});
  merge(arena, z, rows);
}

Result<void> Glm5NextVision::plan() {
  const ImageInput smallest{.patches = {}, .steps = 1, .height = config_.merge, .width = config_.merge};
  Arena arena;
  arena.measure();
  MetaPack meta;
  LATHE_TRY(const Places places, place(smallest, meta, Upload::kDry));
  const int64_t patches = smallest.height * smallest.width;
  run(arena, places, arena.f32({patches, config_.patch_values()}), arena.f32({1, config_.out_hidden}));
  return {};
}

Result<ImageRows> Glm5NextVision::encode(const ImageInput& image) {
  LATHE_TRY_VOID(check(image));
  backend::Device& device = dispatch_.device();
  const int64_t count = image.steps * image.height * image.width;
  const int64_t tokens = count / (config_.merge * config_.merge);
  ImageRows out;
  LATHE_TRY(out.memory, backend::Buffer::create(device, tokens * config_.out_hidden * 4));
  out.rows = tensor::make_view(out.memory.data(), DType::kF32, {tokens, config_.out_hidden});
  MetaPack meta;
  LATHE_TRY(const Places places, place(image, meta, Upload::kCopy));
  // Pictures are rare and differ in size: their memory lives only as long as the call.
  Arena arena;
  const int64_t floats = count * (config_.patch_values() + 5 * config_.hidden + config_.intermediate) +
                         tokens * (2 * config_.out_hidden + config_.projection_intermediate);
  LATHE_TRY_VOID(arena.reserve(device, floats, 16));
  const View patches = arena.f32({count, config_.patch_values()});
  device.copy_to_device(patches.data, image.patches.data(), static_cast<int64_t>(image.patches.size_bytes()));
  run(arena, places, patches, out.rows);
  device.synchronise();
  LATHE_TRY_VOID(dispatch_.take_error());
  return out;
}

}  // namespace lathe::models
