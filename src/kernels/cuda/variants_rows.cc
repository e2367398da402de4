// Embedding, norms, elementwise ops, hyper-connections, vision.

#include <array>
#include <span>

#include "kernels/cuda/fill.h"
#include "ops/basic.h"
#include "ops/mhc.h"
#include "ops/vision.h"

namespace lathe::kernels::cuda {
namespace {

using ops::LaunchContext;
using ops::OpId;

void embed(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::EmbedParams>(params);
  launch_embed({.ids = p.ids.i32(),
                .table = matrix_of(p.table),
                .override_row = p.override_row.present() ? p.override_row.i32() : nullptr,
                .overrides = rows_of(p.overrides),
                .out = rows_of(p.out),
                .tokens = narrow(p.out.dim(0))},
               context.stream);
}

void gather_rows(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::GatherRowsParams>(params);
  launch_gather_rows({.x = rows_of(p.x), .rows = p.rows.i32(), .out = rows_of(p.out), .count = narrow(p.out.dim(0)), .width = narrow(p.out.dim(1))},
                     context.stream);
}

ElementwiseArgs elementwise(const View& a, const View& b, const View& out, float limit) {
  return {.a = rows_of(a), .b = rows_of(b), .out = rows_of(out), .tokens = narrow(out.dim(0)), .width = narrow(out.dim(1)), .limit = limit};
}
void add(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::AddParams>(params);
  launch_add(elementwise(p.a, p.b, p.out, 0), context.stream);
}
void gelu(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::GeluParams>(params);
  launch_gelu(elementwise(p.x, {}, p.out, 0), context.stream);
}
void swiglu(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::SwigluParams>(params);
  launch_swiglu(elementwise(p.gate, p.up, p.out, p.limit), context.stream);
}

NormArgs norm(const View& x, const View& weight, const View& bias, float eps, const View& out) {
  return {.x = rows_of(x),
          .weight = vector_of(weight),
          .bias = vector_of(bias),
          .eps = eps,
          .out = rows_of(out),
          .tokens = narrow(x.dim(0)),
          .width = narrow(x.dim(1))};
}
void rms_norm(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::RmsNormParams>(params);
  launch_rms_norm(norm(p.x, p.weight, {}, p.eps, p.out), context.stream);
}
void layer_norm(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::LayerNormParams>(params);
  launch_layer_norm(norm(p.x, p.weight, p.bias, p.eps, p.out), context.stream);
}

bool few_streams(const View& streams) { return streams.dim(1) <= kStreamsMax; }
MhcInArgs mhc_in_args(const ops::MhcInParams& p) {
  return {.streams = planes_of(p.streams),
          .fn = matrix_of(p.fn),
          .base = vector_of(p.base),
          .scale = vector_of(p.scale),
          .eps = p.eps,
          .hc_eps = p.hc_eps,
          .iterations = p.iterations,
          .x = rows_of(p.x),
          .post = rows_of(p.post),
          .comb = rows_of(p.comb),
          .tokens = narrow(p.streams.dim(0)),
          .count = narrow(p.streams.dim(1)),
          .width = narrow(p.streams.dim(2))};
}
void mhc_in(const void* params, const LaunchContext& context) { launch_mhc_in(mhc_in_args(as<ops::MhcInParams>(params)), context.stream); }
bool fits_mhc_parts(const void* params) { return mhc_parts_bytes(mhc_in_args(as<ops::MhcInParams>(params))) > 0; }
void mhc_in_parts(const void* params, const LaunchContext& context) {
  const MhcInArgs args = mhc_in_args(as<ops::MhcInParams>(params));
  launch_mhc_in_parts(args, static_cast<float*>(scratch(context, mhc_parts_bytes(args))), context.stream);
}
void mhc_out(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::MhcOutParams>(params);
  launch_mhc_out({.streams = planes_of(p.streams),
                  .y = rows_of(p.y),
                  .post = rows_of(p.post),
                  .comb = rows_of(p.comb),
                  .out = planes_of(p.out),
                  .tokens = narrow(p.streams.dim(0)),
                  .count = narrow(p.streams.dim(1)),
                  .width = narrow(p.streams.dim(2))},
                 context.stream);
}
void stream_mean(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::StreamMeanParams>(params);
  launch_stream_mean({.streams = planes_of(p.streams),
                      .out = rows_of(p.out),
                      .tokens = narrow(p.streams.dim(0)),
                      .count = narrow(p.streams.dim(1)),
                      .width = narrow(p.streams.dim(2))},
                     context.stream);
}

void vision_rope(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::VisionRopeParams>(params);
  launch_vision_rope({.qkv = p.qkv.f32(),
                      .row = p.qkv.step(0),
                      .part = p.qkv.step(1),
                      .q_norm = vector_of(p.q_norm),
                      .k_norm = vector_of(p.k_norm),
                      .eps = p.eps,
                      .positions = p.positions.i32(),
                      .positions_stride = p.positions.step(0),
                      .tokens = narrow(p.qkv.dim(0)),
                      .heads = narrow(p.qkv.dim(2)),
                      .width = narrow(p.qkv.dim(3))},
                     context.stream);
}
void vision_attend(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::VisionAttendParams>(params);
  launch_vision_attend({.qkv = p.qkv.f32(),
                        .row = p.qkv.step(0),
                        .part = p.qkv.step(1),
                        .segment_begin = p.segment_begin.i32(),
                        .segments = narrow(p.segment_begin.dim(0) - 1),
                        .out = rows_of(p.out),
                        .tokens = narrow(p.qkv.dim(0)),
                        .heads = narrow(p.qkv.dim(2)),
                        .width = narrow(p.qkv.dim(3))},
                       context.stream);
}

constexpr std::array kTable = {
    ops::Variant{.op = OpId::kEmbed, .name = "rows", .supports = any, .run = embed},
    ops::Variant{.op = OpId::kGatherRows, .name = "rows", .supports = any, .run = gather_rows},
    ops::Variant{.op = OpId::kAdd, .name = "rows", .supports = any, .run = add},
    ops::Variant{.op = OpId::kGelu, .name = "rows", .supports = any, .run = gelu},
    ops::Variant{.op = OpId::kSwiglu, .name = "rows", .supports = any, .run = swiglu},
    ops::Variant{.op = OpId::kRmsNorm, .name = "rows", .supports = any, .run = rms_norm},
    ops::Variant{.op = OpId::kLayerNorm, .name = "rows", .supports = any, .run = layer_norm},
    ops::Variant{.op = OpId::kMhcIn, .name = "parts", .supports = fits_mhc_parts, .run = mhc_in_parts},
    ops::Variant{
        .op = OpId::kMhcIn, .name = "block", .supports = [](const void* p) { return few_streams(as<ops::MhcInParams>(p).streams); }, .run = mhc_in},
    ops::Variant{
        .op = OpId::kMhcOut, .name = "rows", .supports = [](const void* p) { return few_streams(as<ops::MhcOutParams>(p).streams); }, .run = mhc_out},
    ops::Variant{.op = OpId::kStreamMean, .name = "rows", .supports = any, .run = stream_mean},
    ops::Variant{.op = OpId::kVisionRope, .name = "warp", .supports = any, .run = vision_rope},
    ops::Variant{.op = OpId::kVisionAttend,
                 .name = "warp",
                 .supports = [](const void* p) { return as<ops::VisionAttendParams>(p).qkv.dim(3) <= kVisionHeadMax; },
                 .run = vision_attend},
};

}  // namespace

std::span<const ops::Variant> rows_variants() { return kTable; }

}  // namespace lathe::kernels::cuda
