#include <cmath>
#include <limits>
#include <numeric>

#include "ops/cases/cases.h"

namespace lathe::ops::cases {
namespace {

/// Slots of a pool with one more than there are sequences, in an order that is not the identity.
std::vector<int32_t> shuffled_slots(size_t sequences) {
  std::vector<int32_t> slots(sequences);
  for (size_t s = 0; s < sequences; ++s) slots[s] = static_cast<int32_t>((s * 2 + 1) % (sequences + 1));
  if (sequences % 2 == 0) return slots;
  std::iota(slots.rbegin(), slots.rend(), 0);
  return slots;
}

struct Conv {
  const char* name;
  Batch batch;
  int64_t channels, taps, ring;
  DType weight = DType::kF32;
  DType kept = DType::kF32;
  bool nonfinite = false;
};

void conv_case(std::vector<Case>& out, const Conv& c) {
  out.push_back({.op = OpId::kShortConv,
                 .name = c.name,
                 .build =
                     [c](Problem& b) {
                       auto& p = b.make<ShortConvParams>();
                       const auto sequences = c.batch.rows.size();
                       p.x = b.in(DType::kF32, {c.batch.tokens(), c.channels}, normal(), 9);
                       p.weight = b.in(c.weight, {c.taps, c.channels}, normal(0.7));
                       p.ring = b.inout(c.kept, {static_cast<int64_t>(sequences) + 1, c.ring, c.channels});
                       p.slot = b.indices(shuffled_slots(sequences), {static_cast<int64_t>(sequences)});
                       p.batch = b.ragged(c.batch);
                       p.out = b.out(DType::kF32, {c.batch.tokens(), c.channels}, 3);
                       if (c.nonfinite) p.x.f32()[2 * p.x.step(0) + 1] = std::numeric_limits<float>::quiet_NaN();
                     },
                 .tolerance = {.relative = 64 * kUnit, .scaled = 8 * kUnit, .same_class = c.nonfinite},
                 .parts = Parts::kSequences});
}

struct Gate {
  const char* name;
  int64_t tokens, heads, keys;
  bool bounded = true;
  DType vectors = DType::kF32;
  double spread = 2;
  bool nonfinite = false;
};

void gate_case(std::vector<Case>& out, const Gate& c) {
  out.push_back({.op = OpId::kKdaGate,
                 .name = c.name,
                 .build =
                     [c](Problem& b) {
                       auto& p = b.make<KdaGateParams>();
                       p.a = b.in(DType::kF32, {c.tokens, c.heads * c.keys}, normal(c.spread), 3);
                       p.b = b.in(DType::kF32, {c.tokens, c.heads}, normal(c.spread), 2);
                       p.a_log = b.in(c.vectors, {c.heads}, uniform(-1, 1.5));
                       p.dt_bias = b.in(c.vectors, {c.heads * c.keys});
                       p.bounded = c.bounded;
                       p.lower_bound = c.bounded ? -5.0f : 0.0f;
                       if (c.nonfinite)
                         p.a.f32()[p.a.step(0)] = std::numeric_limits<float>::quiet_NaN(), p.b.f32()[0] = std::numeric_limits<float>::infinity();
                       p.g = b.out(DType::kF32, {c.tokens, c.heads * c.keys}, 1);
                       p.beta = b.out(DType::kF32, {c.tokens, c.heads}, 1);
                     },
                 .tolerance = {.relative = 2e-5, .absolute = 1e-30, .same_class = c.nonfinite}});
}

enum class Keep : uint8_t { kLast, kEvery, kInPlace };

struct Recurrence {
  const char* name;
  std::vector<int32_t> rows;
  int64_t heads, keys, values;
  Keep keep = Keep::kLast;
  Fill decay = uniform(-5, 0);
  bool pair = false;
  bool nonfinite = false;
  DType state = DType::kF32;
  bool zeros = false;  ///< sequences enter with empty states
  double values_up = 1;
};

/// What beside rounding a state may do to the outputs: the neighbouring code, a step of 2^-10 of the largest in FP16, and 1/254 of a column in INT8 mostly.
Tolerance recurrence_tolerance(const Recurrence& c) {
  const double scaled = c.state == DType::kF32 ? 4e-6 : c.state == DType::kF16 ? 0x1p-10 : 4e-3;
  return {.scaled = scaled, .same_class = c.nonfinite};
}

/// [T, H, width] inside rows of a wider buffer.
View heads_of(const View& rows, int64_t offset, int64_t heads, int64_t width) {
  View view = rows;
  view.data = rows.f32() + offset;
  view.rank = 3;
  view.shape = {rows.dim(0), heads, width};
  view.stride = {rows.step(0), width, 1};
  return view;
}

/// Which state row each row of the step is kept in.
std::vector<int32_t> kept_rows(const Recurrence& c, int32_t entering_rows) {
  std::vector<int32_t> kept;
  for (size_t s = 0; s < c.rows.size(); ++s) {
    for (int32_t i = 0; i < c.rows[s]; ++i) {
      const bool last = i + 1 == c.rows[s];
      const auto t = static_cast<int32_t>(kept.size());
      if (c.keep == Keep::kEvery) {
        kept.push_back(entering_rows + t);
      } else if (c.keep == Keep::kInPlace) {
        kept.push_back(last ? static_cast<int32_t>(s) : -1);
      } else {
        kept.push_back(last ? entering_rows + static_cast<int32_t>(s) : -1);
      }
    }
  }
  return kept;
}

void recurrence_case(std::vector<Case>& out, const Recurrence& c) {
  out.push_back({.op = OpId::kKdaRecurrence,
                 .name = c.name,
                 .build =
                     [c](Problem& b) {
                       auto& p = b.make<KdaRecurrenceParams>();
                       const Batch batch{.rows = c.rows, .start = std::vector<int32_t>(c.rows.size(), 7)};
                       const int64_t tokens = batch.tokens();
                       const auto sequences = static_cast<int32_t>(c.rows.size());
                       const View rows = b.in(DType::kF32, {tokens, c.heads * (2 * c.keys + c.values)}, normal(), 5);
                       p.q = heads_of(rows, 0, c.heads, c.keys);
                       p.k = heads_of(rows, c.heads * c.keys, c.heads, c.keys);
                       p.v = heads_of(rows, 2 * c.heads * c.keys, c.heads, c.values);
                       p.g = b.in(DType::kF32, {tokens, c.heads * c.keys}, c.decay, 2);
                       p.beta = b.in(DType::kF32, {tokens, c.heads}, uniform(0, 1), 1);
                       // Rows 0 … S−1 are what the sequences enter with; odd sequences of separate pools begin at zero.
                       std::vector<int32_t> in(c.rows.size());
                       for (size_t s = 0; s < in.size(); ++s) in[s] = c.keep != Keep::kInPlace && s % 2 == 1 ? -1 : static_cast<int32_t>(s);
                       const bool codes = c.state == DType::kI8;
                       const Fill fill = c.zeros ? constant(0) : normal(codes ? 40 : 0.3);
                       const Fill scale = c.zeros ? constant(0) : uniform(0.004, 0.01);
                       const int64_t kept = sequences + std::max<int64_t>(tokens, sequences);
                       p.states = b.inout(c.state, {kept, c.heads, c.keys, c.values}, fill);
                       p.entering = c.keep == Keep::kLast ? b.in(c.state, {sequences, c.heads, c.keys, c.values}, fill, 4) : p.states;
                       if (codes) {
                         p.states_scales = b.inout(DType::kF32, {kept, c.heads, c.values}, scale, 3);
                         p.entering_scales = c.keep == Keep::kLast ? b.in(DType::kF32, {sequences, c.heads, c.values}, scale, 1) : p.states_scales;
                       }
                       p.state_in = b.indices(in, {sequences});
                       p.state_out = b.indices(kept_rows(c, sequences), {tokens});
                       p.batch = b.ragged(batch);
                       p.o = b.out(DType::kF32, {tokens, c.heads, c.values}, 3);
                       if (c.pair)
                         p.pair_m = b.out(DType::kF32, {sequences, c.heads, c.keys, c.keys}),
                         p.pair_h = b.out(DType::kF32, {sequences, c.heads, c.keys, c.values});
                       if (c.nonfinite) p.v.f32()[p.v.step(0)] = std::numeric_limits<float>::quiet_NaN();
                       each_element(p.v, [&](int64_t at) { p.v.f32()[at] *= static_cast<float>(c.values_up); });
                     },
                 .tolerance = recurrence_tolerance(c),
                 .parts = c.keep == Keep::kEvery && !c.pair ? Parts::kSequences : Parts::kWhole,
                 .exact_counts = false});  // which rows are kept is known on the device only
}

struct HeadNorm {
  const char* name;
  int64_t tokens, heads, width;
  DType weight = DType::kBF16;
  bool nonfinite = false;
};

void gated_norm_case(std::vector<Case>& out, const HeadNorm& c) {
  out.push_back({.op = OpId::kGatedNorm,
                 .name = c.name,
                 .build =
                     [c](Problem& b) {
                       auto& p = b.make<GatedNormParams>();
                       p.o = b.in(DType::kF32, {c.tokens, c.heads, c.width}, normal(0.1), 3);
                       p.gate = b.in(DType::kF32, {c.tokens, c.heads * c.width}, normal(3), 1);
                       p.weight = b.in(c.weight, {c.width}, normal(0.2, 1));
                       p.eps = 1e-5f;
                       p.out = b.out(DType::kF32, {c.tokens, c.heads * c.width}, 5);
                       if (c.nonfinite)
                         p.o.f32()[p.o.step(0)] = std::numeric_limits<float>::infinity(), p.gate.f32()[1] = std::numeric_limits<float>::quiet_NaN();
                     },
                 .tolerance = {.relative = 128 * kUnit, .absolute = 1e-30, .same_class = c.nonfinite}});
}

void conv_cases(std::vector<Case>& out) {
  conv_case(out, {.name = "w4_c64", .batch = {{5, 1, 8}, {0, 3, 2}}, .channels = 64, .taps = 4, .ring = 3});
  conv_case(out, {.name = "w4_c5_ring_8", .batch = {{3, 12}, {1, 100}}, .channels = 5, .taps = 4, .ring = 8});
  conv_case(out, {.name = "w4_bf16_weight", .batch = {{9, 0, 1, 4}, {0, 5, 7, 1}}, .channels = 130, .taps = 4, .ring = 4, .weight = DType::kBF16});
  conv_case(out,
            {.name = "w4_bf16_ring", .batch = {{2, 7}, {5, 0}}, .channels = 33, .taps = 4, .ring = 3, .weight = DType::kBF16, .kept = DType::kBF16});
  conv_case(out, {.name = "w4_bf16_ring_long",
                  .batch = {{1, 21, 1, 3}, {0, 0, 30, 9}},
                  .channels = 64,
                  .taps = 4,
                  .ring = 8,
                  .weight = DType::kBF16,
                  .kept = DType::kBF16});
  conv_case(
      out, {.name = "bf16_ring_nonfinite", .batch = {{4, 5}, {0, 4}}, .channels = 20, .taps = 4, .ring = 3, .kept = DType::kBF16, .nonfinite = true});
  conv_case(out, {.name = "w1", .batch = {{3}, {2}}, .channels = 16, .taps = 1, .ring = 1});
  conv_case(out, {.name = "w2", .batch = {{3, 1}, {0, 1}}, .channels = 17, .taps = 2, .ring = 1});
  conv_case(out, {.name = "w7", .batch = {{10, 2}, {3, 0}}, .channels = 31, .taps = 7, .ring = 6});
  conv_case(out, {.name = "decode", .batch = {{1, 1, 1, 1, 1}, {9, 0, 3, 2, 77}}, .channels = 96, .taps = 4, .ring = 3, .weight = DType::kBF16});
  conv_case(out, {.name = "nonfinite", .batch = {{3, 4}, {0, 4}}, .channels = 20, .taps = 4, .ring = 3, .nonfinite = true});
  conv_case(out, {.name = "all_empty", .batch = {{0, 0}, {4, 0}}, .channels = 16, .taps = 4, .ring = 3});
}

void recurrence_cases(std::vector<Case>& out) {
  recurrence_case(out, {.name = "h2_16x16", .rows = {5, 1, 9}, .heads = 2, .keys = 16, .values = 16});
  recurrence_case(out, {.name = "h2_128x128", .rows = {4, 7}, .heads = 2, .keys = 128, .values = 128});
  recurrence_case(out, {.name = "h1_5x7", .rows = {6}, .heads = 1, .keys = 5, .values = 7});
  recurrence_case(out, {.name = "h3_24x40_every", .rows = {5, 0, 3}, .heads = 3, .keys = 24, .values = 40, .keep = Keep::kEvery});
  recurrence_case(out, {.name = "h1_64x64_every", .rows = {11, 2}, .heads = 1, .keys = 64, .values = 64, .keep = Keep::kEvery});
  recurrence_case(out, {.name = "h2_128x128_decode", .rows = {1, 1, 1}, .heads = 2, .keys = 128, .values = 128, .keep = Keep::kInPlace});
  recurrence_case(out, {.name = "h2_128x128_uneven", .rows = {2, 0, 1}, .heads = 2, .keys = 128, .values = 128, .keep = Keep::kInPlace});
  recurrence_case(out, {.name = "h2_128x128_gaps", .rows = {0, 1, 0, 1, 1}, .heads = 2, .keys = 128, .values = 128, .keep = Keep::kInPlace});
  recurrence_case(out, {.name = "h2_33x31_in_place", .rows = {3, 0, 2}, .heads = 2, .keys = 33, .values = 31, .keep = Keep::kInPlace});
  recurrence_case(out, {.name = "slow_decay", .rows = {70}, .heads = 1, .keys = 32, .values = 32, .decay = uniform(-1e-5, -1e-7)});
  recurrence_case(out, {.name = "pair_16x16", .rows = {6, 0, 1}, .heads = 2, .keys = 16, .values = 16, .pair = true});
  recurrence_case(out, {.name = "pair_64x24", .rows = {9, 2}, .heads = 1, .keys = 64, .values = 24, .decay = uniform(-1, 0), .pair = true});
  recurrence_case(out, {.name = "nonfinite", .rows = {3, 4}, .heads = 2, .keys = 16, .values = 16, .nonfinite = true});
  recurrence_case(out, {.name = "all_empty", .rows = {0, 0}, .heads = 2, .keys = 16, .values = 16});
}

/// States as FP16, and as INT8 with a scale for each column.
void state_cases(std::vector<Case>& out) {
  for (const DType state : {DType::kF16, DType::kI8}) {
    const bool half = state == DType::kF16;
    const auto add = [&](const char* f16, const char* i8, Recurrence c) {
      c.name = half ? f16 : i8, c.state = state;
      recurrence_case(out, c);
    };
    add("f16_128x128_decode", "i8_128x128_decode", {.name = "", .rows = {1, 1, 1}, .heads = 2, .keys = 128, .values = 128, .keep = Keep::kInPlace});
    add("f16_24x40_every", "i8_24x40_every", {.name = "", .rows = {5, 0, 3}, .heads = 3, .keys = 24, .values = 40, .keep = Keep::kEvery});
    add("f16_33x31_in_place", "i8_33x31_in_place", {.name = "", .rows = {3, 0, 2}, .heads = 2, .keys = 33, .values = 31, .keep = Keep::kInPlace});
    add("f16_16x16_last", "i8_16x16_last", {.name = "", .rows = {5, 1, 9}, .heads = 2, .keys = 16, .values = 16});
    add("f16_64x64_zeros", "i8_64x64_zeros", {.name = "", .rows = {1, 4}, .heads = 1, .keys = 64, .values = 64, .keep = Keep::kEvery, .zeros = true});
    add("f16_slow_decay", "i8_slow_decay",
        {.name = "", .rows = {40}, .heads = 1, .keys = 32, .values = 32, .keep = Keep::kEvery, .decay = uniform(-1e-5, -1e-7)});
    add("f16_saturates", "i8_large",
        {.name = "", .rows = {3, 1}, .heads = 2, .keys = 16, .values = 16, .keep = Keep::kEvery, .decay = uniform(-1e-3, 0), .values_up = 1e6});
    add("f16_nonfinite", "i8_nonfinite", {.name = "", .rows = {3, 4}, .heads = 2, .keys = 16, .values = 16, .keep = Keep::kEvery, .nonfinite = true});
    add("f16_all_empty", "i8_all_empty", {.name = "", .rows = {0, 0}, .heads = 2, .keys = 16, .values = 16});
  }
}

}  // namespace

void add_kda_cases(std::vector<Case>& out) {
  conv_cases(out);
  gate_case(out, {.name = "bounded_h2_16", .tokens = 3, .heads = 2, .keys = 16});
  gate_case(out, {.name = "bounded_h4_128", .tokens = 5, .heads = 4, .keys = 128});
  gate_case(out, {.name = "bounded_h3_7_bf16", .tokens = 2, .heads = 3, .keys = 7, .vectors = DType::kBF16});
  gate_case(out, {.name = "bounded_far", .tokens = 3, .heads = 1, .keys = 33, .spread = 12});
  gate_case(out, {.name = "unbounded_h2_31", .tokens = 4, .heads = 2, .keys = 31, .bounded = false});
  gate_case(out, {.name = "unbounded_far", .tokens = 3, .heads = 2, .keys = 16, .bounded = false, .spread = 14});
  gate_case(out, {.name = "nonfinite", .tokens = 3, .heads = 2, .keys = 19, .nonfinite = true});
  gate_case(out, {.name = "no_rows", .tokens = 0, .heads = 2, .keys = 16});
  recurrence_cases(out);
  state_cases(out);
  gated_norm_case(out, {.name = "h2_16", .tokens = 3, .heads = 2, .width = 16});
  gated_norm_case(out, {.name = "h4_128", .tokens = 5, .heads = 4, .width = 128});
  gated_norm_case(out, {.name = "h3_7_f32", .tokens = 2, .heads = 3, .width = 7, .weight = DType::kF32});
  gated_norm_case(out, {.name = "nonfinite", .tokens = 3, .heads = 2, .width = 33, .nonfinite = true});
  gated_norm_case(out, {.name = "no_rows", .tokens = 0, .heads = 2, .width = 16});
}

}  // namespace lathe::ops::cases
