// Products of 8-bit codes on both sides: INT8 per row and per output, FP8 in runs of 128 and blocks.

#include <cmath>
#include <limits>

#include "ops/cases/cases.h"

namespace lathe::ops::cases {
namespace {

constexpr Weights kInt8Weights{.dtype = DType::kI8, .scaled = true};
constexpr Weights kFp8Weights{.dtype = DType::kF8E4M3, .scaled = true};
constexpr Weights kBF16Weights{.dtype = DType::kBF16};

/// Rows that a kernel may get wrong; each leaves the others as they are.
enum class Hard : uint8_t { kNone, kNan, kInfinity, kZeroRows, kTinyRows, kHugeRows, kOneOutlier, kTies, kZeroScales, kNanScale };

struct Part {
  Weights weights;
  int64_t rows;
  bool bias = false;
  int64_t leaf = 0;
  bool integers = false;  ///< y is the INT32 sum of some channels
};

struct Product {
  const char* name;
  int64_t tokens, width;
  std::vector<Part> parts;
  Compute compute = Compute::kInt8;
  Hard hard = Hard::kNone;
  bool amax = false;  ///< x_amax is given: larger than this shard's own for some rows
};

void harden(const View& x, Hard hard) {
  const auto row = [&](int64_t t) { return x.f32() + t * x.step(0); };
  const auto each = [&](int64_t t, float factor) {
    for (int64_t c = 0; c < x.dim(1); ++c) row(t)[c] *= factor;
  };
  switch (hard) {
    case Hard::kNan: row(1)[x.dim(1) - 1] = std::numeric_limits<float>::quiet_NaN(); break;
    case Hard::kInfinity: row(1)[0] = -std::numeric_limits<float>::infinity(); break;
    case Hard::kZeroRows: each(0, 0), each(2, 0); break;
    case Hard::kTinyRows: each(0, 0x1p-130f), each(1, 0x1p-99f), each(2, 0x1p-105f); break;
    case Hard::kHugeRows: each(0, 0x1p120f), each(2, 0x1p-90f); break;
    case Hard::kOneOutlier: row(1)[3] = 1e4f; break;
    case Hard::kTies:  // the largest is 127: codes are the values themselves, halves go to the even neighbour
      for (int64_t c = 0; c < x.dim(1); ++c) row(1)[c] = static_cast<float>(c % 250) / 2 - 62, row(2)[c] = 0.5f;
      row(1)[1] = 127;
      row(2)[0] = -127;
      break;
    default: break;
  }
}

void product_case(std::vector<Case>& out, const Product& c) {
  const bool int8 = c.compute == Compute::kInt8;
  // INT8 is the same bits everywhere. FP8: a tensor core may keep 14 bits of a run's sum.
  const Tolerance tolerance = int8 ? Tolerance{} : Tolerance{.scaled = 0x1p-11};
  out.push_back({.op = OpId::kMatmul,
                 .name = c.name,
                 .build =
                     [c](Problem& b) {
                       auto& p = b.make<MatmulParams>();
                       p.x = b.in(DType::kF32, {c.tokens, c.width}, normal(), 5);
                       if (c.amax) p.x_amax = b.in(DType::kF32, {c.tokens}, uniform(4, 9));
                       p.compute = c.compute;
                       for (const Part& part : c.parts) {
                         MatmulPart& y = p.parts[static_cast<size_t>(p.part_count++)];
                         y.weight = b.matrix(part.weights, part.rows, c.width);
                         if (part.bias) y.bias = b.in(DType::kBF16, {part.rows});
                         y.leaf_channels = part.leaf;
                         if (part.leaf > 0) y.leaf_total = (c.width + part.leaf - 1) / part.leaf + (part.integers ? 3 : 0);
                         y.y = b.out(part.integers ? DType::kI32 : DType::kF32, {c.tokens, part.rows}, 3);
                         const View& scales = y.weight.scales;
                         if (c.hard == Hard::kZeroScales) scales.f32()[0] = 0, scales.f32()[scales.dim(0) / 2 * scales.step(0)] = 0;
                         if (c.hard == Hard::kNanScale) scales.f32()[0] = std::numeric_limits<float>::quiet_NaN();
                       }
                       harden(p.x, c.hard);
                     },
                 .tolerance = tolerance});
}

void int8_cases(std::vector<Case>& out) {
  product_case(out, {"int8_1x1x1", 1, 1, {{kInt8Weights, 1}}});
  product_case(out, {"int8_1x384x130", 1, 384, {{kInt8Weights, 130}}});
  product_case(out, {"int8_3x7x5", 3, 7, {{kInt8Weights, 5, true}}});
  product_case(out, {"int8_5x63x33", 5, 63, {{kInt8Weights, 33}}});
  product_case(out, {"int8_17x65x48", 17, 65, {{kInt8Weights, 48}}});
  product_case(out, {"int8_33x200x17", 33, 200, {{kInt8Weights, 17, true}}});
  product_case(out, {"int8_65x256x64", 65, 256, {{kInt8Weights, 64}}});
  product_case(out, {"int8_long_sum", 2, 20000, {{{.dtype = DType::kI8, .scaled = true, .deviation = 3}, 3}}});
  product_case(out, {"int8_no_rows", 0, 64, {{kInt8Weights, 32}}});
  product_case(out, {"int8_no_outputs", 4, 64, {{kInt8Weights, 0}}});
  product_case(out, {"int8_no_channels", 3, 0, {{kInt8Weights, 8, true}}});
  product_case(out, {"int8_slice", 6, 90, {{{.dtype = DType::kI8, .scaled = true, .row_offset = 7, .col_offset = 5}, 41}}});
  product_case(out, {"int8_leaves_mean_nothing", 3, 300, {{kInt8Weights, 33, true, 128}}});
  product_case(out,
               {"int8_partial", 4, 96, {{{.dtype = DType::kI8, .scaled = true, .col_offset = 32}, 21, false, 32, true}}, Compute::kInt8, {}, true});
  product_case(out, {"int8_given_amax", 4, 96, {{kInt8Weights, 21, true}}, Compute::kInt8, {}, true});
  product_case(out, {"int8_among_others", 5, 136, {{kInt8Weights, 40}, {kBF16Weights, 16}, {kInt8Weights, 9, true}, {kFp8Weights, 24}}});
  out.back().tolerance.scaled = 1e-6;  // of the others
  product_case(out, {"int8_nan", 4, 67, {{kInt8Weights, 21}}, Compute::kInt8, Hard::kNan});
  product_case(out, {"int8_infinity", 4, 64, {{kInt8Weights, 21, true}}, Compute::kInt8, Hard::kInfinity});
  product_case(out, {"int8_zero_rows", 4, 64, {{kInt8Weights, 21, true}}, Compute::kInt8, Hard::kZeroRows});
  product_case(out, {"int8_tiny_rows", 4, 64, {{kInt8Weights, 21}}, Compute::kInt8, Hard::kTinyRows});
  product_case(out, {"int8_huge_rows", 4, 64, {{kInt8Weights, 21}}, Compute::kInt8, Hard::kHugeRows});
  product_case(out, {"int8_outlier", 3, 130, {{kInt8Weights, 21}}, Compute::kInt8, Hard::kOneOutlier});
  product_case(out, {"int8_ties", 3, 251, {{kInt8Weights, 21}}, Compute::kInt8, Hard::kTies});
  product_case(out, {"int8_zero_scales", 3, 64, {{kInt8Weights, 21}}, Compute::kInt8, Hard::kZeroScales});
  product_case(out, {"int8_nan_scale", 3, 64, {{kInt8Weights, 21}}, Compute::kInt8, Hard::kNanScale});
  product_case(out, {"int8_exact_mode", 3, 100, {{kInt8Weights, 33, true}}, Compute::kF32});
  out.back().tolerance.scaled = 1e-6;
  product_case(out, {"int8_fast_mode", 18, 100, {{kInt8Weights, 33, false, 40}}, Compute::kBF16});
  out.back().tolerance.scaled = 1e-6;
}

void fp8_cases(std::vector<Case>& out) {
  constexpr auto kFp8 = Compute::kFp8;
  product_case(out, {"fp8_codes_1x1x1", 1, 1, {{kFp8Weights, 1}}, kFp8});
  product_case(out, {"fp8_codes_1x384x130", 1, 384, {{kFp8Weights, 130}}, kFp8});
  product_case(out, {"fp8_codes_3x7x5", 3, 7, {{kFp8Weights, 5, true}}, kFp8});
  product_case(out, {"fp8_codes_17x200x33", 17, 200, {{kFp8Weights, 33}}, kFp8});
  product_case(out, {"fp8_codes_65x256x64", 65, 256, {{kFp8Weights, 64}}, kFp8});
  product_case(out, {"fp8_codes_leaves", 4, 300, {{kFp8Weights, 20, true, 128}}, kFp8});
  product_case(out, {"fp8_codes_leaves_of_192", 3, 384, {{kFp8Weights, 20, false, 192}}, kFp8});
  product_case(out, {"fp8_codes_leaves_of_64", 3, 256, {{kFp8Weights, 20, false, 64}}, kFp8});
  product_case(out, {"fp8_codes_inside_blocks", 4, 200, {{{.dtype = DType::kF8E4M3, .scaled = true, .row_offset = 70, .col_offset = 64}, 90}}, kFp8});
  product_case(out, {"fp8_codes_unscaled", 3, 130, {{{.dtype = DType::kF8E4M3}, 12}}, kFp8});
  product_case(out, {"fp8_codes_among_others", 5, 136, {{kFp8Weights, 40}, {kBF16Weights, 16}, {kInt8Weights, 9}}, kFp8});
  product_case(out, {"fp8_codes_no_rows", 0, 64, {{kFp8Weights, 32}}, kFp8});
  product_case(out, {"fp8_codes_nan", 4, 267, {{kFp8Weights, 21}}, kFp8, Hard::kNan});
  product_case(out, {"fp8_codes_infinity", 4, 128, {{kFp8Weights, 21, true}}, kFp8, Hard::kInfinity});
  product_case(out, {"fp8_codes_zero_rows", 4, 256, {{kFp8Weights, 21, true}}, kFp8, Hard::kZeroRows});
  product_case(out, {"fp8_codes_tiny_rows", 4, 64, {{kFp8Weights, 21}}, kFp8, Hard::kTinyRows});
  product_case(out, {"fp8_codes_outlier", 3, 260, {{kFp8Weights, 21}}, kFp8, Hard::kOneOutlier});
  product_case(out, {"fp8_codes_ties", 3, 16, {{kFp8Weights, 21}}, kFp8, Hard::kTies});
  product_case(out, {"fp8_codes_zero_scales", 3, 256, {{kFp8Weights, 21}}, kFp8, Hard::kZeroScales});
}

struct GateUp {
  const char* name;
  int64_t tokens, width, inner;
  Weights gate, up;
  Compute compute = Compute::kInt8;
  bool bias = false;
};

void gate_up_case(std::vector<Case>& out, const GateUp& c) {
  out.push_back({.op = OpId::kGateUp,
                 .name = c.name,
                 .build =
                     [c](Problem& b) {
                       auto& p = b.make<GateUpParams>();
                       p.x = b.in(DType::kF32, {c.tokens, c.width}, normal(), 5);
                       p.gate = b.matrix(c.gate, c.inner, c.width), p.up = b.matrix(c.up, c.inner, c.width);
                       if (c.bias) p.gate_bias = b.in(DType::kBF16, {c.inner}), p.up_bias = b.in(DType::kF32, {c.inner});
                       p.limit = 10, p.compute = c.compute;
                       p.out = b.out(DType::kF32, {c.tokens, c.inner}, 3);
                     },
                 .tolerance = {.relative = 64 * kUnit, .scaled = c.compute == Compute::kInt8 ? 1e-6 : 0x1p-10}});
}

struct RowsCase {
  const char* name;
  int64_t tokens, width;
  Hard hard = Hard::kNone;
  bool bias = false;
};

void amax_case(std::vector<Case>& out, const RowsCase& of) {
  const auto [name, tokens, width, hard, bias] = of;
  out.push_back({.op = OpId::kRowAmax, .name = name, .build = [=](Problem& b) {
                   auto& p = b.make<RowAmaxParams>();
                   p.x = b.in(DType::kF32, {tokens, width}, normal(), 5);
                   harden(p.x, hard);
                   p.out = b.out(DType::kF32, {tokens});
                 }});
}

void sums_case(std::vector<Case>& out, const RowsCase& of) {
  const auto [name, tokens, width, hard, bias] = of;
  out.push_back({.op = OpId::kScaleSums, .name = name, .build = [=](Problem& b) {
                   auto& p = b.make<ScaleSumsParams>();
                   std::vector<int32_t> sums;
                   for (int64_t i = 0; i < tokens * width; ++i) sums.push_back(static_cast<int32_t>(mix(static_cast<uint64_t>(i))) >> (i % 5));
                   p.sums = b.indices(sums, {tokens, width});
                   p.x_amax = b.in(DType::kF32, {tokens}, uniform(0.5, 8));
                   p.scales = b.in(DType::kF32, {width, 1}, uniform(1e-4, 1e-3), 2);
                   if (bias) p.bias = b.in(DType::kBF16, {width});
                   if (hard == Hard::kNan) p.x_amax.f32()[1] = std::numeric_limits<float>::infinity(), p.x_amax.f32()[2] = 0;
                   p.y = b.out(DType::kF32, {tokens, width}, 3);
                 }});
}

}  // namespace

void add_product_code_cases(std::vector<Case>& out) {
  int8_cases(out);
  fp8_cases(out);
  amax_case(out, {.name = "5x33", .tokens = 5, .width = 33});
  amax_case(out, {.name = "3x384", .tokens = 3, .width = 384, .hard = Hard::kNan});
  amax_case(out, {.name = "4x64_infinity", .tokens = 4, .width = 64, .hard = Hard::kInfinity});
  amax_case(out, {.name = "3x16_zero", .tokens = 3, .width = 16, .hard = Hard::kZeroRows});
  amax_case(out, {.name = "no_channels", .tokens = 3, .width = 0});
  amax_case(out, {.name = "no_rows", .tokens = 0, .width = 16});
  sums_case(out, {.name = "4x33", .tokens = 4, .width = 33});
  sums_case(out, {.name = "3x130_bias", .tokens = 3, .width = 130, .bias = true});
  sums_case(out, {.name = "nonfinite", .tokens = 3, .width = 8, .hard = Hard::kNan, .bias = true});
  sums_case(out, {.name = "no_rows", .tokens = 0, .width = 8, .bias = true});
  gate_up_case(out, {"int8_1x384x130", 1, 384, 130, kInt8Weights, kInt8Weights});
  gate_up_case(out, {"int8_bias_5x131x33", 5, 131, 33, kInt8Weights, kInt8Weights, Compute::kInt8, true});
  gate_up_case(out, {"int8_beside_bf16", 18, 64, 48, kInt8Weights, kBF16Weights});
  gate_up_case(out, {"int8_no_rows", 0, 64, 32, kInt8Weights, kInt8Weights});
  gate_up_case(out, {"fp8_codes_1x384x130", 1, 384, 130, kFp8Weights, kFp8Weights, Compute::kFp8});
  gate_up_case(out, {"fp8_codes_20x200x64", 20, 200, 64, kFp8Weights, kFp8Weights, Compute::kFp8, true});
}

}  // namespace lathe::ops::cases
