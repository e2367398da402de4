#include <cmath>
#include <limits>

#include "ops/cases/cases.h"
#include "tensor/shard.h"

namespace lathe::ops::cases {
namespace {

constexpr Weights kF32Weights{.dtype = DType::kF32};
constexpr Weights kBF16Weights{.dtype = DType::kBF16};
constexpr Weights kF16Weights{.dtype = DType::kF16};
constexpr Weights kFp8Weights{.dtype = DType::kF8E4M3, .scaled = true};

/// One part: its weights, rows and leaves. end: one past the last leaf held if not all.
struct Part {
  Weights weights;
  int64_t rows;
  bool bias = false;
  int64_t leaf = 0;
  int64_t leaf_begin = 0, leaf_total = 0;
  bool partial = false;
};

struct Product {
  const char* name;
  int64_t tokens, width;
  std::vector<Part> parts;
  Compute compute = Compute::kF32;
  bool nonfinite = false;
};

void fill_part(Problem& b, const Product& c, const Part& part, MatmulPart& out) {
  out.weight = b.matrix(part.weights, part.rows, c.width);
  if (part.bias) out.bias = b.in(DType::kBF16, {part.rows});
  out.leaf_channels = part.leaf;
  if (part.leaf > 0) {
    const int64_t leaves = (c.width + part.leaf - 1) / part.leaf;
    out.leaf_begin = part.leaf_begin;
    out.leaf_total = part.leaf_total > 0 ? part.leaf_total : leaves;
    if (part.partial) {
      const auto nodes = static_cast<int64_t>(tensor::tree_cover(out.leaf_total, out.leaf_begin, out.leaf_begin + leaves).size());
      out.y = b.out(DType::kF32, {nodes, c.tokens, part.rows}, 6);
      return;
    }
  }
  out.y = b.out(DType::kF32, {c.tokens, part.rows}, 3);
}

void product_case(std::vector<Case>& out, const Product& c) {
  const double grow = 4 * kUnit * std::sqrt(static_cast<double>(c.width) + 16);
  out.push_back({.op = OpId::kMatmul,
                 .name = c.name,
                 .build =
                     [c](Problem& b) {
                       auto& p = b.make<MatmulParams>();
                       p.x = b.in(DType::kF32, {c.tokens, c.width}, normal(), 5);
                       p.compute = c.compute;
                       for (const Part& part : c.parts) fill_part(b, c, part, p.parts[static_cast<size_t>(p.part_count++)]);
                       if (!c.nonfinite) return;
                       p.x.f32()[p.x.step(0) + 1] = std::numeric_limits<float>::quiet_NaN();
                       p.x.f32()[2 * p.x.step(0)] = std::numeric_limits<float>::infinity();
                     },
                 .tolerance = {.scaled = grow, .same_class = c.nonfinite}});
}

void odd_shapes(std::vector<Case>& out) {
  product_case(out, {"f32_1x1x1", 1, 1, {{kF32Weights, 1}}});
  product_case(out, {"f32_3x7x5", 3, 7, {{kF32Weights, 5}}});
  product_case(out, {"f32_5x31x17", 5, 31, {{kF32Weights, 17}}});
  product_case(out, {"f32_16x64x64", 16, 64, {{kF32Weights, 64}}});
  product_case(out, {"f32_bias_33x130x20", 33, 130, {{kF32Weights, 20, true}}});
  product_case(out, {"bf16_1x384x130", 1, 384, {{kBF16Weights, 130}}});
  product_case(out, {"bf16_2x33x3", 2, 33, {{kBF16Weights, 3}}});
  product_case(out, {"bf16_7x200x33", 7, 200, {{kBF16Weights, 33, true}}});
  product_case(out, {"bf16_65x96x48", 65, 96, {{kBF16Weights, 48}}});
  product_case(out, {"f16_4x100x9", 4, 100, {{kF16Weights, 9}}});
  product_case(out, {"f16_17x32x16", 17, 32, {{kF16Weights, 16}}});
  product_case(out, {"fp8_4x200x130", 4, 200, {{kFp8Weights, 130}}});
  product_case(out, {"fp8_1x256x128", 1, 256, {{kFp8Weights, 128}}});
  product_case(out, {"fp8_19x384x40", 19, 384, {{kFp8Weights, 40, true}}});
  product_case(out, {"fp8_unscaled_3x40x8", 3, 40, {{{.dtype = DType::kF8E4M3}, 8}}});
  product_case(out, {"fp8_small_blocks", 3, 70, {{{.dtype = DType::kF8E4M3, .scaled = true, .block = 16}, 37}}});
  product_case(out, {"fp8_inside_blocks", 6, 200, {{{.dtype = DType::kF8E4M3, .scaled = true, .row_offset = 70, .col_offset = 5}, 90}}});
  product_case(out, {"fp8_row_shard", 5, 128, {{{.dtype = DType::kF8E4M3, .scaled = true, .row_offset = 64}, 128}}});
  product_case(out, {"fp8_col_shard", 5, 192, {{{.dtype = DType::kF8E4M3, .scaled = true, .col_offset = 64}, 33}}});
  product_case(out, {"no_rows", 0, 64, {{kBF16Weights, 32}}});
  product_case(out, {"no_outputs", 4, 64, {{kBF16Weights, 0}}});
  product_case(out, {"nonfinite", 5, 67, {{kBF16Weights, 21}}, Compute::kF32, true});
  product_case(out, {"several", 3, 96, {{kBF16Weights, 64}, {kBF16Weights, 33}, {kF32Weights, 7, true}, {kBF16Weights, 1}}});
  product_case(out, {"several_fp8", 18, 256, {{kFp8Weights, 96}, {kFp8Weights, 40}}});
  product_case(out, {"many",
                     2,
                     40,
                     {{kBF16Weights, 5},
                      {kBF16Weights, 5},
                      {kBF16Weights, 5},
                      {kBF16Weights, 5},
                      {kBF16Weights, 5},
                      {kBF16Weights, 5},
                      {kBF16Weights, 5},
                      {kBF16Weights, 5}}});
}

void leaves(std::vector<Case>& out) {
  product_case(out, {"leaves_128_short_last", 3, 300, {{kBF16Weights, 33, false, 128}}});
  product_case(out, {"leaves_128_whole", 17, 512, {{kFp8Weights, 20, false, 128}}});
  product_case(out, {"leaves_heads_40", 4, 200, {{kF32Weights, 11, true, 40}}});
  product_case(out, {"leaves_7_of_9", 2, 63, {{kF32Weights, 5, false, 9}}});
  product_case(out, {"leaves_one", 2, 64, {{kBF16Weights, 16, false, 128}}});
  product_case(out, {"partial_left", 3, 96, {{kBF16Weights, 10, false, 32, 0, 7, true}}});
  product_case(out, {"partial_middle", 3, 96, {{kBF16Weights, 10, false, 32, 2, 7, true}}});
  product_case(out, {"partial_right_short", 3, 80, {{kF32Weights, 10, false, 32, 4, 7, true}}});
  product_case(out, {"partial_fp8", 18, 256, {{{.dtype = DType::kF8E4M3, .scaled = true, .col_offset = 128}, 24, false, 128, 1, 5, true}}});
  product_case(out, {"partial_none", 3, 0, {{kBF16Weights, 10, false, 32, 2, 7, true}}});
}

void fast_mode(std::vector<Case>& out) {
  product_case(out, {"fast_bf16_5x200x33", 5, 200, {{kBF16Weights, 33, true}}, Compute::kBF16});
  product_case(out, {"fast_bf16_1x384x64", 1, 384, {{kBF16Weights, 64}}, Compute::kBF16});
  product_case(out, {"fast_bf16_33x63x17", 33, 63, {{kBF16Weights, 17}}, Compute::kBF16});
  product_case(out, {"fast_fp8_3x200x130", 3, 200, {{kFp8Weights, 130}}, Compute::kBF16});
  product_case(out, {"fast_fp8_20x256x64", 20, 256, {{kFp8Weights, 64}}, Compute::kBF16});
  product_case(out,
               {"fast_fp8_inside", 4, 200, {{{.dtype = DType::kF8E4M3, .scaled = true, .row_offset = 70, .col_offset = 64}, 90}}, Compute::kBF16});
  product_case(out, {"fast_fp8_leaves", 4, 300, {{kFp8Weights, 20, false, 128}}, Compute::kBF16});
  product_case(out, {"fast_fp8_all_leaves_3x2048x40", 3, 2048, {{kFp8Weights, 40, true, 128}}, Compute::kBF16});
  product_case(out, {"fast_bf16_all_leaves_10x1024x70", 10, 1024, {{kBF16Weights, 70, false, 128}}, Compute::kBF16});
  product_case(out, {"fast_f32_weights", 3, 100, {{kF32Weights, 9}}, Compute::kBF16});
  product_case(out, {"fast_nonfinite", 5, 67, {{kBF16Weights, 21}}, Compute::kBF16, true});
}

struct GateUp {
  const char* name;
  int64_t tokens, width, inner;
  Weights weights;
  bool bias = false;
  float limit = 10;
  Compute compute = Compute::kF32;
};

void gate_up_case(std::vector<Case>& out, const GateUp& c) {
  out.push_back({.op = OpId::kGateUp,
                 .name = c.name,
                 .build =
                     [c](Problem& b) {
                       auto& p = b.make<GateUpParams>();
                       p.x = b.in(DType::kF32, {c.tokens, c.width}, normal(), 5);
                       p.gate = b.matrix(c.weights, c.inner, c.width);
                       p.up = b.matrix(c.weights, c.inner, c.width);
                       if (c.bias) p.gate_bias = b.in(DType::kBF16, {c.inner}), p.up_bias = b.in(DType::kF32, {c.inner});
                       p.limit = c.limit, p.compute = c.compute;
                       p.out = b.out(DType::kF32, {c.tokens, c.inner}, 3);
                     },
                 .tolerance = {.relative = 64 * kUnit, .scaled = 8 * kUnit * std::sqrt(static_cast<double>(c.width) + 16)}});
}

}  // namespace

void add_matmul_cases(std::vector<Case>& out) {
  odd_shapes(out);
  leaves(out);
  fast_mode(out);
  gate_up_case(out, {"f32_3x31x17", 3, 31, 17, kF32Weights});
  gate_up_case(out, {"bf16_bias_5x130x33", 5, 130, 33, kBF16Weights, true});
  gate_up_case(out, {"bf16_clamped", 4, 64, 48, {.dtype = DType::kBF16, .deviation = 3}, false, 1});
  gate_up_case(out, {"fp8_1x384x130", 1, 384, 130, kFp8Weights});
  gate_up_case(out, {"fp8_20x200x64", 20, 200, 64, kFp8Weights});
  gate_up_case(out, {"fp8_inside_blocks", 3, 200, 64, {.dtype = DType::kF8E4M3, .scaled = true, .row_offset = 100, .col_offset = 64}});
  gate_up_case(out, {"no_rows", 0, 64, 32, kBF16Weights});
  gate_up_case(out, {"fast_bf16", 5, 200, 33, kBF16Weights, true, 10, Compute::kBF16});
  gate_up_case(out, {"fast_fp8", 18, 256, 64, kFp8Weights, false, 10, Compute::kBF16});
}

}  // namespace lathe::ops::cases
