#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "ops/cases/cases.h"
#include "tensor/shard.h"

namespace lathe::ops::cases {
namespace {

constexpr Weights kBF16Weights{.dtype = DType::kBF16};
constexpr Weights kF32Weights{.dtype = DType::kF32};
constexpr Weights kFp8Weights{.dtype = DType::kF8E4M3, .scaled = true};
constexpr Weights kInt8Weights{.dtype = DType::kI8, .scaled = true};

struct Routing {
  const char* name;
  int64_t tokens, experts, chosen;
  int32_t groups = 1, groups_kept = 1;
  bool normalise = true;
  DType bias = DType::kF32;
  bool ties = false;
  bool nonfinite = false;
};

void route_case(std::vector<Case>& out, const Routing& c) {
  out.push_back({.op = OpId::kRoute,
                 .name = c.name,
                 .build =
                     [c](Problem& b) {
                       auto& p = b.make<RouteParams>();
                       p.logits = b.in(DType::kF32, {c.tokens, c.experts}, normal(1.5), 1);
                       p.bias = b.in(c.bias, {c.experts}, c.ties ? constant(0.25) : normal(0.1));
                       // The same logit gives the same score in every kernel: ties are exact.
                       if (c.ties) each_element(p.logits, [&](int64_t at) { p.logits.f32()[at] = std::round(p.logits.f32()[at]); });
                       if (c.nonfinite) {
                         for (int64_t e = 0; e < c.experts; e += 2) p.logits.f32()[p.logits.step(0) + e] = std::numeric_limits<float>::quiet_NaN();
                         p.logits.f32()[1] = std::numeric_limits<float>::infinity(), p.logits.f32()[2] = -std::numeric_limits<float>::infinity();
                       }
                       p.groups = c.groups, p.groups_kept = c.groups_kept, p.normalise = c.normalise, p.scale = 2.5f;
                       p.ids = b.out(DType::kI32, {c.tokens, c.chosen}, 1);
                       p.weights = b.out(DType::kF32, {c.tokens, c.chosen}, 2);
                     },
                 .tolerance = {.relative = 64 * kUnit, .same_class = c.nonfinite}});
}

struct Experts {
  const char* name;
  int64_t tokens, width, inner;
  int32_t experts;
  int64_t chosen;
  Weights weights = kBF16Weights;
  int32_t begin = 0;
  int32_t total = 0;  ///< 0: all are here, y is the root
  float limit = 10;
  Compute compute = Compute::kF32;
  bool present = false;
  bool nonfinite = false;
  bool exact_counts = false;        ///< every held expert is chosen
  std::optional<Weights> others{};  ///< of every second matrix
};

void moe_case(std::vector<Case>& out, const Experts& c) {
  Tolerance tolerance{.relative = 32 * kUnit, .scaled = 8 * kUnit * std::sqrt(static_cast<double>(c.width + c.inner))};
  // The inner activation is rounded to BF16 again: two kernels may round neighbours.
  if (c.compute == Compute::kBF16) tolerance.scaled = 0x1p-9;
  // The inner activation becomes codes: one that lies beside is 1/127 or 1/14 of the largest, among the sum over the inner width.
  if (c.compute == Compute::kInt8) tolerance.scaled = 0x1p-8;
  if (c.compute == Compute::kFp8) tolerance.scaled = 0x1p-7;
  tolerance.same_class = c.nonfinite;
  out.push_back({.op = OpId::kMoe,
                 .name = c.name,
                 .build =
                     [c](Problem& b) {
                       auto& p = b.make<MoeParams>();
                       p.experts_total = c.total > 0 ? c.total : c.experts;
                       p.expert_begin = c.begin;
                       std::vector<int32_t> ids;
                       for (int64_t t = 0; t < c.tokens; ++t) {
                         std::vector<int32_t> row;
                         for (uint64_t i = 0; static_cast<int64_t>(row.size()) < c.chosen; ++i) {
                           const auto e = static_cast<int32_t>(mix(static_cast<uint64_t>(t) * 1000 + i) % static_cast<uint64_t>(p.experts_total));
                           if (std::find(row.begin(), row.end(), e) == row.end()) row.push_back(e);
                         }
                         std::sort(row.begin(), row.end());
                         ids.insert(ids.end(), row.begin(), row.end());
                       }
                       p.x = b.in(DType::kF32, {c.tokens, c.width}, normal(), 3);
                       p.ids = b.indices(ids, {c.tokens, c.chosen});
                       p.weights = b.in(DType::kF32, {c.tokens, c.chosen}, uniform(0.1, 1.5));
                       const Weights& others = c.others ? *c.others : c.weights;
                       p.gate = b.mixed_stack({.even = c.weights, .odd = others}, c.experts, c.inner, c.width);
                       p.up = b.mixed_stack({.even = others, .odd = c.weights}, c.experts, c.inner, c.width);
                       p.down = b.mixed_stack({.even = c.weights, .odd = others}, c.experts, c.width, c.inner);
                       p.limit = c.limit, p.compute = c.compute;
                       if (c.nonfinite) p.x.f32()[p.x.step(0) + 1] = std::numeric_limits<float>::quiet_NaN();
                       if (c.total == 0) {
                         p.y = b.out(DType::kF32, {c.tokens, c.width}, 5);
                         return;
                       }
                       const auto nodes = static_cast<int64_t>(tensor::tree_cover(c.total, c.begin, c.begin + c.experts).size());
                       p.y = b.out(DType::kF32, {nodes, c.tokens, c.width}, 5);
                       if (c.present) p.present = b.out(DType::kI32, {nodes, c.tokens}, 1);
                     },
                 .tolerance = tolerance,
                 .exact_counts = c.exact_counts});
}

void route_cases(std::vector<Case>& out) {
  route_case(out, {.name = "e8_k2", .tokens = 5, .experts = 8, .chosen = 2});
  route_case(out, {.name = "e288_k8", .tokens = 4, .experts = 288, .chosen = 8});
  route_case(out, {.name = "e13_k13", .tokens = 2, .experts = 13, .chosen = 13});
  route_case(out, {.name = "e16_groups", .tokens = 6, .experts = 16, .chosen = 3, .groups = 4, .groups_kept = 2});
  route_case(out, {.name = "e9_groups_bf16", .tokens = 4, .experts = 9, .chosen = 3, .groups = 3, .groups_kept = 1, .bias = DType::kBF16});
  route_case(out, {.name = "unnormalised", .tokens = 3, .experts = 8, .chosen = 4, .normalise = false});
  route_case(out, {.name = "ties", .tokens = 6, .experts = 24, .chosen = 5, .ties = true});
  route_case(out, {.name = "ties_groups", .tokens = 6, .experts = 24, .chosen = 5, .groups = 6, .groups_kept = 3, .ties = true});
  route_case(out, {.name = "nonfinite", .tokens = 3, .experts = 9, .chosen = 3, .nonfinite = true});
  route_case(out, {.name = "no_rows", .tokens = 0, .experts = 8, .chosen = 2});
}

void code_cases(std::vector<Case>& out) {
  moe_case(out, {.name = "int8_e8_k2",
                 .tokens = 18,
                 .width = 256,
                 .inner = 128,
                 .experts = 8,
                 .chosen = 2,
                 .weights = kInt8Weights,
                 .compute = Compute::kInt8});
  moe_case(out, {.name = "int8_e3_k3_odd",
                 .tokens = 1,
                 .width = 201,
                 .inner = 70,
                 .experts = 3,
                 .chosen = 3,
                 .weights = kInt8Weights,
                 .compute = Compute::kInt8,
                 .exact_counts = true});
  moe_case(out, {.name = "int8_shard_nonfinite",
                 .tokens = 6,
                 .width = 64,
                 .inner = 33,
                 .experts = 4,
                 .chosen = 2,
                 .weights = kInt8Weights,
                 .begin = 3,
                 .total = 9,
                 .compute = Compute::kInt8,
                 .present = true,
                 .nonfinite = true});
  moe_case(out, {.name = "int8_among_bf16",
                 .tokens = 6,
                 .width = 136,
                 .inner = 40,
                 .experts = 5,
                 .chosen = 2,
                 .weights = kBF16Weights,
                 .compute = Compute::kInt8,
                 .others = kInt8Weights});
  moe_case(
      out,
      {.name = "int8_no_rows", .tokens = 0, .width = 32, .inner = 16, .experts = 4, .chosen = 2, .weights = kInt8Weights, .compute = Compute::kInt8});
  moe_case(out, {.name = "fp8_codes_e8_k2",
                 .tokens = 18,
                 .width = 384,
                 .inner = 200,
                 .experts = 8,
                 .chosen = 2,
                 .weights = kFp8Weights,
                 .compute = Compute::kFp8});
}

}  // namespace

void add_moe_cases(std::vector<Case>& out) {
  route_cases(out);
  moe_case(out, {.name = "f32_e4_k2", .tokens = 5, .width = 31, .inner = 17, .experts = 4, .chosen = 2, .weights = kF32Weights});
  moe_case(out, {.name = "bf16_e8_k2", .tokens = 7, .width = 64, .inner = 48, .experts = 8, .chosen = 2});
  moe_case(out, {.name = "bf16_e8_k2_one_row", .tokens = 1, .width = 130, .inner = 33, .experts = 8, .chosen = 2});
  moe_case(out, {.name = "fp8_e8_k2", .tokens = 20, .width = 384, .inner = 128, .experts = 8, .chosen = 2, .weights = kFp8Weights});
  moe_case(
      out,
      {.name = "fp8_e3_k3_odd", .tokens = 4, .width = 200, .inner = 70, .experts = 3, .chosen = 3, .weights = kFp8Weights, .exact_counts = true});
  moe_case(
      out,
      {.name = "fp8_among_bf16", .tokens = 6, .width = 136, .inner = 40, .experts = 5, .chosen = 2, .weights = kBF16Weights, .others = kFp8Weights});
  moe_case(out, {.name = "fp8_inside_blocks",
                 .tokens = 3,
                 .width = 96,
                 .inner = 64,
                 .experts = 5,
                 .chosen = 3,
                 .weights = {.dtype = DType::kF8E4M3, .scaled = true, .row_offset = 64, .col_offset = 64}});
  moe_case(out, {.name = "clamped",
                 .tokens = 4,
                 .width = 40,
                 .inner = 24,
                 .experts = 4,
                 .chosen = 2,
                 .weights = {.dtype = DType::kBF16, .deviation = 3},
                 .limit = 1});
  moe_case(out, {.name = "shard_left", .tokens = 6, .width = 40, .inner = 24, .experts = 3, .chosen = 3, .begin = 0, .total = 8, .present = true});
  moe_case(out, {.name = "shard_middle",
                 .tokens = 6,
                 .width = 33,
                 .inner = 17,
                 .experts = 4,
                 .chosen = 2,
                 .weights = kF32Weights,
                 .begin = 3,
                 .total = 9,
                 .present = true});
  moe_case(out,
           {.name = "shard_right", .tokens = 9, .width = 64, .inner = 32, .experts = 2, .chosen = 2, .weights = kFp8Weights, .begin = 6, .total = 8});
  moe_case(out, {.name = "shard_empty", .tokens = 3, .width = 16, .inner = 8, .experts = 0, .chosen = 2, .begin = 4, .total = 8, .present = true});
  moe_case(out, {.name = "nonfinite", .tokens = 4, .width = 32, .inner = 16, .experts = 4, .chosen = 2, .nonfinite = true});
  moe_case(out, {.name = "no_rows", .tokens = 0, .width = 32, .inner = 16, .experts = 4, .chosen = 2});
  moe_case(out, {.name = "fast_bf16_e8_k2", .tokens = 6, .width = 96, .inner = 64, .experts = 8, .chosen = 2, .compute = Compute::kBF16});
  moe_case(out, {.name = "fast_fp8_e8_k2",
                 .tokens = 18,
                 .width = 256,
                 .inner = 128,
                 .experts = 8,
                 .chosen = 2,
                 .weights = kFp8Weights,
                 .compute = Compute::kBF16});
  code_cases(out);
}

}  // namespace lathe::ops::cases
