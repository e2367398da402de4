#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cases/cases.h"

namespace lathe::ops::cases {
namespace {

constexpr Weights kBF16Weights{.dtype = DType::kBF16};
constexpr Weights kF32Weights{.dtype = DType::kF32};
constexpr Weights kFp8Weights{.dtype = DType::kF8E4M3, .scaled = true};

struct Heads {
  const char* name;
  int64_t tokens, heads;
  int32_t nope, value;
  int64_t latent;
  Weights weights = kBF16Weights;
  Compute compute = Compute::kF32;
};

KvB kv_b_of(Problem& b, const Weights& weights, int64_t heads, int32_t nope, int32_t value, int64_t latent) {
  return {.matrix = b.matrix(weights, heads * (nope + value), latent), .nope = nope, .value = value};
}

void head_cases(std::vector<Case>& out, const Heads& c) {
  const auto grow = [](int64_t terms) { return Tolerance{.scaled = 4 * kUnit * std::sqrt(static_cast<double>(terms) + 16)}; };
  out.push_back({.op = OpId::kMlaAbsorb,
                 .name = c.name,
                 .build =
                     [c](Problem& b) {
                       auto& p = b.make<MlaAbsorbParams>();
                       p.q = b.in(DType::kF32, {c.tokens, c.heads, c.nope}, normal(), 3);
                       p.kv_b = kv_b_of(b, c.weights, c.heads, c.nope, c.value, c.latent);
                       p.compute = c.compute;
                       p.out = b.out(DType::kF32, {c.tokens, c.heads, c.latent}, 5);
                     },
                 .tolerance = grow(c.nope)});
  out.push_back({.op = OpId::kMlaUnabsorb,
                 .name = c.name,
                 .build =
                     [c](Problem& b) {
                       auto& p = b.make<MlaUnabsorbParams>();
                       p.z = b.in(DType::kF32, {c.tokens, c.heads, c.latent}, normal(), 3);
                       p.kv_b = kv_b_of(b, c.weights, c.heads, c.nope, c.value, c.latent);
                       p.compute = c.compute;
                       p.out = b.out(DType::kF32, {c.tokens, c.heads, c.value}, 5);
                     },
                 .tolerance = grow(c.latent)});
}

struct Attend {
  const char* name;
  Batch batch;
  int64_t heads, latent, pools;
  int32_t nope = 0, value = 0;  ///< expanded form
  int32_t kpool = 4;
  DType cache = DType::kF32;
  Weights weights = kBF16Weights;
  Compute compute = Compute::kF32;
  bool tails = false;  ///< tail_begin is given
  bool merge = false;  ///< max and sum are asked for
  bool none = false;   ///< rows that choose no pool at all
  bool nonfinite = false;
};

/// A random choice of complete pools for every row, ascending.
void choose(Problem& b, const Attend& c, Selection& selection) {
  std::vector<int32_t> pools;
  std::vector<int32_t> tails;
  for (size_t s = 0; s < c.batch.rows.size(); ++s) {
    for (int32_t i = 0; i < c.batch.rows[s]; ++i) {
      const int32_t position = c.batch.start[s] + i;
      const int32_t complete = (position + 1) / c.kpool;
      std::vector<int32_t> row;
      for (int32_t pool = 0; pool < complete; ++pool) {
        // Of n pools at most pools_max: take each with the chance that fills the row, the rest while there is room.
        const auto draw = static_cast<int64_t>(mix(static_cast<uint64_t>(1000) * static_cast<uint64_t>(position) + static_cast<uint64_t>(pool)) %
                                               static_cast<uint64_t>(complete));
        if (!c.none && (complete <= c.pools || draw < c.pools) && static_cast<int64_t>(row.size()) < c.pools) row.push_back(pool);
      }
      row.resize(static_cast<size_t>(c.pools), -1);
      pools.insert(pools.end(), row.begin(), row.end());
      tails.push_back(std::max(complete * c.kpool - i % 3, 0));
    }
  }
  selection.pools = b.indices(pools, {c.batch.tokens(), c.pools});
  if (c.tails) selection.tail_begin = b.indices(tails, {c.batch.tokens()});
  selection.kpool = c.kpool;
}

Paged latents_of(Problem& b, const Attend& c) {
  int64_t rows = 1;
  for (size_t s = 0; s < c.batch.rows.size(); ++s) rows = std::max<int64_t>(rows, c.batch.start[s] + c.batch.rows[s]);
  const Paged paged =
      b.paged({.dtype = c.cache, .width = c.latent, .sequences = static_cast<int64_t>(c.batch.rows.size()), .rows = rows, .block_rows = 8});
  const View& damaged = paged.scales.present() ? paged.scales : paged.pool;
  if (c.nonfinite) damaged.f32()[paged.table.i32()[0] * 8 * damaged.step(0)] = std::numeric_limits<float>::quiet_NaN();  // token 0 of sequence 0
  return paged;
}

void attend_case(std::vector<Case>& out, const Attend& c) {
  out.push_back({.op = OpId::kMlaAttend,
                 .name = c.name,
                 .build =
                     [c](Problem& b) {
                       auto& p = b.make<MlaAttendParams>();
                       const int64_t pad = c.cache == DType::kBF16 ? 4 : 3;  // aligned rows, and others
                       p.q = b.in(DType::kF32, {c.batch.tokens(), c.heads, c.latent}, normal(), pad);
                       p.latents = latents_of(b, c);
                       choose(b, c, p.selection);
                       p.batch = b.ragged(c.batch);
                       p.scale = static_cast<float>(2 / std::sqrt(static_cast<double>(c.latent)));
                       p.out = b.out(DType::kF32, {c.batch.tokens(), c.heads, c.latent}, 5);
                       if (c.merge)
                         p.row_max = b.out(DType::kF32, {c.batch.tokens(), c.heads}, 1),
                         p.row_sum = b.out(DType::kF32, {c.batch.tokens(), c.heads}, 1);
                     },
                 .tolerance = {.relative = 1e-6, .scaled = 6e-6, .same_class = c.nonfinite},
                 .parts = Parts::kSequences,
                 .exact_counts = false});  // keys that several rows share are read once in cost(), row by row here
}

void expanded_case(std::vector<Case>& out, const Attend& c) {
  out.push_back({.op = OpId::kMlaExpanded,
                 .name = c.name,
                 .build =
                     [c](Problem& b) {
                       auto& p = b.make<MlaExpandedParams>();
                       p.q = b.in(DType::kF32, {c.batch.tokens(), c.heads, c.nope}, normal(), 3);
                       p.kv_b = kv_b_of(b, c.weights, c.heads, c.nope, c.value, c.latent);
                       p.latents = latents_of(b, c);
                       choose(b, c, p.selection);
                       p.batch = b.ragged(c.batch);
                       p.scale = static_cast<float>(2 / std::sqrt(static_cast<double>(c.nope)));
                       p.compute = c.compute;
                       p.out = b.out(DType::kF32, {c.batch.tokens(), c.heads, c.value}, 5);
                     },
                 .tolerance = {.relative = 1e-6, .scaled = 8e-6, .same_class = c.nonfinite},
                 .parts = Parts::kSequences,
                 .exact_counts = false});
}

void attend_cases(std::vector<Case>& out) {
  attend_case(out, {.name = "dense_h2_32", .batch = {{9, 1, 0, 3}, {0, 12, 4, 5}}, .heads = 2, .latent = 32, .pools = 8});
  attend_case(out, {.name = "sparse_h4_128", .batch = {{4, 3}, {60, 33}}, .heads = 4, .latent = 128, .pools = 5, .merge = true});
  attend_case(out, {.name = "sparse_h3_33", .batch = {{5}, {41}}, .heads = 3, .latent = 33, .pools = 4, .tails = true});
  attend_case(out, {.name = "bf16_h2_64", .batch = {{3, 2}, {30, 0}}, .heads = 2, .latent = 64, .pools = 6, .cache = DType::kBF16});
  attend_case(out, {.name = "bf16_h20_512",
                    .batch = {{1, 2, 0, 1}, {300, 101, 0, 2}},
                    .heads = 20,
                    .latent = 512,
                    .pools = 40,
                    .cache = DType::kBF16,
                    .merge = true});
  attend_case(out, {.name = "bf16_h70_128",
                    .batch = {{1, 3}, {150, 30}},
                    .heads = 70,
                    .latent = 128,
                    .pools = 20,
                    .cache = DType::kBF16,
                    .tails = true,
                    .merge = true});
  attend_case(out, {.name = "bf16_long_tail",
                    .batch = {{2, 1, 1}, {67, 138, 90}},
                    .heads = 3,
                    .latent = 64,
                    .pools = 2,
                    .kpool = 70,
                    .cache = DType::kBF16,
                    .tails = true});
  attend_case(out, {.name = "decode_h8_128", .batch = {{1, 1, 1}, {70, 3, 28}}, .heads = 8, .latent = 128, .pools = 6, .merge = true});
  attend_case(out, {.name = "p1", .batch = {{4, 2}, {6, 0}}, .heads = 2, .latent = 16, .pools = 5, .kpool = 1});
  attend_case(out, {.name = "no_keys", .batch = {{8}, {0}}, .heads = 2, .latent = 20, .pools = 3, .merge = true, .none = true});
  attend_case(out, {.name = "nonfinite", .batch = {{5, 5}, {0, 0}}, .heads = 2, .latent = 24, .pools = 4, .nonfinite = true});
  attend_case(out, {.name = "all_empty", .batch = {{0, 0}, {4, 0}}, .heads = 2, .latent = 16, .pools = 4});
}

void expanded_cases(std::vector<Case>& out) {
  expanded_case(out, {.name = "dense_h2", .batch = {{9, 1, 0, 3}, {0, 12, 4, 5}}, .heads = 2, .latent = 32, .pools = 8, .nope = 16, .value = 24});
  expanded_case(out, {.name = "sparse_h4_128", .batch = {{4, 3}, {60, 33}}, .heads = 4, .latent = 128, .pools = 5, .nope = 128, .value = 128});
  expanded_case(out, {.name = "sparse_h3_odd_f32",
                      .batch = {{5}, {41}},
                      .heads = 3,
                      .latent = 33,
                      .pools = 4,
                      .nope = 7,
                      .value = 5,
                      .weights = kF32Weights,
                      .tails = true});
  expanded_case(out, {.name = "fp8_bf16_cache",
                      .batch = {{6, 2}, {10, 0}},
                      .heads = 2,
                      .latent = 130,
                      .pools = 8,
                      .nope = 32,
                      .value = 32,
                      .cache = DType::kBF16,
                      .weights = kFp8Weights});
  expanded_case(out, {.name = "p1", .batch = {{4, 2}, {6, 0}}, .heads = 2, .latent = 16, .pools = 5, .nope = 8, .value = 8, .kpool = 1});
  expanded_case(out, {.name = "no_keys", .batch = {{8}, {0}}, .heads = 2, .latent = 20, .pools = 3, .nope = 8, .value = 8, .none = true});
  expanded_case(out,
                {.name = "nonfinite", .batch = {{5, 5}, {0, 0}}, .heads = 2, .latent = 24, .pools = 4, .nope = 8, .value = 12, .nonfinite = true});
  expanded_case(out, {.name = "all_empty", .batch = {{0, 0}, {4, 0}}, .heads = 2, .latent = 16, .pools = 4, .nope = 8, .value = 8});
  expanded_case(out, {.name = "fast_h2",
                      .batch = {{7, 2}, {3, 20}},
                      .heads = 2,
                      .latent = 64,
                      .pools = 8,
                      .nope = 32,
                      .value = 32,
                      .cache = DType::kBF16,
                      .compute = Compute::kBF16});
}

/// Latents as codes with a scale for each 128 of them.
void code_cases(std::vector<Case>& out) {
  for (const DType type : {DType::kI8, DType::kF8E4M3}) {
    const bool i8 = type == DType::kI8;
    attend_case(out, {.name = i8 ? "i8_h20_512" : "f8_h20_512",
                      .batch = {{1, 2, 0, 1}, {300, 101, 0, 2}},
                      .heads = 20,
                      .latent = 512,
                      .pools = 40,
                      .cache = type,
                      .merge = true});
    attend_case(
        out,
        {.name = i8 ? "i8_h2_200" : "f8_h2_200", .batch = {{3, 2}, {30, 0}}, .heads = 2, .latent = 200, .pools = 6, .cache = type, .tails = true});
    attend_case(out, {.name = i8 ? "i8_nonfinite" : "f8_nonfinite",
                      .batch = {{5, 5}, {0, 0}},
                      .heads = 2,
                      .latent = 24,
                      .pools = 4,
                      .cache = type,
                      .nonfinite = true});
    attend_case(out, {.name = i8 ? "i8_empty" : "f8_empty", .batch = {{0, 0}, {4, 0}}, .heads = 2, .latent = 16, .pools = 4, .cache = type});
    expanded_case(out, {.name = i8 ? "i8_h2_130" : "f8_h2_130",
                        .batch = {{6, 2}, {10, 0}},
                        .heads = 2,
                        .latent = 130,
                        .pools = 8,
                        .nope = 32,
                        .value = 32,
                        .cache = type,
                        .weights = kFp8Weights});
    expanded_case(out, {.name = i8 ? "fast_i8_h2_64" : "fast_f8_h2_64",
                        .batch = {{7, 2}, {3, 20}},
                        .heads = 2,
                        .latent = 64,
                        .pools = 8,
                        .nope = 32,
                        .value = 32,
                        .cache = type,
                        .compute = Compute::kBF16});
  }
}

}  // namespace

void add_mla_cases(std::vector<Case>& out) {
  head_cases(out, {.name = "h2_16_24_of_32", .tokens = 3, .heads = 2, .nope = 16, .value = 24, .latent = 32});
  head_cases(out, {.name = "h4_128_128_of_128", .tokens = 5, .heads = 4, .nope = 128, .value = 128, .latent = 128});
  head_cases(out, {.name = "h3_7_5_of_33_f32", .tokens = 2, .heads = 3, .nope = 7, .value = 5, .latent = 33, .weights = kF32Weights});
  head_cases(out, {.name = "h2_64_64_of_200_fp8", .tokens = 18, .heads = 2, .nope = 64, .value = 64, .latent = 200, .weights = kFp8Weights});
  head_cases(out, {.name = "no_rows", .tokens = 0, .heads = 2, .nope = 16, .value = 16, .latent = 32});
  head_cases(out, {.name = "fast_h2_64_48_of_96", .tokens = 6, .heads = 2, .nope = 64, .value = 48, .latent = 96, .compute = Compute::kBF16});
  head_cases(
      out,
      {.name = "fast_h2_fp8", .tokens = 3, .heads = 2, .nope = 64, .value = 64, .latent = 128, .weights = kFp8Weights, .compute = Compute::kBF16});
  attend_cases(out);
  expanded_cases(out);
  code_cases(out);
}

}  // namespace lathe::ops::cases
