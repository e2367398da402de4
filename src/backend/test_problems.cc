// One or more problems per op, with strides, overlaps and in-place outputs where the contracts allow them.

#include "backend/test_support.h"
#include "ops/basic.h"
#include "ops/kda.h"
#include "ops/kda_replay.h"
#include "ops/mhc.h"
#include "ops/mla.h"
#include "ops/moe.h"

namespace lathe::backend::testing {
namespace {

using ops::OpId;

MatrixView plain(const View& values) {
  MatrixView matrix;
  matrix.values = values;
  return matrix;
}

MatrixView blocked(Tensors& t, int64_t rows, int64_t cols) {
  MatrixView matrix;
  matrix.values = t.f8({rows, cols});
  matrix.block_rows = matrix.block_cols = 8;
  matrix.scales = t.floats({(rows + 7) / 8, (cols + 7) / 8});
  return matrix;
}

ops::Ragged two_sequences(Tensors& t) { return {.begin = t.ints({3}, {0, 3, 5}), .start = t.ints({2}, {2, 0}), .longest = 3}; }

ops::Paged paged(Tensors& t, int64_t blocks, int64_t block_rows, int64_t width) {
  std::vector<int32_t> table(static_cast<size_t>(2 * blocks));
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(table.size() - 1 - i);
  return {.pool = t.floats({2 * blocks * block_rows, width}), .table = t.ints({2, blocks}, table), .block_rows = block_rows};
}

void add_in_place(Tensors& t, Dispatch& d, OpSite& site) {
  const View a = t.floats({5, 7});
  const View b = t.floats({5, 7});
  d.run(site, ops::AddParams{.a = a, .b = b, .out = b});
}

/// Columns of one buffer: extents overlap and the gaps must stay as they are.
void rms_norm_columns(Tensors& t, Dispatch& d, OpSite& site) {
  const View wide = t.floats({5, 24});
  const View x = wide.slice(1, 4, 12);
  d.run(site, ops::RmsNormParams{.x = x, .weight = t.bf16({8}), .eps = 1e-5f, .out = wide.slice(1, 13, 21)});
  d.run(site, ops::RmsNormParams{.x = x, .weight = t.floats({8}), .eps = 1e-5f, .out = x});
}

void matmul(Tensors& t, Dispatch& d, OpSite& site) {
  ops::MatmulParams p{.x = t.floats({5, 20}).slice(1, 2, 18), .part_count = 3, .compute = ops::Compute::kF32};
  p.parts[0] = {.weight = plain(t.bf16({6, 16})), .bias = t.floats({6}), .y = t.floats({5, 6})};
  p.parts[1] = {.weight = tensor::slice_matrix(blocked(t, 24, 32), {5, 16}, {7, 23}), .bias = {}, .y = t.floats({5, 11})};
  p.parts[2] = {.weight = plain(t.floats({6, 16})), .bias = {}, .y = t.floats({2, 5, 6}), .leaf_channels = 8, .leaf_begin = 1, .leaf_total = 4};
  d.run(site, p);
}

/// Two products into columns of one buffer: what is written back of one must not undo the other.
void matmul_into_columns(Tensors& t, Dispatch& d, OpSite& site) {
  const View wide = t.floats({5, 12});
  ops::MatmulParams p{.x = t.floats({5, 16}), .part_count = 2, .compute = ops::Compute::kF32};
  p.parts[0] = {.weight = plain(t.bf16({4, 16})), .bias = {}, .y = wide.slice(1, 1, 5)};
  p.parts[1] = {.weight = plain(t.bf16({6, 16})), .bias = {}, .y = wide.slice(1, 6, 12)};
  d.run(site, p);
}

void gate_up(Tensors& t, Dispatch& d, OpSite& site) {
  d.run(site, ops::GateUpParams{.x = t.floats({5, 16}),
                                .gate = blocked(t, 12, 16),
                                .up = blocked(t, 12, 16),
                                .gate_bias = t.floats({12}),
                                .up_bias = {},
                                .out = t.floats({5, 20}).slice(1, 3, 15),
                                .limit = 0.75f,
                                .compute = ops::Compute::kF32});
}

void stream_mean(Tensors& t, Dispatch& d, OpSite& site) {
  d.run(site, ops::StreamMeanParams{.streams = t.floats({5, 4, 8}), .out = t.floats({5, 8})});
}

void gather_rows(Tensors& t, Dispatch& d, OpSite& site) {
  d.run(site, ops::GatherRowsParams{.x = t.floats({6, 9}).slice(1, 1, 8), .rows = t.ints({4}, {5, 0, 0, 3}), .out = t.floats({4, 7})});
}

void embed_floats(Tensors& t, Dispatch& d, OpSite& site) {
  d.run(site, ops::EmbedParams{
                  .ids = t.ints({4}, {5, 0, 0, 3}), .table = plain(t.floats({6, 7})), .override_row = {}, .overrides = {}, .out = t.floats({4, 7})});
}

void embed_overrides(Tensors& t, Dispatch& d, OpSite& site) {
  d.run(site, ops::EmbedParams{.ids = t.ints({4}, {5, 0, 0, 3}),
                               .table = plain(t.bf16({6, 7})),
                               .override_row = t.ints({4}, {-1, 1, 0, -1}),
                               .overrides = t.floats({2, 7}),
                               .out = t.floats({4, 7})});
}

void mhc_out_in_place(Tensors& t, Dispatch& d, OpSite& site) {
  const View streams = t.floats({5, 4, 8});
  d.run(site, ops::MhcOutParams{.streams = streams, .y = t.floats({5, 8}), .post = t.floats({5, 4}), .comb = t.floats({5, 4, 4}), .out = streams});
}

/// State pools that are read and written in place, keys and values as columns of one projection.
void kda_recurrence(Tensors& t, Dispatch& d, OpSite& site) {
  const View qkv = t.floats({5, 3 * 2 * 4});
  const auto columns = [&](int64_t at) {
    View view = qkv.slice(1, at * 8, at * 8 + 8);
    view.rank = 3, view.shape[1] = 2, view.shape[2] = 4, view.stride[1] = 4, view.stride[2] = 1;
    return view;
  };
  std::vector<float> decay(5 * 8, -0.25f);
  const View states = t.floats({4, 2, 4, 4});
  d.run(site, ops::KdaRecurrenceParams{.q = columns(0),
                                       .k = columns(1),
                                       .v = columns(2),
                                       .g = t.put(decay.data(), DType::kF32, {5, 8}),
                                       .beta = t.floats({5, 2}),
                                       .entering = states,
                                       .state_in = t.ints({2}, {3, -1}),
                                       .states = states,
                                       .state_out = t.ints({5}, {-1, -1, 3, -1, 0}),
                                       .batch = two_sequences(t),
                                       .o = t.floats({5, 2, 4}),
                                       .pair_m = {},
                                       .pair_h = {}});
}

void write_latents(Tensors& t, Dispatch& d, OpSite& site) {
  d.run(site, ops::WriteLatentsParams{.x = t.floats({5, 6}), .pool = paged(t, 3, 2, 6), .batch = two_sequences(t)});
}

ops::Selection selection(Tensors& t) { return {.pools = t.ints({5, 2}, {-1, -1, 0, -1, 0, -1, -1, -1, -1, -1}), .tail_begin = {}, .kpool = 4}; }

ops::KvB kv_b(Tensors& t) { return {.matrix = blocked(t, 2 * (3 + 5), 6), .nope = 3, .value = 5}; }

void mla_expanded(Tensors& t, Dispatch& d, OpSite& site) {
  d.run(site, ops::MlaExpandedParams{.q = t.floats({5, 2, 3}),
                                     .kv_b = kv_b(t),
                                     .latents = paged(t, 3, 2, 6),
                                     .selection = selection(t),
                                     .batch = two_sequences(t),
                                     .scale = 0.5f,
                                     .compute = ops::Compute::kF32,
                                     .out = t.floats({5, 2, 5})});
}

void mla_unabsorb(Tensors& t, Dispatch& d, OpSite& site) {
  d.run(site, ops::MlaUnabsorbParams{.z = t.floats({5, 2, 6}), .kv_b = kv_b(t), .compute = ops::Compute::kF32, .out = t.floats({5, 2, 5})});
}

/// Weights are lists of matrices in host memory of the model.
void moe(Tensors& t, Dispatch& d, OpSite& site) {
  const auto stack = [&](int64_t rows, int64_t cols) {
    std::vector<MatrixView>& items = t.stack();
    for (int i = 0; i < 4; ++i) items.push_back(blocked(t, rows, cols));
    return ops::MatrixStack{.items = items.data(), .count = 4};
  };
  d.run(site, ops::MoeParams{.x = t.floats({3, 8}),
                             .ids = t.ints({3, 2}, {0, 3, 1, 2, 2, 3}),
                             .weights = t.floats({3, 2}),
                             .gate = stack(12, 8),
                             .up = stack(12, 8),
                             .down = stack(8, 12),
                             .expert_begin = 0,
                             .experts_total = 4,
                             .limit = 1.0f,
                             .compute = ops::Compute::kF32,
                             .y = t.floats({3, 8}),
                             .present = {}});
}

View codes(Tensors& t, std::initializer_list<int64_t> shape) {
  std::vector<int8_t> values;
  int64_t count = 1;
  for (const int64_t n : shape) count *= n;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<int8_t>(i * 37 % 255 - 127));
  return t.put(values.data(), DType::kI8, shape);
}

/// INT8 weights beside others: two parts, one with integer sums, and the given magnitude of each row.
void int8_matmul(Tensors& t, Dispatch& d, OpSite& site) {
  const auto rows = [&](int64_t n) {
    MatrixView matrix;
    matrix.values = codes(t, {n, 16}), matrix.scales = t.floats({n, 1}), matrix.block_rows = 1, matrix.block_cols = 16;
    return matrix;
  };
  ops::MatmulParams p{.x = t.floats({5, 16}), .x_amax = t.floats({5}), .part_count = 3, .compute = ops::Compute::kInt8};
  p.parts[0] = {.weight = rows(6), .bias = t.floats({6}), .y = t.floats({5, 6})};
  p.parts[1] = {.weight = plain(t.bf16({7, 16})), .bias = {}, .y = t.floats({5, 7})};
  p.parts[2] = {.weight = rows(4), .bias = {}, .y = t.ints({5, 4}, std::vector<int32_t>(20))};
  d.run(site, p);
}

void write_codes(Tensors& t, Dispatch& d, OpSite& site) {
  ops::Paged pool = paged(t, 3, 2, 130);
  pool.pool = codes(t, {12, 130}), pool.scales = t.floats({12, 2});
  d.run(site, ops::WriteLatentsParams{.x = t.floats({5, 130}), .pool = pool, .batch = two_sequences(t)});
}

ops::ReplayRing ring(Tensors& t) { return {.keys = t.bf16({2, 8, 2, 4}), .values = t.floats({2, 8, 2, 4}), .decay = t.zeros({2, 4, 2, 4})}; }

/// The second row of the first sequence stands at a checkpoint.
void kda_verify(Tensors& t, Dispatch& d, OpSite& site) {
  std::vector<float> decay(5 * 8, -0.25f);
  ops::KdaVerifyParams p{};
  p.q = t.floats({5, 2, 4}), p.k = t.floats({5, 2, 4}), p.v = t.floats({5, 2, 4}), p.g = t.put(decay.data(), DType::kF32, {5, 8});
  p.beta = t.floats({5, 2}), p.states = codes(t, {3, 2, 4, 4}), p.states_scales = t.floats({3, 2, 4}), p.state = t.ints({2}, {2, -1});
  p.checkpoint = t.ints({2}, {1, 0}), p.slot = t.ints({2}, {1, 0}), p.ring = ring(t), p.fold = t.ints({5}, {0, 1, 0, 0, 0});
  p.batch = two_sequences(t), p.o = t.floats({5, 2, 4});
  d.run(site, p);
}

void kda_flush(Tensors& t, Dispatch& d, OpSite& site) {
  ops::KdaFlushParams p{};
  p.states = p.entering = codes(t, {3, 2, 4, 4}), p.states_scales = p.entering_scales = t.floats({3, 2, 4});
  p.state_in = t.ints({2}, {2, 0}), p.into = t.ints({2}, {2, 1}), p.checkpoint = t.ints({2}, {3, 0}), p.to = t.ints({2}, {5, 1});
  p.slot = t.ints({2}, {0, 1}), p.ring = ring(t), p.folded_max = 2;
  d.run(site, p);
}

}  // namespace

std::vector<Problem> problems() {
  return {{OpId::kAdd, "add in place", add_in_place},
          {OpId::kRmsNorm, "rms_norm of columns", rms_norm_columns},
          {OpId::kMatmul, "matmul of three parts", matmul},
          {OpId::kMatmul, "matmul into columns", matmul_into_columns},
          {OpId::kGateUp, "gate_up", gate_up},
          {OpId::kStreamMean, "stream_mean", stream_mean},
          {OpId::kGatherRows, "gather_rows", gather_rows},
          {OpId::kEmbed, "embed of floats", embed_floats},
          {OpId::kEmbed, "embed with overrides", embed_overrides},
          {OpId::kMhcOut, "mhc_out in place", mhc_out_in_place},
          {OpId::kKdaRecurrence, "kda_recurrence on a pool", kda_recurrence},
          {OpId::kWriteLatents, "write_latents", write_latents},
          {OpId::kMlaExpanded, "mla_expanded", mla_expanded},
          {OpId::kMlaUnabsorb, "mla_unabsorb", mla_unabsorb},
          {OpId::kMoe, "moe", moe},
          {OpId::kMatmul, "matmul of INT8 codes", int8_matmul},
          {OpId::kWriteLatents, "write_latents as codes", write_codes},
          {OpId::kKdaVerify, "kda_verify with a fold", kda_verify},
          {OpId::kKdaFlush, "kda_flush in place and elsewhere", kda_flush}};
}

}  // namespace lathe::backend::testing
