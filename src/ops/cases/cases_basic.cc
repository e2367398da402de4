#include <cmath>
#include <limits>

#include "ops/cases/cases.h"

namespace lathe::ops::cases {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Writes a special value into element (t, c) of a float view.
void put(const View& view, int64_t t, int64_t c, double value) { view.f32()[t * view.step(0) + c] = static_cast<float>(value); }

struct EmbedCase {
  const char* name;
  DType dtype;
  int64_t tokens, width;
  bool images = false;
};

void embed_case(std::vector<Case>& out, const EmbedCase& of) {
  const auto [name, dtype, tokens, width, images] = of;
  out.push_back({.op = OpId::kEmbed, .name = name, .build = [=](Problem& b) {
                   auto& p = b.make<EmbedParams>();
                   std::vector<int32_t> ids;
                   std::vector<int32_t> override_row;
                   for (int64_t t = 0; t < tokens; ++t) {
                     ids.push_back(static_cast<int32_t>(mix(static_cast<uint64_t>(t)) % 17));
                     override_row.push_back(t % 3 == 1 ? static_cast<int32_t>(t / 3) : -1);
                   }
                   if (tokens > 1) ids[0] = 16, ids[1] = 0;
                   p.ids = b.indices(ids, {tokens});
                   p.table = b.matrix({.dtype = dtype}, 17, width);
                   if (images)
                     p.override_row = b.indices(override_row, {tokens}), p.overrides = b.in(DType::kF32, {tokens / 3 + 1, width}, normal(), 3);
                   p.out = b.out(DType::kF32, {tokens, width}, 5);
                 }});
  out.back().exact_counts = !images;  // rows of images are not weights
}

void elementwise_nonfinite(const View& view) {
  if (view.dim(0) < 2 || view.dim(1) < 4) return;
  put(view, 1, 0, kNaN), put(view, 1, 1, kInf), put(view, 1, 2, -kInf), put(view, 0, 3, kNaN);
}

/// The output is an input.
enum class InPlace : uint8_t { kNo, kFirst, kSecond };
struct Elementwise {
  const char* name;
  int64_t tokens, width;
  InPlace in_place = InPlace::kNo;
  bool special = false;  ///< values that are not finite
  float limit = 10;      ///< of swiglu
};

void add_case(std::vector<Case>& out, const Elementwise& of) {
  const auto [name, tokens, width, in_place, special, limit] = of;
  out.push_back({.op = OpId::kAdd, .name = name, .build = [=](Problem& b) {
                   auto& p = b.make<AddParams>();
                   p.a = in_place == InPlace::kFirst ? b.inout(DType::kF32, {tokens, width}, normal(), 2)
                                                     : b.in(DType::kF32, {tokens, width}, normal(), 2);
                   p.b = in_place == InPlace::kSecond ? b.inout(DType::kF32, {tokens, width}) : b.in(DType::kF32, {tokens, width});
                   if (special) elementwise_nonfinite(p.a);
                   p.out = in_place == InPlace::kFirst ? p.a : (in_place == InPlace::kSecond ? p.b : b.out(DType::kF32, {tokens, width}, 1));
                 }});
}

struct Norm {
  const char* name;
  int64_t tokens, width;
  DType weight = DType::kF32;
  bool alias = false;
  bool special = false;
  double mean = 0, deviation = 1;
};

template <class Params>
void norm_case(std::vector<Case>& out, const Norm& n) {
  const double grow = kUnit * (16 + std::sqrt(static_cast<double>(n.width)));
  Tolerance tolerance{.relative = grow};
  if constexpr (Params::kId == OpId::kLayerNorm) tolerance = {.scaled = grow * (1 + (n.deviation > 0 ? std::abs(n.mean / n.deviation) : 0))};
  tolerance.same_class = n.special;
  out.push_back({.op = Params::kId,
                 .name = n.name,
                 .build =
                     [=](Problem& b) {
                       auto& p = b.make<Params>();
                       const Fill fill = normal(n.deviation, n.mean);
                       const int64_t pad = n.width % 4 == 0 ? 4 : 3;  // aligned rows, and others
                       p.x = n.alias ? b.inout(DType::kF32, {n.tokens, n.width}, fill, pad) : b.in(DType::kF32, {n.tokens, n.width}, fill, pad);
                       p.weight = b.in(n.weight, {n.width}, normal(0.2, 1));
                       if constexpr (Params::kId == OpId::kLayerNorm) p.bias = b.in(n.weight, {n.width}, normal(0.1));
                       p.eps = 1e-5f;
                       if (n.special) put(p.x, 1, 0, kNaN), put(p.x, 2, n.width - 1, kInf);
                       p.out = n.alias ? p.x : b.out(DType::kF32, {n.tokens, n.width}, 4 + pad);
                     },
                 .tolerance = tolerance});
}

template <class Params>
void norm_cases(std::vector<Case>& out) {
  norm_case<Params>(out, {.name = "width_1", .tokens = 3, .width = 1});
  norm_case<Params>(out, {.name = "width_5", .tokens = 2, .width = 5});
  norm_case<Params>(out, {.name = "width_16", .tokens = 4, .width = 16, .alias = true});
  norm_case<Params>(out, {.name = "width_31_bf16", .tokens = 3, .width = 31, .weight = DType::kBF16});
  norm_case<Params>(out, {.name = "width_384_bf16", .tokens = 9, .width = 384, .weight = DType::kBF16, .alias = true});
  norm_case<Params>(out, {.name = "width_1000", .tokens = 2, .width = 1000});
  norm_case<Params>(out, {.name = "far_mean", .tokens = 3, .width = 130, .mean = 30});
  norm_case<Params>(out, {.name = "tiny_values", .tokens = 3, .width = 40, .deviation = 1e-4});
  norm_case<Params>(out, {.name = "large_values", .tokens = 3, .width = 40, .deviation = 1e12});
  norm_case<Params>(out, {.name = "zeros", .tokens = 2, .width = 33, .deviation = 0});
  norm_case<Params>(out, {.name = "nonfinite", .tokens = 5, .width = 67, .special = true});
  norm_case<Params>(out, {.name = "no_rows", .tokens = 0, .width = 64});
}

void gelu_case(std::vector<Case>& out, const Elementwise& of) {
  const auto [name, tokens, width, in_place, special, limit] = of;
  const bool alias = in_place == InPlace::kFirst;
  out.push_back({.op = OpId::kGelu,
                 .name = name,
                 .build =
                     [=](Problem& b) {
                       auto& p = b.make<GeluParams>();
                       p.x = alias ? b.inout(DType::kF32, {tokens, width}, uniform(-9, 9)) : b.in(DType::kF32, {tokens, width}, uniform(-9, 9), 2);
                       if (special) elementwise_nonfinite(p.x);
                       p.out = alias ? p.x : b.out(DType::kF32, {tokens, width}, 1);
                     },
                 .tolerance = {.relative = 32 * kUnit, .absolute = 9 * 4 * kUnit, .same_class = special}});
}

void swiglu_case(std::vector<Case>& out, const Elementwise& of) {
  const auto [name, tokens, width, in_place, special, limit] = of;
  out.push_back({.op = OpId::kSwiglu,
                 .name = name,
                 .build =
                     [=](Problem& b) {
                       auto& p = b.make<SwigluParams>();
                       p.gate = in_place == InPlace::kFirst ? b.inout(DType::kF32, {tokens, width}, normal(3))
                                                            : b.in(DType::kF32, {tokens, width}, normal(3), 3);
                       p.up = in_place == InPlace::kSecond ? b.inout(DType::kF32, {tokens, width}, normal(3))
                                                           : b.in(DType::kF32, {tokens, width}, normal(3), 5);
                       p.limit = limit;
                       if (special) elementwise_nonfinite(p.gate), put(p.up, 2, 0, kNaN), put(p.up, 2, 1, kInf), put(p.gate, 0, 0, -1e4);
                       p.out = in_place == InPlace::kFirst ? p.gate : (in_place == InPlace::kSecond ? p.up : b.out(DType::kF32, {tokens, width}, 1));
                     },
                 .tolerance = {.relative = 64 * kUnit, .absolute = 1e-35, .same_class = special}});
}

}  // namespace

void add_basic_cases(std::vector<Case>& out) {
  embed_case(out, {.name = "f32", .dtype = DType::kF32, .tokens = 5, .width = 33});
  embed_case(out, {.name = "bf16_images", .dtype = DType::kBF16, .tokens = 7, .width = 40, .images = true});
  embed_case(out, {.name = "f16", .dtype = DType::kF16, .tokens = 3, .width = 17});
  embed_case(out, {.name = "no_rows", .dtype = DType::kBF16, .tokens = 0, .width = 16});
  for (const auto& list : std::vector<std::pair<const char*, std::vector<int32_t>>>{{"repeats", {5, 0, 0, 3, 5, 1, 2}}, {"none", {}}}) {
    out.push_back({.op = OpId::kGatherRows, .name = list.first, .build = [rows = list.second](Problem& b) {
                     auto& p = b.make<GatherRowsParams>();
                     const auto n = static_cast<int64_t>(rows.size());
                     p.x = b.in(DType::kF32, {6, 35}, normal(), 4);
                     p.rows = b.indices(rows, {n});
                     p.out = b.out(DType::kF32, {n, 35}, 2);
                   }});
  }
  add_case(out, {.name = "width_1", .tokens = 3, .width = 1});
  add_case(out, {.name = "width_100", .tokens = 4, .width = 100});
  add_case(out, {.name = "in_place_a", .tokens = 3, .width = 33, .in_place = InPlace::kFirst});
  add_case(out, {.name = "in_place_b", .tokens = 3, .width = 31, .in_place = InPlace::kSecond});
  add_case(out, {.name = "nonfinite", .tokens = 2, .width = 19, .special = true});
  add_case(out, {.name = "no_rows", .tokens = 0, .width = 16});
  norm_cases<RmsNormParams>(out);
  norm_cases<LayerNormParams>(out);
  gelu_case(out, {.name = "width_1", .tokens = 3, .width = 1});
  gelu_case(out, {.name = "width_203", .tokens = 5, .width = 203});
  gelu_case(out, {.name = "in_place", .tokens = 3, .width = 48, .in_place = InPlace::kFirst});
  gelu_case(out, {.name = "nonfinite", .tokens = 2, .width = 21, .special = true});
  gelu_case(out, {.name = "no_rows", .tokens = 0, .width = 16});
  swiglu_case(out, {.name = "width_1", .tokens = 3, .width = 1});
  swiglu_case(out, {.name = "width_130", .tokens = 4, .width = 130});
  swiglu_case(out, {.name = "clamped", .tokens = 3, .width = 77, .limit = 1});
  swiglu_case(out, {.name = "in_place_gate", .tokens = 3, .width = 48, .in_place = InPlace::kFirst, .limit = 2});
  swiglu_case(out, {.name = "in_place_up", .tokens = 3, .width = 47, .in_place = InPlace::kSecond, .limit = 2});
  swiglu_case(out, {.name = "nonfinite", .tokens = 3, .width = 37, .special = true});
  swiglu_case(out, {.name = "no_rows", .tokens = 0, .width = 32});
}

}  // namespace lathe::ops::cases
