// Ops as compositions of others, so that a device which lacks one keeps its tensors. Exactness is stated at each.

#include <array>

#include "backend/dispatch.h"
#include "ops/basic.h"
#include "ops/kda.h"
#include "ops/mhc.h"
#include "ops/mla.h"

namespace lathe::backend {
namespace {

using ops::OpId;

template <class Params>
const Params& as(const void* params) {
  return *static_cast<const Params*>(params);
}

View temporary_f32(Dispatch& dispatch, int index, std::initializer_list<int64_t> shape) {
  int64_t bytes = static_cast<int64_t>(sizeof(float));
  for (const int64_t size : shape) bytes *= size;
  return tensor::make_view(dispatch.temporary(index, bytes), DType::kF32, shape);
}

View constant_f32(Dispatch& dispatch, float value, std::initializer_list<int64_t> shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return tensor::make_view(dispatch.constant(value, count), DType::kF32, shape);
}

/// The same elements with one more axis of size 1 before `axis`.
View with_axis(const View& view, int axis) {
  View out = view;
  out.rank = view.rank + 1;
  for (int i = view.rank; i > axis; --i) {
    out.shape[static_cast<size_t>(i)] = view.shape[static_cast<size_t>(i - 1)];
    out.stride[static_cast<size_t>(i)] = view.stride[static_cast<size_t>(i - 1)];
  }
  out.shape[static_cast<size_t>(axis)] = 1;
  out.stride[static_cast<size_t>(axis)] = axis + 1 < out.rank ? out.dim(axis + 1) * out.step(axis + 1) : 1;
  return out;
}

/// Index `at` of the middle axis of [T, H, X].
View head_of(const View& view, int64_t at) {
  View out = view.slice(1, at, at + 1);
  out.rank = 2;
  out.shape[1] = view.shape[2];
  out.stride[1] = view.stride[2];
  return out;
}

/// Site number `index` of a composition; made while it is planned. Problems that a kernel may judge differently (other shapes, another offset in a scale
/// block) need sites of their own.
OpSite& part(OpSite& site, int64_t index) {
  std::vector<OpSite>& parts = *site.parts;
  while (static_cast<int64_t>(parts.size()) <= index) {
    parts.emplace_back();
    parts.back().name = site.name, parts.back().layer = site.layer;
  }
  return parts[static_cast<size_t>(index)];
}

/// Same bits: the contract of gate_up says so.
void gate_up(const void* params, OpSite& site, Dispatch& dispatch) {
  const auto& p = as<ops::GateUpParams>(params);
  const View up = temporary_f32(dispatch, 0, {p.out.dim(0), p.out.dim(1)});
  ops::MatmulParams matmul{.x = p.x, .part_count = 2, .compute = p.compute};
  // The gate's product lies in out itself: swiglu works in place, and x is not out.
  matmul.parts[0] = {.weight = p.gate, .bias = p.gate_bias, .y = p.out};
  matmul.parts[1] = {.weight = p.up, .bias = p.up_bias, .y = up};
  dispatch.run(part(site, 0), matmul);
  dispatch.run(part(site, 1), ops::SwigluParams{.gate = p.out, .up = up, .out = p.out, .limit = p.limit});
}

/// Same bits: a product does not depend on its neighbours. For devices whose kernel takes one product at a time.
void matmul_one_by_one(const void* params, OpSite& site, Dispatch& dispatch) {
  const auto& p = as<ops::MatmulParams>(params);
  for (int32_t i = 0; i < p.part_count; ++i) {
    ops::MatmulParams single{.x = p.x, .x_amax = p.x_amax, .part_count = 1, .compute = p.compute};
    single.parts[0] = p.parts[static_cast<size_t>(i)];
    dispatch.run(part(site, i), single);
  }
}

bool several_parts(const void* params) { return as<ops::MatmulParams>(params).part_count > 1; }

/// Up to rounding: the expanded form adds in another order.
void mla_expanded(const void* params, OpSite& site, Dispatch& dispatch) {
  const auto& p = as<ops::MlaExpandedParams>(params);
  const int64_t tokens = p.q.dim(0);
  const int64_t heads = p.q.dim(1);
  const int64_t width = p.kv_b.matrix.cols();
  const View absorbed = temporary_f32(dispatch, 0, {tokens, heads, width});
  const View mixed = temporary_f32(dispatch, 1, {tokens, heads, width});
  dispatch.run(part(site, 0), ops::MlaAbsorbParams{.q = p.q, .kv_b = p.kv_b, .compute = p.compute, .out = absorbed});
  dispatch.run(part(site, 1), ops::MlaAttendParams{.q = absorbed,
                                                   .latents = p.latents,
                                                   .selection = p.selection,
                                                   .batch = p.batch,
                                                   .scale = p.scale,
                                                   .out = mixed,
                                                   .row_max = {},
                                                   .row_sum = {}});
  dispatch.run(part(site, 2), ops::MlaUnabsorbParams{.z = mixed, .kv_b = p.kv_b, .compute = p.compute, .out = p.out});
}

/// Up to rounding: one product a head, with the order of additions of matmul.
void mla_unabsorb(const void* params, OpSite& site, Dispatch& dispatch) {
  const auto& p = as<ops::MlaUnabsorbParams>(params);
  const int64_t rows = p.kv_b.nope + p.kv_b.value;
  for (int64_t head = 0; head < p.z.dim(1); ++head) {
    ops::MatmulParams matmul{.x = head_of(p.z, head), .part_count = 1, .compute = p.compute};
    const int64_t first = head * rows + p.kv_b.nope;
    matmul.parts[0].weight = tensor::slice_matrix(p.kv_b.matrix, {first, first + p.kv_b.value}, {0, p.kv_b.matrix.cols()});
    matmul.parts[0].y = head_of(p.out, head);
    dispatch.run(part(site, head), matmul);
  }
}

/// Same bits: 1 · b + 1 · a, with one stream. mhc_out works in place on its streams, not on y.
void add(const void* params, OpSite& site, Dispatch& dispatch) {
  const auto& p = as<ops::AddParams>(params);
  const bool swap = p.out.data == p.b.data;
  const View one = constant_f32(dispatch, 1.0f, {p.a.dim(0), 1});
  dispatch.run(
      part(site, 0),
      ops::MhcOutParams{
          .streams = with_axis(swap ? p.b : p.a, 1), .y = swap ? p.a : p.b, .post = one, .comb = with_axis(one, 1), .out = with_axis(p.out, 1)});
}

bool two_buffers(const void* params) {
  const auto& p = as<ops::AddParams>(params);
  return p.a.data != p.b.data || p.a.data != p.out.data;
}

/// Up to rounding: streams are added one by one, each times 1/S.
void stream_mean(const void* params, OpSite& site, Dispatch& dispatch) {
  const auto& p = as<ops::StreamMeanParams>(params);
  const int64_t tokens = p.out.dim(0);
  const int64_t streams = p.streams.dim(1);
  const View share = constant_f32(dispatch, 1.0f / static_cast<float>(streams), {tokens, 1});
  const View one = constant_f32(dispatch, 1.0f, {tokens, 1});
  const View zero = constant_f32(dispatch, 0.0f, {tokens, 1});
  // First: 1/S · x0 + 0 · x0 if alone, else 1/S · x1 + 1/S · x0.
  ops::MhcOutParams step{.streams = p.streams.slice(1, 0, 1),
                         .y = head_of(p.streams, streams > 1 ? 1 : 0),
                         .post = share,
                         .comb = with_axis(streams > 1 ? share : zero, 1),
                         .out = with_axis(p.out, 1)};
  dispatch.run(part(site, 0), step);
  for (int64_t s = 2; s < streams; ++s) {
    step = {.streams = with_axis(p.out, 1), .y = head_of(p.streams, s), .post = share, .comb = with_axis(one, 1), .out = with_axis(p.out, 1)};
    dispatch.run(part(site, 1), step);
  }
}

/// Same bits: rows of x as a table.
void gather_rows(const void* params, OpSite& site, Dispatch& dispatch) {
  const auto& p = as<ops::GatherRowsParams>(params);
  MatrixView table;
  table.values = p.x;
  dispatch.run(part(site, 0), ops::EmbedParams{.ids = p.rows, .table = table, .override_row = {}, .overrides = {}, .out = p.out});
}

/// Same bits: a plain float table as x.
void embed(const void* params, OpSite& site, Dispatch& dispatch) {
  const auto& p = as<ops::EmbedParams>(params);
  dispatch.run(part(site, 0), ops::GatherRowsParams{.x = p.table.values, .rows = p.ids, .out = p.out});
}

bool plain_table(const void* params) {
  const auto& p = as<ops::EmbedParams>(params);
  return p.table.values.dtype == DType::kF32 && !p.table.scaled() && !p.override_row.present();
}

/// Up to rounding: one head, and a gate so large that σ is 1.
void rms_norm(const void* params, OpSite& site, Dispatch& dispatch) {
  const auto& p = as<ops::RmsNormParams>(params);
  const View open = constant_f32(dispatch, 1e4f, {p.x.dim(0), p.x.dim(1)});
  dispatch.run(part(site, 0), ops::GatedNormParams{.o = with_axis(p.x, 1), .gate = open, .weight = p.weight, .eps = p.eps, .out = p.out});
}

}  // namespace

std::span<const Composition> compositions() {
  constexpr auto kMatmul = OpId::kMatmul;
  static const std::vector<Composition> list = {
      {OpId::kGateUp, "matmul+swiglu", {kMatmul, OpId::kSwiglu}, nullptr, gate_up},
      {OpId::kMatmul, "one_by_one", {kMatmul}, several_parts, matmul_one_by_one},
      {OpId::kMlaExpanded, "absorb+attend+unabsorb", {OpId::kMlaAbsorb, OpId::kMlaAttend, OpId::kMlaUnabsorb}, nullptr, mla_expanded},
      {OpId::kMlaUnabsorb, "matmul_per_head", {kMatmul}, nullptr, mla_unabsorb},
      {OpId::kAdd, "mhc_out", {OpId::kMhcOut}, two_buffers, add},
      {OpId::kStreamMean, "mhc_out", {OpId::kMhcOut}, nullptr, stream_mean},
      {OpId::kGatherRows, "embed", {OpId::kEmbed}, nullptr, gather_rows},
      {OpId::kEmbed, "gather_rows", {OpId::kGatherRows}, plain_table, embed},
      {OpId::kRmsNorm, "gated_norm", {OpId::kGatedNorm}, nullptr, rms_norm},
  };
  return list;
}

}  // namespace lathe::backend
