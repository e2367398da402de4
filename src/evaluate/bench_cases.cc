#include "evaluate/bench_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace lathe::evaluate {
namespace {

using ops::OpId;
using ops::cases::Case;
using ops::cases::ModelShape;
using ops::cases::Problem;

constexpr int64_t kPosition = 4096;  // where the rows stand: a context that fills the selection

/// Sizes of the vision tower (spec glm5_next §1.3; the built-in model's config).
struct VisionShape {
  int64_t hidden, heads, merged, projection;
};
constexpr VisionShape kBuiltinVision{.hidden = 128, .heads = 2, .merged = 384, .projection = 256};
constexpr VisionShape kPublishedVision{.hidden = 1024, .heads = 16, .merged = 4096, .projection = 10240};

std::vector<Case> row_cases(const ModelShape& m, const VisionShape& v, int64_t tokens) {
  std::vector<Case> out;
  const auto add = [&](OpId op, const char* name, std::function<void(Problem&)> build) {
    out.push_back({.op = op, .name = name, .build = std::move(build)});
  };
  add(OpId::kGatherRows, "hidden", [=](Problem& b) {
    auto& p = b.make<ops::GatherRowsParams>();
    std::vector<int32_t> rows;
    for (int64_t t = 0; t < tokens; ++t) rows.push_back(static_cast<int32_t>(tokens - 1 - t));
    p.x = b.in(DType::kF32, {tokens, m.hidden}), p.rows = b.indices(rows), p.out = b.out(DType::kF32, {tokens, m.hidden});
  });
  add(OpId::kAdd, "hidden", [=](Problem& b) {
    auto& p = b.make<ops::AddParams>();
    p.a = b.in(DType::kF32, {tokens, m.hidden}), p.b = b.in(DType::kF32, {tokens, m.hidden}), p.out = b.out(DType::kF32, {tokens, m.hidden});
  });
  add(OpId::kSwiglu, "merger", [=](Problem& b) {
    auto& p = b.make<ops::SwigluParams>();
    p.gate = b.in(DType::kF32, {tokens, v.projection}), p.up = b.in(DType::kF32, {tokens, v.projection}), p.limit = 10;
    p.out = b.out(DType::kF32, {tokens, v.projection});
  });
  add(OpId::kLayerNorm, "merger", [=](Problem& b) {
    auto& p = b.make<ops::LayerNormParams>();
    p.x = b.in(DType::kF32, {tokens, v.merged}), p.weight = b.in(DType::kBF16, {v.merged}), p.bias = b.in(DType::kBF16, {v.merged}), p.eps = 1e-5f;
    p.out = b.out(DType::kF32, {tokens, v.merged});
  });
  add(OpId::kGelu, "merger", [=](Problem& b) {
    auto& p = b.make<ops::GeluParams>();
    p.x = b.in(DType::kF32, {tokens, v.merged}), p.out = b.out(DType::kF32, {tokens, v.merged});
  });
  return out;
}

std::vector<Case> vision_cases(const VisionShape& v, int64_t patches) {
  std::vector<Case> out;
  const int64_t width = v.hidden / v.heads;
  out.push_back({.op = OpId::kVisionRope, .name = "heads", .build = [=](Problem& b) {
                   auto& p = b.make<ops::VisionRopeParams>();
                   p.qkv = b.inout(DType::kF32, {patches, 3, v.heads, width});
                   p.q_norm = b.in(DType::kBF16, {width}), p.k_norm = b.in(DType::kBF16, {width}), p.eps = 1e-5f;
                   std::vector<int32_t> places;
                   for (int64_t i = 0; i < patches; ++i)
                     places.push_back(static_cast<int32_t>(i / 16)), places.push_back(static_cast<int32_t>(i % 16));
                   p.positions = b.indices(places, {patches, 2});
                 }});
  out.push_back({.op = OpId::kVisionAttend, .name = "heads", .build = [=](Problem& b) {
                   auto& p = b.make<ops::VisionAttendParams>();
                   p.qkv = b.in(DType::kF32, {patches, 3, v.heads, width}), p.segment_begin = b.indices({0, static_cast<int32_t>(patches)});
                   p.out = b.out(DType::kF32, {patches, v.heads * width});
                 }});
  return out;
}

/// The ops that see sequences, with one row in each: how a batch decodes. Their states and caches must fit.
std::vector<Case> decode_cases(const ModelShape& shape, const BenchShapes& shapes) {
  constexpr std::array<OpId, 7> kOps = {OpId::kShortConv, OpId::kKdaRecurrence, OpId::kKdaVerify, OpId::kKdaFlush,
                                        OpId::kIndexKeys, OpId::kIndexSelect,   OpId::kMlaAttend};
  const int64_t state = shape.kda_heads * shape.kda_width * shape.kda_width * 4, latents = kPosition * shape.kv_lora * 2;
  if (shapes.tokens < 2 || shapes.tokens * (state + latents) > shapes.memory_bytes / 4) return {};
  std::vector<Case> out;
  for (Case& item : ops::cases::model_cases(shape, shapes.tokens, shapes.tokens, kPosition, shapes.compute)) {
    if (std::find(kOps.begin(), kOps.end(), item.op) == kOps.end()) continue;
    item.name += "_decode";
    out.push_back(std::move(item));
  }
  return out;
}

}  // namespace

Result<std::vector<BenchCase>> bench_cases(const BenchShapes& shapes) {
  const bool published = shapes.name == "published";
  if (!published && shapes.name != "model") return err(Code::kInvalidArgument, "shapes '{}': expected model or published", shapes.name);
  ModelShape shape = published ? ops::cases::published_shape() : ops::cases::builtin_shape();
  const int64_t expert_bytes = 3 * shape.inner * shape.hidden;
  const int64_t fit = std::clamp(shapes.memory_bytes / expert_bytes / shape.chosen * shape.chosen, shape.chosen, shape.experts);
  const bool fewer = fit < shape.experts;
  const int64_t experts = std::exchange(shape.experts, fit);
  std::vector<Case> cases = ops::cases::model_cases(shape, shapes.tokens, 1, kPosition, shapes.compute);
  const VisionShape& vision = published ? kPublishedVision : kBuiltinVision;
  for (std::vector<Case> more : {decode_cases(shape, shapes), row_cases(shape, vision, shapes.tokens), vision_cases(vision, shapes.tokens)}) {
    cases.insert(cases.end(), more.begin(), more.end());
  }
  std::stable_sort(cases.begin(), cases.end(), [](const Case& a, const Case& b) { return a.op < b.op; });
  std::vector<BenchCase> out;
  for (Case& item : cases) {
    BenchCase bench{.op = item.op, .name = item.name, .tokens = shapes.tokens, .built = std::move(item), .note = ""};
    if (fewer && bench.op == OpId::kMoe) bench.note = fmt::format("{} of {} experts: memory", shape.experts, experts);
    out.push_back(std::move(bench));
  }
  return out;
}

}  // namespace lathe::evaluate
