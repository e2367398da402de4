#include <limits>

#include "ops/cases/cases.h"

namespace lathe::ops::cases {
namespace {

struct Rope {
  const char* name;
  int64_t tokens, heads, width;
  int32_t furthest = 40;
  DType norm = DType::kBF16;
  bool nonfinite = false;
};

void rope_case(std::vector<Case>& out, const Rope& c) {
  out.push_back({.op = OpId::kVisionRope,
                 .name = c.name,
                 .build =
                     [c](Problem& b) {
                       auto& p = b.make<VisionRopeParams>();
                       p.qkv = b.inout(DType::kF32, {c.tokens, 3, c.heads, c.width}, normal(), 4);
                       p.q_norm = b.in(c.norm, {c.width}, normal(0.2, 1));
                       p.k_norm = b.in(c.norm, {c.width}, normal(0.2, 1));
                       p.eps = 1e-5f;
                       std::vector<int32_t> places;
                       for (int64_t i = 0; i < 2 * c.tokens; ++i)
                         places.push_back(static_cast<int32_t>(mix(static_cast<uint64_t>(i)) % static_cast<uint64_t>(c.furthest)));
                       p.positions = b.indices(places, {c.tokens, 2});
                       if (c.nonfinite) p.qkv.f32()[p.qkv.step(0)] = std::numeric_limits<float>::quiet_NaN();
                     },
                 // An angle of `furthest` radians in f32 is off by half a unit of it.
                 .tolerance = {.scaled = kUnit * (32 + 2.0 * c.furthest), .same_class = c.nonfinite}});
}

struct Attention {
  const char* name;
  std::vector<int32_t> segments;
  int64_t heads, width;
  bool nonfinite = false;
};

void attention_case(std::vector<Case>& out, const Attention& c) {
  out.push_back({.op = OpId::kVisionAttend,
                 .name = c.name,
                 .build =
                     [c](Problem& b) {
                       auto& p = b.make<VisionAttendParams>();
                       std::vector<int32_t> begin{0};
                       for (const int32_t rows : c.segments) begin.push_back(begin.back() + rows);
                       p.qkv = b.in(DType::kF32, {begin.back(), 3, c.heads, c.width}, normal(1.3), 4);
                       p.segment_begin = b.indices(begin);
                       p.out = b.out(DType::kF32, {begin.back(), c.heads * c.width}, 3);
                       if (c.nonfinite) p.qkv.f32()[p.qkv.step(0)] = std::numeric_limits<float>::quiet_NaN();
                     },
                 .tolerance = {.scaled = 6e-6, .same_class = c.nonfinite},
                 .parts = Parts::kSegments,
                 .exact_counts = c.segments.size() == 1});  // cost() sees one segment
}

}  // namespace

void add_vision_cases(std::vector<Case>& out) {
  rope_case(out, {.name = "h2_16", .tokens = 6, .heads = 2, .width = 16});
  rope_case(out, {.name = "h4_64", .tokens = 5, .heads = 4, .width = 64, .furthest = 200});
  rope_case(out, {.name = "h3_12_f32", .tokens = 3, .heads = 3, .width = 12, .norm = DType::kF32});
  rope_case(out, {.name = "h1_4", .tokens = 2, .heads = 1, .width = 4});
  rope_case(out, {.name = "nonfinite", .tokens = 3, .heads = 2, .width = 16, .nonfinite = true});
  rope_case(out, {.name = "no_rows", .tokens = 0, .heads = 2, .width = 16});
  attention_case(out, {.name = "h2_16", .segments = {9}, .heads = 2, .width = 16});
  attention_case(out, {.name = "h4_64_two", .segments = {16, 37}, .heads = 4, .width = 64});
  attention_case(out, {.name = "h3_20_three", .segments = {4, 0, 1, 6}, .heads = 3, .width = 20});
  attention_case(out, {.name = "nonfinite", .segments = {4, 5}, .heads = 2, .width = 8, .nonfinite = true});
  attention_case(out, {.name = "no_rows", .segments = {0}, .heads = 2, .width = 16});
}

const std::vector<Case>& all_cases() {
  static const std::vector<Case> cases = [] {
    std::vector<Case> out;
    add_basic_cases(out);
    add_matmul_cases(out);
    add_product_code_cases(out);
    add_mhc_cases(out);
    add_kda_cases(out);
    add_replay_cases(out);
    add_index_cases(out);
    add_mla_cases(out);
    add_moe_cases(out);
    add_vision_cases(out);
    return out;
  }();
  return cases;
}

}  // namespace lathe::ops::cases
