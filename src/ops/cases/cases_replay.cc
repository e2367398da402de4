// Replay decoding: windows over checkpoint and ring, folds inside a window, flushes and reconstructions.

#include <cmath>
#include <limits>
#include <numeric>

#include "ops/cases/cases.h"

namespace lathe::ops::cases {
namespace {

/// Format of states, and of the ring's keys and values.
struct Formats {
  DType state = DType::kF32, keys = DType::kF32, values = DType::kF32;
};
constexpr Formats kFloat{};
constexpr Formats kMixed{.state = DType::kF32, .keys = DType::kBF16, .values = DType::kF32};
constexpr Formats kNarrow{.state = DType::kF16, .keys = DType::kBF16, .values = DType::kBF16};
constexpr Formats kCodes{.state = DType::kI8, .keys = DType::kBF16, .values = DType::kBF16};

struct Window {
  const char* name;
  std::vector<int32_t> rows, start, checkpoint;
  int64_t heads, keys, values;
  Formats formats{};
  int64_t ring = 16;
  std::vector<int32_t> folds{};  ///< rows of the step that stand at a checkpoint
  bool nonfinite = false;
  bool fresh = false;   ///< sequences have no state yet
  bool strong = false;  ///< the ring's decays are near −60, and its keys have grown by as much
};

enum class Use : uint8_t { kRead, kWritten };

/// Memory of one kind in a case of shape `window`.
struct Pool {
  const Window& window;
  DType type;
  int64_t rows;
  Use use;
};

View place(Problem& b, const Pool& pool, int64_t width, Fill fill) {
  const std::vector<int64_t> shape = {pool.rows, pool.window.heads, width};
  return pool.use == Use::kWritten ? b.inout(pool.type, shape, fill, 2) : b.in(pool.type, shape, fill, 2);
}

View states_of(Problem& b, const Pool& pool) {
  const std::vector<int64_t> shape = {pool.rows, pool.window.heads, pool.window.keys, pool.window.values};
  const Fill fill = normal(pool.type == DType::kI8 ? 40 : 0.3);
  return pool.use == Use::kWritten ? b.inout(pool.type, shape, fill) : b.in(pool.type, shape, fill, 16);  // rows of codes stay aligned
}
View scales_of(Problem& b, Pool pool) {
  if (pool.type != DType::kI8) return {};
  pool.type = DType::kF32;
  return place(b, pool, pool.window.values, uniform(0.004, 0.01));
}

/// Rings as some tokens left them, with decays down to −2 or near −60.
ReplayRing ring_of(Problem& b, const Window& c, Use use) {
  const auto slots = static_cast<int64_t>(c.rows.size()) + 1;
  const auto make = [&](DType type, const std::vector<int64_t>& shape, Fill fill) {
    return use == Use::kWritten ? b.inout(type, shape, fill) : b.in(type, shape, fill, 6);
  };
  return {.keys = make(c.formats.keys, {slots, c.ring, c.heads, c.keys}, normal(c.strong ? 3e25 : 0.3)),
          .values = make(c.formats.values, {slots, c.ring, c.heads, c.values}, normal(0.5)),
          .decay = make(DType::kF32, {slots, c.ring - 1, c.heads, c.keys}, c.strong ? uniform(-61, -59) : uniform(-2, 0))};
}

std::vector<int32_t> backwards(size_t count) {
  std::vector<int32_t> slots(count);
  std::iota(slots.rbegin(), slots.rend(), 0);
  return slots;
}

void verify_case(std::vector<Case>& out, const Window& c) {
  const bool exact = c.formats.keys == DType::kF32 && c.formats.values == DType::kF32 && (c.folds.empty() || c.formats.state == DType::kF32);
  out.push_back({.op = OpId::kKdaVerify,
                 .name = c.name,
                 .build =
                     [c](Problem& b) {
                       auto& p = b.make<KdaVerifyParams>();
                       const Batch batch{.rows = c.rows, .start = c.start};
                       const int64_t tokens = batch.tokens();
                       const auto sequences = static_cast<int64_t>(c.rows.size());
                       p.q = b.in(DType::kF32, {tokens, c.heads, c.keys}, normal(), 5),
                       p.k = b.in(DType::kF32, {tokens, c.heads, c.keys}, normal(), 1);
                       p.v = b.in(DType::kF32, {tokens, c.heads, c.values}, normal(), 3);
                       p.g = b.in(DType::kF32, {tokens, c.heads * c.keys}, uniform(-5, 0), 2);
                       p.beta = b.in(DType::kF32, {tokens, c.heads}, uniform(0, 1), 1);
                       p.states = states_of(b, {c, c.formats.state, sequences, Use::kRead});
                       p.states_scales = scales_of(b, {c, c.formats.state, sequences, Use::kRead});
                       std::vector<int32_t> rows = backwards(c.rows.size());
                       if (c.fresh) rows.assign(rows.size(), -1);
                       p.state = b.indices(rows, {sequences}), p.checkpoint = b.indices(c.checkpoint, {sequences});
                       std::vector<int32_t> slots(c.rows.size());
                       for (size_t s = 0; s < slots.size(); ++s) slots[s] = static_cast<int32_t>(s) + 1;
                       p.slot = b.indices(slots, {sequences});
                       p.ring = ring_of(b, c, Use::kWritten);
                       std::vector<int32_t> fold(static_cast<size_t>(tokens));
                       for (const int32_t row : c.folds) fold[static_cast<size_t>(row)] = 1;
                       p.fold = b.indices(fold, {tokens}), p.batch = b.ragged(batch);
                       p.o = b.out(DType::kF32, {tokens, c.heads, c.values}, 3);
                       if (c.nonfinite) p.v.f32()[p.v.step(0)] = std::numeric_limits<float>::quiet_NaN();
                     },
                 .tolerance = {.relative = 1e-5,
                               .scaled = exact                           ? 1e-5
                                         : c.formats.state == DType::kI8 ? 8e-3
                                                                         : 2e-3,
                               .same_class = c.nonfinite},
                 // A piece that begins behind a fold would need the flush in between.
                 .parts = c.folds.empty() ? Parts::kSequences : Parts::kWhole,
                 .exact_counts = false});
}

struct Flush {
  DType entering, kept;
  std::vector<int32_t> to;
  bool elsewhere = false;  ///< into another row: a reconstruction
};

void flush_case(std::vector<Case>& out, const Window& c, const Flush& f) {
  out.push_back({.op = OpId::kKdaFlush,
                 .name = c.name,
                 .build =
                     [c, f](Problem& b) {
                       auto& p = b.make<KdaFlushParams>();
                       const auto sequences = static_cast<int64_t>(c.rows.size());
                       p.states = states_of(b, {c, f.kept, sequences, Use::kWritten}),
                       p.states_scales = scales_of(b, {c, f.kept, sequences, Use::kWritten});
                       if (f.elsewhere) {
                         p.entering = states_of(b, {c, f.entering, sequences, Use::kRead});
                         p.entering_scales = scales_of(b, {c, f.entering, sequences, Use::kRead});
                       } else {
                         p.entering = p.states, p.entering_scales = p.states_scales;
                       }
                       std::vector<int32_t> rows = backwards(c.rows.size()), into = rows;
                       if (f.elsewhere) std::iota(into.begin(), into.end(), 0);
                       if (into.size() > 2) into[2] = -1;
                       if (c.fresh) rows[0] = -1;
                       p.state_in = b.indices(rows, {sequences}), p.into = b.indices(into, {sequences});
                       p.checkpoint = b.indices(c.checkpoint, {sequences}), p.to = b.indices(f.to, {sequences});
                       p.slot = b.indices(backwards(c.rows.size()), {sequences});
                       p.ring = ring_of(b, c, Use::kRead);
                       for (size_t s = 0; s < f.to.size(); ++s) p.folded_max = std::max<int64_t>(p.folded_max, f.to[s] - c.checkpoint[s]);
                       if (c.nonfinite) p.ring.decay.f32()[0] = std::numeric_limits<float>::quiet_NaN();
                     },
                 .tolerance = {.relative = 1e-6, .scaled = 4e-6, .same_class = c.nonfinite},
                 .exact_counts = false});
}

void add_flush_cases(std::vector<Case>& out) {
  const Window base{.name = "flush_128x128", .rows = {1, 1}, .start = {}, .checkpoint = {16, 3}, .heads = 2, .keys = 128, .values = 128};
  flush_case(out, base, {.entering = DType::kF32, .kept = DType::kF32, .to = {32, 19}});
  const auto add = [&](const char* name, Window c, const Flush& f) {
    c.name = name;
    flush_case(out, c, f);
  };
  Window odd{.name = "", .rows = {1, 1, 1, 1}, .start = {}, .checkpoint = {5, 0, 7, 30}, .heads = 3, .keys = 33, .values = 31};
  add("elsewhere_33x31", odd, {.entering = DType::kF32, .kept = DType::kF32, .to = {9, 1, 8, 30}, .elsewhere = true});
  odd.formats = kNarrow;
  add("f16_33x31", odd, {.entering = DType::kF16, .kept = DType::kF16, .to = {9, 1, 8, 30}});
  add("f16_into_f32", odd, {.entering = DType::kF16, .kept = DType::kF32, .to = {9, 1, 8, 30}, .elsewhere = true});
  odd.formats = kCodes, odd.fresh = true;
  add("i8_33x31", odd, {.entering = DType::kI8, .kept = DType::kI8, .to = {9, 1, 8, 30}});
  add("i8_elsewhere", odd, {.entering = DType::kI8, .kept = DType::kI8, .to = {5, 0, 7, 44}, .elsewhere = true});
  odd.formats = kFloat, odd.strong = true;
  add("strong_decay", odd, {.entering = DType::kF32, .kept = DType::kF32, .to = {9, 1, 8, 30}});
  odd.strong = false, odd.nonfinite = true;
  add("nonfinite_flush", odd, {.entering = DType::kF32, .kept = DType::kF32, .to = {9, 1, 8, 30}});
  Window wide{.name = "", .rows = {1, 1, 1}, .start = {}, .checkpoint = {16, 3, 9}, .heads = 2, .keys = 128, .values = 128};
  wide.formats = kNarrow;
  add("f16_128x128", wide, {.entering = DType::kF16, .kept = DType::kF16, .to = {31, 3, 10}});
  add("f16_into_f32_128x128", wide, {.entering = DType::kF16, .kept = DType::kF32, .to = {20, 3, 10}, .elsewhere = true});
  wide.formats = kCodes;
  add("i8_128x128", wide, {.entering = DType::kI8, .kept = DType::kI8, .to = {24, 3, 10}});
  wide.fresh = true;
  add("i8_fresh_128x128", wide, {.entering = DType::kI8, .kept = DType::kI8, .to = {24, 4, 9}, .elsewhere = true});
  add("no_sequences", {.name = "", .rows = {}, .start = {}, .checkpoint = {}, .heads = 2, .keys = 16, .values = 16},
      {.entering = DType::kF32, .kept = DType::kF32, .to = {}});
}

}  // namespace

void add_replay_cases(std::vector<Case>& out) {
  verify_case(
      out, {.name = "decode_128x128", .rows = {1, 1, 1}, .start = {20, 16, 31}, .checkpoint = {16, 16, 16}, .heads = 2, .keys = 128, .values = 128});
  verify_case(out, {.name = "window_24x40", .rows = {5, 0, 3}, .start = {9, 4, 0}, .checkpoint = {3, 0, 0}, .heads = 3, .keys = 24, .values = 40});
  verify_case(out, {.name = "fresh_5x7", .rows = {4}, .start = {0}, .checkpoint = {0}, .heads = 1, .keys = 5, .values = 7, .fresh = true});
  verify_case(
      out,
      {.name = "bf16_keys_33x31", .rows = {2, 3}, .start = {40, 7}, .checkpoint = {29, 7}, .heads = 2, .keys = 33, .values = 31, .formats = kMixed});
  verify_case(
      out,
      {.name = "f16_bf16_64x64", .rows = {1, 6}, .start = {14, 3}, .checkpoint = {8, 0}, .heads = 2, .keys = 64, .values = 64, .formats = kNarrow});
  verify_case(
      out,
      {.name = "i8_bf16_64x64", .rows = {1, 6}, .start = {14, 3}, .checkpoint = {8, 0}, .heads = 2, .keys = 64, .values = 64, .formats = kCodes});
  verify_case(
      out,
      {.name = "folds_16x16", .rows = {7, 3}, .start = {10, 5}, .checkpoint = {8, 5}, .heads = 2, .keys = 16, .values = 16, .folds = {2, 5, 7, 9}});
  verify_case(out, {.name = "folds_i8_32x24",
                    .rows = {6, 2},
                    .start = {10, 5},
                    .checkpoint = {8, 2},
                    .heads = 1,
                    .keys = 32,
                    .values = 24,
                    .formats = kCodes,
                    .folds = {3, 6}});
  verify_case(out, {.name = "folds_strong_decay_16x24",
                    .rows = {3, 2},
                    .start = {19, 12},
                    .checkpoint = {8, 5},
                    .heads = 2,
                    .keys = 16,
                    .values = 24,
                    .folds = {1, 4},
                    .strong = true});
  verify_case(out, {.name = "ring_is_full", .rows = {2}, .start = {33}, .checkpoint = {27}, .heads = 2, .keys = 16, .values = 16, .ring = 8});
  verify_case(out,
              {.name = "nonfinite", .rows = {3, 4}, .start = {9, 9}, .checkpoint = {7, 8}, .heads = 2, .keys = 16, .values = 16, .nonfinite = true});
  const auto head = [&](const char* name, const Formats& formats, std::vector<int32_t> folds) {
    verify_case(out, {.name = name,
                      .rows = {6, 1, 0, 9},
                      .start = {40, 15, 3, 2},
                      .checkpoint = {19, 0, 3, 2},
                      .heads = 1,
                      .keys = 128,
                      .values = 128,
                      .formats = formats,
                      .ring = 32,
                      .folds = std::move(folds)});
  };
  head("window_128x128", kFloat, {}), head("window_mixed_128x128", kMixed, {});
  head("window_f16_128x128", kNarrow, {}), head("window_i8_128x128", kCodes, {});
  head("folds_128x128", kFloat, {3, 8, 14}), head("folds_f16_128x128", kNarrow, {0, 9}), head("folds_i8_128x128", kCodes, {3, 8, 14});
  verify_case(out, {.name = "all_empty", .rows = {0, 0}, .start = {9, 0}, .checkpoint = {7, 0}, .heads = 2, .keys = 16, .values = 16});
  add_flush_cases(out);
}

}  // namespace lathe::ops::cases
