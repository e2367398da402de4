#include <limits>

#include "ops/cases/cases.h"

namespace lathe::ops::cases {
namespace {

struct Mhc {
  const char* name;
  int64_t tokens, streams, width;
  bool identical = false;  ///< stream stride 0
  bool in_place = false;
  DType fn = DType::kBF16;
  int32_t iterations = 20;
  bool special = false;
};

View streams_of(Problem& b, const Mhc& c) {
  if (c.identical) {
    View view = b.in(DType::kF32, {c.tokens, 1, c.width}, normal(), 4);
    view.shape[1] = c.streams;
    view.stride[1] = 0;
    return view;
  }
  const View view =
      c.in_place ? b.inout(DType::kF32, {c.tokens, c.streams, c.width}) : b.in(DType::kF32, {c.tokens, c.streams, c.width}, normal(), 4);
  if (c.special && c.tokens > 1) view.f32()[view.step(0)] = std::numeric_limits<float>::quiet_NaN();
  return view;
}

void in_case(std::vector<Case>& out, const Mhc& c) {
  out.push_back({.op = OpId::kMhcIn,
                 .name = c.name,
                 .build =
                     [c](Problem& b) {
                       auto& p = b.make<MhcInParams>();
                       const int64_t rows = c.streams * (c.streams + 2);
                       p.streams = streams_of(b, c);
                       p.fn = b.matrix({.dtype = c.fn, .deviation = 2}, rows, c.streams * c.width);
                       p.base = b.in(DType::kF32, {rows});
                       p.scale = b.in(DType::kF32, {3}, uniform(0.5, 2));
                       p.eps = 1e-5f, p.hc_eps = 1e-6f, p.iterations = c.iterations;
                       p.x = b.out(DType::kF32, {c.tokens, c.width}, 3);
                       p.post = b.out(DType::kF32, {c.tokens, c.streams}, 1);
                       p.comb = b.out(DType::kF32, {c.tokens, c.streams, c.streams}, 2);
                     },
                 .tolerance = {.relative = 1e-5, .scaled = 2e-6, .same_class = c.special}});
}

void out_case(std::vector<Case>& out, const Mhc& c) {
  out.push_back({.op = OpId::kMhcOut,
                 .name = c.name,
                 .build =
                     [c](Problem& b) {
                       auto& p = b.make<MhcOutParams>();
                       p.streams = streams_of(b, c);
                       p.y = b.in(DType::kF32, {c.tokens, c.width}, normal(), 2);
                       p.post = b.in(DType::kF32, {c.tokens, c.streams}, uniform(0, 2));
                       p.comb = b.in(DType::kF32, {c.tokens, c.streams, c.streams}, uniform(0, 1));
                       p.out = c.in_place ? p.streams : b.out(DType::kF32, {c.tokens, c.streams, c.width}, 3);
                     },
                 .tolerance = {.scaled = 8 * kUnit, .same_class = c.special}});
}

void mean_case(std::vector<Case>& out, const Mhc& c) {
  out.push_back({.op = OpId::kStreamMean,
                 .name = c.name,
                 .build =
                     [c](Problem& b) {
                       auto& p = b.make<StreamMeanParams>();
                       p.streams = streams_of(b, c);
                       p.out = b.out(DType::kF32, {c.tokens, c.width}, 3);
                     },
                 .tolerance = {.scaled = 4 * kUnit, .same_class = c.special}});
}

}  // namespace

void add_mhc_cases(std::vector<Case>& out) {
  in_case(out, {.name = "s4_width_96", .tokens = 5, .streams = 4, .width = 96});
  in_case(out, {.name = "s4_width_384", .tokens = 18, .streams = 4, .width = 384});
  in_case(out, {.name = "s4_identical", .tokens = 3, .streams = 4, .width = 64, .identical = true});
  in_case(out, {.name = "s1", .tokens = 2, .streams = 1, .width = 33});
  in_case(out, {.name = "s2_f32_one_iteration", .tokens = 3, .streams = 2, .width = 31, .fn = DType::kF32, .iterations = 1});
  in_case(out, {.name = "s3_odd", .tokens = 4, .streams = 3, .width = 17, .iterations = 5});
  in_case(out, {.name = "s6", .tokens = 2, .streams = 6, .width = 20});
  in_case(out, {.name = "nonfinite", .tokens = 3, .streams = 4, .width = 40, .special = true});
  in_case(out, {.name = "no_rows", .tokens = 0, .streams = 4, .width = 16});
  const std::vector<Mhc> mixes = {{.name = "s4_width_100", .tokens = 5, .streams = 4, .width = 100},
                                  {.name = "s4_identical", .tokens = 3, .streams = 4, .width = 65, .identical = true},
                                  {.name = "s1", .tokens = 2, .streams = 1, .width = 1},
                                  {.name = "s3_odd", .tokens = 4, .streams = 3, .width = 17},
                                  {.name = "nonfinite", .tokens = 3, .streams = 4, .width = 40, .special = true},
                                  {.name = "no_rows", .tokens = 0, .streams = 4, .width = 16}};
  for (const Mhc& c : mixes) out_case(out, c);
  out_case(out, {.name = "s4_in_place", .tokens = 5, .streams = 4, .width = 130, .in_place = true});
  out_case(out, {.name = "s5_in_place", .tokens = 2, .streams = 5, .width = 19, .in_place = true});
  for (const Mhc& c : mixes) mean_case(out, c);
}

}  // namespace lathe::ops::cases
