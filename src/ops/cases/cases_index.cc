#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cases/cases.h"

namespace lathe::ops::cases {
namespace {

int64_t furthest(const Batch& batch) {
  int64_t end = 1;
  for (size_t s = 0; s < batch.rows.size(); ++s) end = std::max<int64_t>(end, batch.start[s] + batch.rows[s]);
  return end;
}

struct Latents {
  const char* name;
  Batch batch;
  int64_t width;
  DType pool = DType::kF32;
  int64_t block_rows = 16;
  bool hard = false;  ///< rows of zeros, of subnormals, with an infinity and with one outlier
};

void latents_case(std::vector<Case>& out, const Latents& c) {
  out.push_back({.op = OpId::kWriteLatents,
                 .name = c.name,
                 .build =
                     [c](Problem& b) {
                       auto& p = b.make<WriteLatentsParams>();
                       p.x = b.in(DType::kF32, {c.batch.tokens(), c.width}, normal(), 3);
                       p.pool = b.paged({.dtype = c.pool,
                                         .width = c.width,
                                         .sequences = static_cast<int64_t>(c.batch.rows.size()),
                                         .rows = furthest(c.batch),
                                         .block_rows = c.block_rows,
                                         .written = true});
                       p.batch = b.ragged(c.batch);
                       if (c.batch.tokens() > 1) p.x.f32()[p.x.step(0)] = std::numeric_limits<float>::quiet_NaN();
                       if (!c.hard) return;
                       for (int64_t i = 0; i < c.width; ++i) p.x.f32()[2 * p.x.step(0) + i] = 0, p.x.f32()[3 * p.x.step(0) + i] *= 0x1p-130f;
                       p.x.f32()[4 * p.x.step(0) + c.width - 1] = -std::numeric_limits<float>::infinity(), p.x.f32()[5 * p.x.step(0)] = 3e5f;
                     },
                 .parts = Parts::kSequences});
}

struct Keys {
  const char* name;
  Batch batch;
  int64_t width, pool, ring;
  DType keys = DType::kF32;
  DType vectors = DType::kF32;
  bool nonfinite = false;
};

void keys_case(std::vector<Case>& out, const Keys& c) {
  out.push_back({.op = OpId::kIndexKeys,
                 .name = c.name,
                 .build =
                     [c](Problem& b) {
                       auto& p = b.make<IndexKeysParams>();
                       const auto sequences = static_cast<int64_t>(c.batch.rows.size());
                       p.k = b.in(DType::kF32, {c.batch.tokens(), c.width}, normal(1, 0.5), 3);
                       p.gate = b.in(DType::kF32, {c.batch.tokens(), c.width}, normal(2), 1);
                       p.norm_weight = b.in(c.vectors, {c.width}, normal(0.2, 1));
                       p.norm_bias = b.in(c.vectors, {c.width}, normal(0.1));
                       p.eps = 1e-6f;
                       p.ape = b.in(c.vectors, {c.pool, c.width});
                       p.ring = b.inout(DType::kF32, {sequences + 1, c.ring, 2, c.width});
                       std::vector<int32_t> slots;
                       for (int64_t s = 0; s < sequences; ++s) slots.push_back(static_cast<int32_t>(sequences - s));
                       p.slot = b.indices(slots, {sequences});
                       p.keys = b.paged({.dtype = c.keys,
                                         .width = c.width,
                                         .sequences = sequences,
                                         .rows = furthest(c.batch) / c.pool + 1,
                                         .block_rows = 4,
                                         .written = true});
                       p.batch = b.ragged(c.batch);
                       if (c.nonfinite) p.k.f32()[2 * p.k.step(0)] = std::numeric_limits<float>::quiet_NaN();
                     },
                 .tolerance = {.scaled = 1e-6, .same_class = c.nonfinite},
                 .parts = Parts::kSequences});
}

enum class Data : uint8_t { kRandom, kTies, kNonfinite };

struct Select {
  const char* name;
  Batch batch;
  int64_t heads, width, pools;
  int32_t kpool = 4;
  bool scores = false;
  DType keys = DType::kF32;
  Data data = Data::kRandom;
};

/// score(p) of one row in double, the formula of the contract.
double exact_score(const IndexSelectParams& p, int64_t t, int64_t s, int64_t pool) {
  const int64_t heads = p.q.dim(1);
  const int64_t width = p.q.dim(2);
  const int64_t at = p.keys.table.i32()[s * p.keys.table.step(0) + pool / p.keys.block_rows] * p.keys.block_rows + pool % p.keys.block_rows;
  const auto key = [&](int64_t c) {
    const auto value = static_cast<double>(tensor::load_as_float(p.keys.pool.dtype, p.keys.pool.data, at * width + c));
    return p.keys.scales.present() ? value * static_cast<double>(p.keys.scales.f32()[at * p.keys.scales.step(0) + c / 128]) : value;
  };
  double total = 0;
  for (int64_t h = 0; h < heads; ++h) {
    double product = 0;
    for (int64_t c = 0; c < width; ++c) {
      product += static_cast<double>(p.q.f32()[t * p.q.step(0) + h * p.q.step(1) + c]) * key(c);
    }
    if (product < 0) product = 0;
    total += static_cast<double>(p.weights.f32()[t * p.weights.step(0) + h]) * product;
  }
  return total / std::sqrt(static_cast<double>(heads * width));
}

/// The chosen set must be right up to scores that are nearly equal; order, count and the rest of the row exactly.
std::string judge_row(const IndexSelectParams& p, int64_t t, int64_t s, int64_t position) {
  const int64_t pools = (position + 1) / p.kpool;
  const int64_t most = std::min(pools, p.selection.dim(1));
  const int32_t* const row = p.selection.i32() + t * p.selection.step(0);
  std::vector<bool> chosen(static_cast<size_t>(pools));
  for (int64_t i = 0; i < p.selection.dim(1); ++i) {
    if (i >= most) {
      if (row[i] != -1) return fmt::format("row {}: entry {} is {}, expected -1 behind {} pools", t, i, row[i], most);
      continue;
    }
    if (row[i] < 0 || row[i] >= pools || (i > 0 && row[i] <= row[i - 1]))
      return fmt::format("row {}: entry {} is {} of {} pools, not ascending", t, i, row[i], pools);
    chosen[static_cast<size_t>(row[i])] = true;
  }
  double worst_in = std::numeric_limits<double>::infinity();
  double best_out = -worst_in;
  double largest = 0;
  for (int64_t pool = 0; pool < pools; ++pool) {
    const double score = exact_score(p, t, s, pool);
    largest = std::max(largest, std::abs(score));
    if (chosen[static_cast<size_t>(pool)]) worst_in = std::min(worst_in, score);
    if (!chosen[static_cast<size_t>(pool)]) best_out = std::max(best_out, score);
  }
  if (best_out > worst_in + 1e-5 * largest)
    return fmt::format("row {}: a pool with score {} is left out, one with {} is chosen", t, best_out, worst_in);
  return "";
}

std::string judge_selection(Problem&, Problem& got) {
  const auto& p = got.get<IndexSelectParams>();
  for (int64_t s = 0; s < p.batch.sequences(); ++s) {
    for (int64_t t = p.batch.host_begin[s]; t < p.batch.host_begin[s + 1]; ++t) {
      const std::string wrong = judge_row(p, t, s, p.batch.host_start[s] + t - p.batch.host_begin[s]);
      if (!wrong.empty()) return wrong;
    }
  }
  return "";
}

void select_case(std::vector<Case>& out, const Select& c) {
  Case item{.op = OpId::kIndexSelect,
            .name = c.name,
            .build =
                [c](Problem& b) {
                  auto& p = b.make<IndexSelectParams>();
                  const auto sequences = static_cast<int64_t>(c.batch.rows.size());
                  const int64_t all = furthest(c.batch) / c.kpool;
                  p.q = b.in(DType::kF32, {c.batch.tokens(), c.heads, c.width}, normal(), 3);
                  p.weights = b.in(DType::kF32, {c.batch.tokens(), c.heads}, normal(), 1);
                  p.keys = b.paged({.dtype = c.keys, .width = c.width, .sequences = sequences, .rows = all + 1, .block_rows = 4});
                  p.batch = b.ragged(c.batch);
                  p.kpool = c.kpool;
                  p.selection = b.out(DType::kI32, {c.batch.tokens(), c.pools}, 2);
                  if (c.scores) p.scores = b.out(DType::kF32, {c.batch.tokens(), all + 2}, 1);
                  if (c.data == Data::kTies) {  // small whole numbers: every sum is exact and many are equal
                    for (const View& view : {p.q, p.weights, p.keys.pool})
                      each_element(view, [&](int64_t at) { view.f32()[at] = std::round(view.f32()[at]); });
                  }
                  if (c.data == Data::kNonfinite) {
                    const View& damaged = p.keys.scales.present() ? p.keys.scales : p.keys.pool;
                    for (int64_t i = 0; i < damaged.dim(0); i += 3) damaged.f32()[i * damaged.step(0)] = std::numeric_limits<float>::quiet_NaN();
                    each_element(p.weights, [&](int64_t at) { p.weights.f32()[at] = -1.0f; });  // negative numbers still beat NaN
                  }
                },
            .tolerance = {.scaled = 2e-6, .same_class = c.data == Data::kNonfinite},
            .parts = Parts::kSequences,
            .exact_counts = false};  // the reference reads the keys of a sequence once per row
  if (c.data == Data::kRandom) item.judged = {"selection"}, item.judge = judge_selection;
  out.push_back(item);
}

/// Rows of codes with a scale for each 128 of them.
void code_cases(std::vector<Case>& out) {
  for (const DType type : {DType::kI8, DType::kF8E4M3}) {
    const bool i8 = type == DType::kI8;
    latents_case(out, {.name = i8 ? "i8_512" : "f8_512", .batch = {{5, 0, 1, 20}, {0, 3, 15, 30}}, .width = 512, .pool = type, .hard = true});
    latents_case(out, {.name = i8 ? "i8_200" : "f8_200", .batch = {{7, 2}, {2, 11}}, .width = 200, .pool = type, .block_rows = 4, .hard = true});
    latents_case(out, {.name = i8 ? "i8_33" : "f8_33", .batch = {{3, 9}, {14, 0}}, .width = 33, .pool = type});
    latents_case(out, {.name = i8 ? "i8_empty" : "f8_empty", .batch = {{0, 0}, {3, 0}}, .width = 16, .pool = type});
    keys_case(out, {.name = i8 ? "i8_p4_128" : "f8_p4_128", .batch = {{9, 1, 0, 6}, {0, 3, 5, 2}}, .width = 128, .pool = 4, .ring = 3, .keys = type});
    keys_case(out, {.name = i8 ? "i8_p3_17" : "f8_p3_17", .batch = {{8, 5}, {2, 4}}, .width = 17, .pool = 3, .ring = 2, .keys = type});
    keys_case(out, {.name = i8 ? "i8_nonfinite" : "f8_nonfinite",
                    .batch = {{8, 4}, {0, 0}},
                    .width = 130,
                    .pool = 4,
                    .ring = 3,
                    .keys = type,
                    .nonfinite = true});
    select_case(
        out, {.name = i8 ? "i8_h4_128" : "f8_h4_128", .batch = {{5, 1, 0, 2}, {90, 203, 7, 50}}, .heads = 4, .width = 128, .pools = 8, .keys = type});
    select_case(out,
                {.name = i8 ? "i8_h3_17" : "f8_h3_17", .batch = {{4}, {150}}, .heads = 3, .width = 17, .pools = 5, .scores = true, .keys = type});
    select_case(out, {.name = i8 ? "i8_scores_nonfinite" : "f8_scores_nonfinite",
                      .batch = {{3}, {60}},
                      .heads = 2,
                      .width = 16,
                      .pools = 12,
                      .scores = true,
                      .keys = type,
                      .data = Data::kNonfinite});
  }
}

}  // namespace

void add_index_cases(std::vector<Case>& out) {
  code_cases(out);
  latents_case(out, {.name = "f32_128", .batch = {{5, 0, 1, 20}, {0, 3, 15, 30}}, .width = 128});
  latents_case(out, {.name = "f32_33_blocks_of_4", .batch = {{7, 2}, {2, 11}}, .width = 33, .block_rows = 4});
  latents_case(out, {.name = "bf16_40", .batch = {{3, 9}, {14, 0}}, .width = 40, .pool = DType::kBF16});
  latents_case(out, {.name = "all_empty", .batch = {{0, 0}, {3, 0}}, .width = 16});
  keys_case(out, {.name = "p4_64", .batch = {{9, 1, 0, 6}, {0, 3, 5, 2}}, .width = 64, .pool = 4, .ring = 3});
  keys_case(out,
            {.name = "p4_128_bf16", .batch = {{4, 13}, {1, 8}}, .width = 128, .pool = 4, .ring = 8, .keys = DType::kBF16, .vectors = DType::kBF16});
  keys_case(out, {.name = "p4_decode", .batch = {{1, 1, 1, 1}, {3, 4, 6, 7}}, .width = 64, .pool = 4, .ring = 4, .vectors = DType::kBF16});
  keys_case(out, {.name = "p1", .batch = {{3, 1}, {0, 7}}, .width = 31, .pool = 1, .ring = 1});
  keys_case(out, {.name = "p3_odd", .batch = {{8, 5}, {2, 4}}, .width = 17, .pool = 3, .ring = 2});
  keys_case(out, {.name = "nonfinite", .batch = {{8, 4}, {0, 0}}, .width = 32, .pool = 4, .ring = 3, .nonfinite = true});
  keys_case(out, {.name = "all_empty", .batch = {{0, 0}, {3, 0}}, .width = 32, .pool = 4, .ring = 3});
  select_case(out, {.name = "few_pools", .batch = {{9, 2}, {0, 17}}, .heads = 2, .width = 16, .pools = 8});
  select_case(out, {.name = "sparse_h4_64", .batch = {{5, 1, 0, 2}, {90, 203, 7, 50}}, .heads = 4, .width = 64, .pools = 8});
  select_case(out, {.name = "sparse_h8_64_bf16", .batch = {{3, 4}, {120, 61}}, .heads = 8, .width = 64, .pools = 16, .keys = DType::kBF16});
  select_case(out, {.name = "sparse_h3_17", .batch = {{4}, {150}}, .heads = 3, .width = 17, .pools = 5});
  select_case(out, {.name = "scores", .batch = {{4, 3}, {0, 77}}, .heads = 4, .width = 33, .pools = 6, .scores = true});
  select_case(out, {.name = "p1", .batch = {{6, 2}, {20, 0}}, .heads = 2, .width = 16, .pools = 7, .kpool = 1, .scores = true});
  select_case(out, {.name = "ties", .batch = {{6, 3}, {130, 95}}, .heads = 4, .width = 4, .pools = 9, .scores = true, .data = Data::kTies});
  select_case(out, {.name = "ties_64", .batch = {{2, 1}, {230, 159}}, .heads = 1, .width = 64, .pools = 16, .data = Data::kTies});
  select_case(out, {.name = "nonfinite", .batch = {{3}, {60}}, .heads = 2, .width = 16, .pools = 12, .scores = true, .data = Data::kNonfinite});
  select_case(out, {.name = "all_empty", .batch = {{0, 0}, {3, 0}}, .heads = 2, .width = 16, .pools = 4});
}

}  // namespace lathe::ops::cases
