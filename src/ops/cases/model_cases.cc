// The ops at the sizes of real models, for benchmarks.

#include <algorithm>
#include <cmath>

#include "ops/cases/cases.h"

namespace lathe::ops::cases {
namespace {

constexpr Weights kBF16Weights{.dtype = DType::kBF16};
constexpr Weights kFp8Weights{.dtype = DType::kF8E4M3, .scaled = true};
constexpr Weights kInt8Weights{.dtype = DType::kI8, .scaled = true};

/// A benchmark: the model, and the rows of one step.
struct Setting {
  ModelShape m;
  int64_t tokens, sequences, position;
  Compute compute;

  Batch batch() const {
    Batch out;
    for (int64_t s = 0; s < sequences; ++s) {
      out.rows.push_back(static_cast<int32_t>(tokens * (s + 1) / sequences - tokens * s / sequences));
      out.start.push_back(static_cast<int32_t>(position));
    }
    return out;
  }
  int64_t end() const { return position + tokens / sequences + 1; }  ///< one past the furthest position
  std::vector<int32_t> numbered() const {
    std::vector<int32_t> out;
    for (int64_t s = 0; s < sequences; ++s) out.push_back(static_cast<int32_t>(s));
    return out;
  }
};

using Add = std::function<void(OpId, const char*, std::function<void(Problem&)>)>;

void add_product(const Add& add, const Setting& c, const char* name, const std::vector<std::pair<Weights, int64_t>>& parts, int64_t width,
                 int64_t leaf = 0) {
  add(OpId::kMatmul, name, [=](Problem& b) {
    auto& p = b.make<MatmulParams>();
    p.x = b.in(DType::kF32, {c.tokens, width});
    p.compute = c.compute;
    for (const auto& [weights, rows] : parts) {
      MatmulPart& part = p.parts[static_cast<size_t>(p.part_count++)];
      part.weight = b.matrix(weights, rows, width);
      part.leaf_channels = leaf;
      part.leaf_total = leaf > 0 ? (width + leaf - 1) / leaf : 0;
      part.y = b.out(DType::kF32, {c.tokens, rows});
    }
  });
}

void add_gate_up(const Add& add, const Setting& c, const char* name, const Weights& weights) {
  add(OpId::kGateUp, name, [=](Problem& b) {
    auto& p = b.make<GateUpParams>();
    p.x = b.in(DType::kF32, {c.tokens, c.m.hidden});
    p.gate = b.matrix(weights, c.m.dense, c.m.hidden), p.up = b.matrix(weights, c.m.dense, c.m.hidden);
    p.limit = 10, p.compute = c.compute;
    p.out = b.out(DType::kF32, {c.tokens, c.m.dense});
  });
}

void add_products(const Add& add, const Setting& c) {
  const ModelShape& m = c.m;
  const int64_t kda = m.kda_heads * m.kda_width;
  add_product(add, c, "kda_projections",
              {{kBF16Weights, kda},
               {kBF16Weights, kda},
               {kBF16Weights, kda},
               {kBF16Weights, m.kda_width},
               {kBF16Weights, m.kda_width},
               {kBF16Weights, m.kda_heads}},
              m.hidden);
  add_product(add, c, "kda_gate_expansion", {{kBF16Weights, kda}}, m.kda_width);
  add_product(add, c, "kda_o", {{kBF16Weights, m.hidden}}, kda, m.kda_width);
  add_product(add, c, "mla_a", {{kFp8Weights, m.q_lora}, {kFp8Weights, m.kv_lora}}, m.hidden);
  add_product(add, c, "mla_q_b", {{kFp8Weights, m.heads * m.nope}}, m.q_lora);
  add_product(add, c, "mla_o", {{kFp8Weights, m.hidden}}, m.heads * m.value, m.value);
  add_product(add, c, "index_q_b", {{kBF16Weights, m.index_heads * m.index_width}}, m.q_lora);
  add_product(add, c, "dense_down", {{kFp8Weights, m.hidden}}, m.dense, kDownLeafChannels);
  add_product(add, c, "head", {{kBF16Weights, m.vocabulary}}, m.hidden);
  add_gate_up(add, c, "dense", kFp8Weights);
}

void add_rows(const Add& add, const Setting& c) {
  add(OpId::kEmbed, "table", [c](Problem& b) {
    auto& p = b.make<EmbedParams>();
    std::vector<int32_t> ids;
    for (int64_t t = 0; t < c.tokens; ++t) ids.push_back(static_cast<int32_t>(mix(static_cast<uint64_t>(t)) % static_cast<uint64_t>(c.m.vocabulary)));
    p.ids = b.indices(ids), p.table = b.matrix(kBF16Weights, c.m.vocabulary, c.m.hidden), p.out = b.out(DType::kF32, {c.tokens, c.m.hidden});
  });
  add(OpId::kRmsNorm, "hidden", [c](Problem& b) {
    auto& p = b.make<RmsNormParams>();
    p.x = b.in(DType::kF32, {c.tokens, c.m.hidden}), p.weight = b.in(DType::kBF16, {c.m.hidden}), p.eps = 1e-5f,
    p.out = b.out(DType::kF32, {c.tokens, c.m.hidden});
  });
  add(OpId::kMhcIn, "streams", [c](Problem& b) {
    auto& p = b.make<MhcInParams>();
    const int64_t s = c.m.streams, d = c.m.hidden;
    p.streams = b.in(DType::kF32, {c.tokens, s, d}), p.fn = b.matrix(kBF16Weights, s * (s + 2), s * d), p.base = b.in(DType::kF32, {s * (s + 2)});
    p.scale = b.in(DType::kF32, {3}), p.eps = 1e-5f, p.hc_eps = 1e-6f, p.iterations = 20;
    p.x = b.out(DType::kF32, {c.tokens, d}), p.post = b.out(DType::kF32, {c.tokens, s}), p.comb = b.out(DType::kF32, {c.tokens, s, s});
  });
  add(OpId::kMhcOut, "streams", [c](Problem& b) {
    auto& p = b.make<MhcOutParams>();
    const int64_t s = c.m.streams, d = c.m.hidden;
    p.streams = p.out = b.inout(DType::kF32, {c.tokens, s, d}), p.y = b.in(DType::kF32, {c.tokens, d});
    p.post = b.in(DType::kF32, {c.tokens, s}, uniform(0, 1)), p.comb = b.in(DType::kF32, {c.tokens, s, s}, uniform(0, 0.25));
  });
  add(OpId::kStreamMean, "streams", [c](Problem& b) {
    auto& p = b.make<StreamMeanParams>();
    p.streams = b.in(DType::kF32, {c.tokens, c.m.streams, c.m.hidden}), p.out = b.out(DType::kF32, {c.tokens, c.m.hidden});
  });
}

void add_recurrence(const Add& add, const Setting& c, const char* name, DType state) {
  const int64_t h = c.m.kda_heads, k = c.m.kda_width;
  add(OpId::kKdaRecurrence, name, [=](Problem& b) {
    auto& p = b.make<KdaRecurrenceParams>();
    p.q = b.in(DType::kF32, {c.tokens, h, k}), p.k = b.in(DType::kF32, {c.tokens, h, k}), p.v = b.in(DType::kF32, {c.tokens, h, k});
    p.g = b.in(DType::kF32, {c.tokens, h * k}, uniform(-1, 0)), p.beta = b.in(DType::kF32, {c.tokens, h}, uniform(0, 1));
    p.entering = p.states = b.inout(state, {c.sequences, h, k, k}, state == DType::kI8 ? uniform(-127, 127) : normal(0.1));
    if (state == DType::kI8) p.entering_scales = p.states_scales = b.inout(DType::kF32, {c.sequences, h, k}, uniform(1e-3, 3e-3));
    p.state_in = b.indices(c.numbered()), p.batch = b.ragged(c.batch());
    std::vector<int32_t> kept(static_cast<size_t>(c.tokens), -1);
    for (int64_t s = 0; s < c.sequences; ++s) {  // the state behind the last row of each sequence
      const int64_t end = c.tokens * (s + 1) / c.sequences;
      if (end > c.tokens * s / c.sequences) kept[static_cast<size_t>(end - 1)] = static_cast<int32_t>(s);
    }
    p.state_out = b.indices(kept), p.o = b.out(DType::kF32, {c.tokens, h, k});
  });
}

/// Formats of a replayed state: the state, the ring's keys and values.
struct Replayed {
  const char* name;
  DType state, keys, values;
};

/// Eight rows since the checkpoint: the middle of a period of 16.
void add_replay(const Add& add, const Setting& c, const Replayed& f) {
  const int64_t h = c.m.kda_heads, k = c.m.kda_width, ring = 16 + c.tokens / c.sequences + 1;
  const auto rings = [=](Problem& b) {
    return ReplayRing{.keys = b.inout(f.keys, {c.sequences, ring, h, k}, normal(0.3)),
                      .values = b.inout(f.values, {c.sequences, ring, h, k}, normal(0.3)),
                      .decay = b.inout(DType::kF32, {c.sequences, ring, h, k}, uniform(-2, 0))};
  };
  const auto states = [=](Problem& b) { return b.inout(f.state, {c.sequences, h, k, k}, f.state == DType::kI8 ? uniform(-127, 127) : normal(0.1)); };
  const auto scales = [=](Problem& b) { return f.state == DType::kI8 ? b.inout(DType::kF32, {c.sequences, h, k}, uniform(1e-3, 3e-3)) : View{}; };
  const auto at = static_cast<int32_t>(c.position);
  const std::vector<int32_t> checkpoint(static_cast<size_t>(c.sequences), std::max(at - 8, 0)), now(static_cast<size_t>(c.sequences), at);
  add(OpId::kKdaVerify, f.name, [=](Problem& b) {
    auto& p = b.make<KdaVerifyParams>();
    p.q = b.in(DType::kF32, {c.tokens, h, k}), p.k = b.in(DType::kF32, {c.tokens, h, k}), p.v = b.in(DType::kF32, {c.tokens, h, k});
    p.g = b.in(DType::kF32, {c.tokens, h * k}, uniform(-2, 0)), p.beta = b.in(DType::kF32, {c.tokens, h}, uniform(0, 1));
    p.states = states(b), p.states_scales = scales(b), p.state = b.indices(c.numbered());
    p.checkpoint = b.indices(checkpoint), p.slot = b.indices(c.numbered()), p.ring = rings(b), p.batch = b.ragged(c.batch());
    p.host_checkpoint = p.checkpoint.i32();
    p.fold = b.indices(std::vector<int32_t>(static_cast<size_t>(c.tokens))), p.o = b.out(DType::kF32, {c.tokens, h, k});
  });
  add(OpId::kKdaFlush, f.name, [=](Problem& b) {
    auto& p = b.make<KdaFlushParams>();
    p.states = p.entering = states(b), p.states_scales = p.entering_scales = scales(b), p.state_in = p.into = b.indices(c.numbered());
    p.checkpoint = b.indices(checkpoint), p.to = b.indices(now), p.slot = b.indices(c.numbered()), p.ring = rings(b);
    p.folded_max = std::min(at, 8);
  });
}

void add_kda(const Add& add, const Setting& c) {
  const int64_t h = c.m.kda_heads, k = c.m.kda_width;
  add(OpId::kShortConv, "qkv", [=](Problem& b) {
    auto& p = b.make<ShortConvParams>();
    p.x = b.in(DType::kF32, {c.tokens, 3 * h * k}), p.weight = b.in(DType::kF32, {c.m.conv, 3 * h * k}),
    p.ring = b.inout(DType::kF32, {c.sequences, c.m.conv, 3 * h * k});
    p.slot = b.indices(c.numbered()), p.batch = b.ragged(c.batch()), p.out = b.out(DType::kF32, {c.tokens, 3 * h * k});
  });
  add(OpId::kKdaGate, "heads", [=](Problem& b) {
    auto& p = b.make<KdaGateParams>();
    p.a = b.in(DType::kF32, {c.tokens, h * k}), p.b = b.in(DType::kF32, {c.tokens, h}), p.a_log = b.in(DType::kF32, {h}),
    p.dt_bias = b.in(DType::kF32, {h * k});
    p.lower_bound = -5, p.g = b.out(DType::kF32, {c.tokens, h * k}), p.beta = b.out(DType::kF32, {c.tokens, h});
  });
  add_recurrence(add, c, "heads", DType::kF32);
  add_recurrence(add, c, "f16_heads", DType::kF16);
  add_recurrence(add, c, "int8_heads", DType::kI8);
  add_replay(add, c, {"heads", DType::kF32, DType::kBF16, DType::kF32});
  add_replay(add, c, {"f16_heads", DType::kF16, DType::kBF16, DType::kBF16});
  add_replay(add, c, {"int8_heads", DType::kI8, DType::kBF16, DType::kBF16});
  add(OpId::kGatedNorm, "heads", [=](Problem& b) {
    auto& p = b.make<GatedNormParams>();
    p.o = b.in(DType::kF32, {c.tokens, h, k}), p.gate = b.in(DType::kF32, {c.tokens, h * k}), p.weight = b.in(DType::kBF16, {k}), p.eps = 1e-5f;
    p.out = b.out(DType::kF32, {c.tokens, h * k});
  });
}

/// The first pools of each row, as many as there are or may be.
Selection first_pools(Problem& b, const Setting& c) {
  std::vector<int32_t> pools;
  for (int64_t s = 0; s < c.sequences; ++s) {
    for (int64_t i = 0; i < c.tokens * (s + 1) / c.sequences - c.tokens * s / c.sequences; ++i) {
      const int64_t complete = (c.position + i + 1) / c.m.kpool;
      // Spread over the whole context, as a real choice is.
      for (int64_t n = 0; n < c.m.pools; ++n) {
        const int64_t kept = std::min(complete, c.m.pools);
        pools.push_back(n < kept ? static_cast<int32_t>(n * complete / kept) : -1);
      }
    }
  }
  return {.pools = b.indices(pools, {c.tokens, c.m.pools}), .tail_begin = {}, .kpool = static_cast<int32_t>(c.m.kpool)};
}

/// Latents and index keys in one format, and what its cases are called.
struct Rows {
  DType dtype;
  const char *latents, *keys, *pools, *heads;
};
constexpr Rows kRows[] = {{DType::kBF16, "latents", "keys", "pools", "heads"},
                          {DType::kI8, "int8_latents", "int8_keys", "int8_pools", "int8_heads"},
                          {DType::kF8E4M3, "fp8_latents", "fp8_keys", "fp8_pools", "fp8_heads"}};

void add_index(const Add& add, const Setting& c, const Rows& f) {
  add(OpId::kWriteLatents, f.latents, [c, f](Problem& b) {
    auto& p = b.make<WriteLatentsParams>();
    p.x = b.in(DType::kF32, {c.tokens, c.m.kv_lora}),
    p.pool = b.paged({.dtype = f.dtype, .width = c.m.kv_lora, .sequences = c.sequences, .rows = c.end(), .block_rows = 64, .written = true}),
    p.batch = b.ragged(c.batch());
  });
  add(OpId::kIndexKeys, f.keys, [c, f](Problem& b) {
    auto& p = b.make<IndexKeysParams>();
    const int64_t dx = c.m.index_width;
    p.k = b.in(DType::kF32, {c.tokens, dx}), p.gate = b.in(DType::kF32, {c.tokens, dx});
    p.norm_weight = b.in(DType::kBF16, {dx}), p.norm_bias = b.in(DType::kBF16, {dx}), p.eps = 1e-6f, p.ape = b.in(DType::kBF16, {c.m.kpool, dx});
    p.ring = b.inout(DType::kF32, {c.sequences, 2 * c.m.kpool, 2, dx}), p.slot = b.indices(c.numbered());
    p.keys = b.paged({.dtype = f.dtype, .width = dx, .sequences = c.sequences, .rows = c.end() / c.m.kpool + 1, .block_rows = 16, .written = true}),
    p.batch = b.ragged(c.batch());
  });
  add(OpId::kIndexSelect, f.pools, [c, f](Problem& b) {
    auto& p = b.make<IndexSelectParams>();
    p.q = b.in(DType::kF32, {c.tokens, c.m.index_heads, c.m.index_width}), p.weights = b.in(DType::kF32, {c.tokens, c.m.index_heads});
    p.keys = b.paged({.dtype = f.dtype, .width = c.m.index_width, .sequences = c.sequences, .rows = c.end() / c.m.kpool + 1, .block_rows = 16}),
    p.batch = b.ragged(c.batch());
    p.kpool = static_cast<int32_t>(c.m.kpool), p.selection = b.out(DType::kI32, {c.tokens, c.m.pools});
  });
}

KvB kv_b(Problem& b, const ModelShape& m) {
  return {.matrix = b.matrix(kBF16Weights, m.heads * (m.nope + m.value), m.kv_lora),
          .nope = static_cast<int32_t>(m.nope),
          .value = static_cast<int32_t>(m.value)};
}

void add_attention(const Add& add, const Setting& c, const Rows& f) {
  const ModelShape& m = c.m;
  const auto latents = [=](Problem& b) {
    return b.paged({.dtype = f.dtype, .width = m.kv_lora, .sequences = c.sequences, .rows = c.end(), .block_rows = 64});
  };
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(m.nope)));
  add(OpId::kMlaAttend, f.latents, [=](Problem& b) {
    auto& p = b.make<MlaAttendParams>();
    p.q = b.in(DType::kF32, {c.tokens, m.heads, m.kv_lora}), p.latents = latents(b);
    p.selection = first_pools(b, c), p.batch = b.ragged(c.batch()), p.scale = scale;
    p.out = b.out(DType::kF32, {c.tokens, m.heads, m.kv_lora});
  });
  add(OpId::kMlaExpanded, f.heads, [=](Problem& b) {
    auto& p = b.make<MlaExpandedParams>();
    p.q = b.in(DType::kF32, {c.tokens, m.heads, m.nope}), p.kv_b = kv_b(b, m), p.latents = latents(b);
    p.selection = first_pools(b, c), p.batch = b.ragged(c.batch()), p.scale = scale;
    p.compute = c.compute, p.out = b.out(DType::kF32, {c.tokens, m.heads, m.value});
  });
}

void add_mla(const Add& add, const Setting& c) {
  const ModelShape& m = c.m;
  add(OpId::kMlaAbsorb, "heads", [=](Problem& b) {
    auto& p = b.make<MlaAbsorbParams>();
    p.q = b.in(DType::kF32, {c.tokens, m.heads, m.nope}), p.kv_b = kv_b(b, m), p.compute = c.compute,
    p.out = b.out(DType::kF32, {c.tokens, m.heads, m.kv_lora});
  });
  add(OpId::kMlaUnabsorb, "heads", [=](Problem& b) {
    auto& p = b.make<MlaUnabsorbParams>();
    p.z = b.in(DType::kF32, {c.tokens, m.heads, m.kv_lora}), p.kv_b = kv_b(b, m), p.compute = c.compute,
    p.out = b.out(DType::kF32, {c.tokens, m.heads, m.value});
  });
}

void add_route(const Add& add, const Setting& c) {
  add(OpId::kRoute, "experts", [c](Problem& b) {
    auto& p = b.make<RouteParams>();
    p.logits = b.in(DType::kF32, {c.tokens, c.m.experts}), p.bias = b.in(DType::kF32, {c.m.experts}, normal(0.1)), p.scale = 2.5f;
    p.ids = b.out(DType::kI32, {c.tokens, c.m.chosen}), p.weights = b.out(DType::kF32, {c.tokens, c.m.chosen});
  });
}

void add_moe(const Add& add, const Setting& c, const char* name, const Weights& weights) {
  add(OpId::kMoe, name, [c, weights](Problem& b) {
    auto& p = b.make<MoeParams>();
    std::vector<int32_t> ids;
    for (int64_t t = 0; t < c.tokens; ++t) {  // evenly spread, another set for each row
      std::vector<int32_t> row;
      const int64_t first = static_cast<int64_t>(mix(static_cast<uint64_t>(t)) % static_cast<uint64_t>(c.m.experts));
      for (int64_t i = 0; i < c.m.chosen; ++i) row.push_back(static_cast<int32_t>((first + i * c.m.experts / c.m.chosen) % c.m.experts));
      std::sort(row.begin(), row.end());
      ids.insert(ids.end(), row.begin(), row.end());
    }
    p.x = b.in(DType::kF32, {c.tokens, c.m.hidden}), p.ids = b.indices(ids, {c.tokens, c.m.chosen});
    p.weights = b.in(DType::kF32, {c.tokens, c.m.chosen}, uniform(0.1, 0.6));
    const auto experts = static_cast<int32_t>(c.m.experts);
    p.gate = b.stack(weights, experts, c.m.inner, c.m.hidden), p.up = b.stack(weights, experts, c.m.inner, c.m.hidden);
    p.down = b.stack(weights, experts, c.m.hidden, c.m.inner);
    p.experts_total = experts, p.limit = 10, p.compute = c.compute, p.y = b.out(DType::kF32, {c.tokens, c.m.hidden});
  });
}

/// The products of a checkpoint with INT8 weights and activations.
void add_int8(const Add& add, const Setting& setting) {
  Setting c = setting;
  c.compute = Compute::kInt8;
  const int64_t kda = c.m.kda_heads * c.m.kda_width;
  add_product(add, c, "int8_kda_projections", {{kInt8Weights, kda}, {kInt8Weights, kda}, {kInt8Weights, kda}}, c.m.hidden);
  add_product(add, c, "int8_kda_o", {{kInt8Weights, c.m.hidden}}, kda, c.m.kda_width);
  add_product(add, c, "int8_dense_down", {{kInt8Weights, c.m.hidden}}, c.m.dense, kDownLeafChannels);
  add_gate_up(add, c, "int8_dense", kInt8Weights);
  add_moe(add, c, "int8_experts", kInt8Weights);
  add(OpId::kRowAmax, "cut_row", [=](Problem& b) {
    auto& p = b.make<RowAmaxParams>();
    p.x = b.in(DType::kF32, {c.tokens, kda}), p.out = b.out(DType::kF32, {c.tokens});
  });
  add(OpId::kScaleSums, "cut_row", [=](Problem& b) {
    auto& p = b.make<ScaleSumsParams>();
    std::vector<int32_t> sums(static_cast<size_t>(c.tokens * c.m.hidden));
    for (size_t i = 0; i < sums.size(); ++i) sums[i] = static_cast<int32_t>(mix(i) % 200'000) - 100'000;
    p.sums = b.indices(sums, {c.tokens, c.m.hidden}), p.x_amax = b.in(DType::kF32, {c.tokens}, uniform(1, 2));
    p.scales = b.in(DType::kF32, {c.m.hidden, 1}, uniform(0.01, 0.02)), p.y = b.out(DType::kF32, {c.tokens, c.m.hidden});
  });
}

}  // namespace

const ModelShape& builtin_shape() {
  static const ModelShape shape{.name = "built-in",
                                .hidden = 384,
                                .streams = 4,
                                .kda_heads = 4,
                                .kda_width = 128,
                                .conv = 4,
                                .heads = 4,
                                .nope = 128,
                                .value = 128,
                                .q_lora = 128,
                                .kv_lora = 128,
                                .index_heads = 8,
                                .index_width = 64,
                                .pools = 64,
                                .kpool = 4,
                                .experts = 8,
                                .chosen = 2,
                                .inner = 128,
                                .dense = 512,
                                .vocabulary = 3584};
  return shape;
}

const ModelShape& published_shape() {
  static const ModelShape shape{.name = "published",
                                .hidden = 4096,
                                .streams = 4,
                                .kda_heads = 64,
                                .kda_width = 128,
                                .conv = 4,
                                .heads = 64,
                                .nope = 256,
                                .value = 256,
                                .q_lora = 1536,
                                .kv_lora = 512,
                                .index_heads = 32,
                                .index_width = 128,
                                .pools = 512,
                                .kpool = 4,
                                .experts = 288,
                                .chosen = 8,
                                .inner = 2048,
                                .dense = 12288,
                                .vocabulary = 154880};
  return shape;
}

std::vector<Case> model_cases(const ModelShape& shape, int64_t tokens, int64_t sequences, int64_t position, Compute compute) {
  std::vector<Case> out;
  const Setting setting{.m = shape, .tokens = tokens, .sequences = sequences, .position = position, .compute = compute};
  const Add add = [&](OpId op, const char* name, std::function<void(Problem&)> build) {
    out.push_back({.op = op, .name = name, .build = std::move(build)});
  };
  add_rows(add, setting);
  add_products(add, setting);
  add_kda(add, setting);
  for (const Rows& rows : kRows) {
    add_index(add, setting, rows);
    add_attention(add, setting, rows);
  }
  add_mla(add, setting);
  add_route(add, setting);
  add_moe(add, setting, "experts", kFp8Weights);
  add_int8(add, setting);
  return out;
}

}  // namespace lathe::ops::cases
