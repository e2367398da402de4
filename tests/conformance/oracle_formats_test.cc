// The reference of the 8-bit formats against a second writing of their recipes, and what a cut must not change.

#include <gtest/gtest.h>

#include <cmath>

#include "oracle.h"

namespace lathe::conformance {
namespace {

using namespace lathe::ops;  // NOLINT(google-build-using-namespace): a test of that namespace

/// Nearest E4M3 value, ties to the even code, by looking at all of them.
double nearest_f8(double x) {
  double best = 0;
  int best_code = 0;
  for (int code = 0; code < 0x7F; ++code) {
    const double value = static_cast<double>(tensor::f8e4m3_to_float(static_cast<uint8_t>(code)));
    const double distance = std::abs(std::abs(x) - value), least = std::abs(std::abs(x) - best);
    if (distance < least || (distance == least && code % 2 == 0 && best_code % 2 != 0)) best = value, best_code = code;
  }
  return std::copysign(best, x);
}

float largest(const float* x, int64_t n) {
  float most = 0;
  for (int64_t i = 0; i < n; ++i) most = std::fmax(most, std::fabs(x[i]));
  return most;
}

/// y[t, n] of an INT8 product with int64 sums.
float int8_product_of(const MatmulParams& p, const MatmulPart& part, int64_t t, int64_t n) {
  const float* const x = p.x.f32() + t * p.x.step(0);
  const int64_t width = p.x.dim(1);
  const float amax = p.x_amax.present() ? p.x_amax.f32()[t] : largest(x, width);
  const float inverse = 127.0f / amax;
  int64_t sum = 0;
  for (int64_t c = 0; c < width; ++c) {
    const auto code = amax > 0 ? static_cast<int64_t>(std::lrint(x[c] * inverse)) : 0;
    sum += code * static_cast<const int8_t*>(part.weight.values.data)[n * part.weight.values.step(0) + c];
  }
  const float scaled = static_cast<float>(sum) * (amax / 127.0f) * part.weight.scales.f32()[n + part.weight.row_offset];
  return part.bias.present() ? scaled + tensor::bf16_to_float(part.bias.bf16()[n]) : scaled;
}

TEST(OracleFormats, Int8ProductsAreTheseBits) {
  for (const char* name : {"int8_5x63x33", "int8_33x200x17", "int8_long_sum", "int8_given_amax", "int8_ties", "int8_zero_rows"}) {
    const auto b = named(OpId::kMatmul, name);
    auto& p = b->get<MatmulParams>();
    run_reference(*b);
    for (int64_t t = 0; t < p.x.dim(0); ++t) {
      for (int64_t n = 0; n < p.parts[0].weight.rows(); ++n) {
        ASSERT_EQ(p.parts[0].y.f32()[t * p.parts[0].y.step(0) + n], int8_product_of(p, p.parts[0], t, n)) << name << " " << t << " " << n;
      }
    }
  }
}

/// One of several ranks that hold channels [c0, c1): its largest magnitudes, then its sums.
struct Int8Rank {
  Problem memory;
  View amax, sums;

  void measure(const View& x, int64_t c0, int64_t c1) {
    auto& p = memory.make<RowAmaxParams>();
    p.x = x.slice(1, c0, c1), p.out = amax = memory.out(DType::kF32, {x.dim(0)});
    EXPECT_TRUE(validate(p).has_value());
    run_reference(memory);
  }
  void multiply(const View& x, const MatrixView& weight, int64_t c0, int64_t c1, const View& greatest) {
    auto& p = memory.make<MatmulParams>();
    p.x = x.slice(1, c0, c1), p.x_amax = greatest, p.compute = Compute::kInt8, p.part_count = 1;
    p.parts[0].weight = tensor::slice_matrix(weight, {0, weight.rows()}, {c0, c1});
    p.parts[0].y = sums = memory.out(DType::kI32, {x.dim(0), weight.rows()});
    EXPECT_TRUE(validate(p).has_value()) << validate(p).error().message;
    run_reference(memory);
  }
};

TEST(OracleFormats, CutChannelsOfAnInt8ProductGiveTheBitsOfTheWhole) {
  Problem whole;
  auto& p = whole.make<MatmulParams>();
  p.x = whole.in(DType::kF32, {5, 210}), p.compute = Compute::kInt8, p.part_count = 1;
  MatmulPart& part = p.parts[0];
  part.weight = whole.matrix({.dtype = DType::kI8, .scaled = true}, 9, 210), part.bias = whole.in(DType::kBF16, {9});
  part.y = whole.out(DType::kF32, {5, 9});
  run_reference(whole);
  for (const std::vector<int64_t>& cut : {std::vector<int64_t>{0, 210}, {0, 100, 210}, {0, 1, 1, 130, 210}}) {
    std::deque<Int8Rank> ranks(cut.size() - 1);
    const View greatest = whole.inout(DType::kF32, {5}, cases::constant(0)), total = whole.out(DType::kI32, {5, 9});
    for (size_t r = 0; r < ranks.size(); ++r) {
      ranks[r].measure(p.x, cut[r], cut[r + 1]);
      for (int64_t t = 0; t < 5; ++t) greatest.f32()[t] = std::fmax(greatest.f32()[t], ranks[r].amax.f32()[t]);
    }
    std::fill_n(total.i32(), 45, 0);
    for (size_t r = 0; r < ranks.size(); ++r) {
      ranks[r].multiply(p.x, part.weight, cut[r], cut[r + 1], greatest);
      for (int64_t i = 0; i < 45; ++i) total.i32()[i] += ranks[r].sums.i32()[i];
    }
    Problem end;
    auto& q = end.make<ScaleSumsParams>();
    q.sums = total, q.x_amax = greatest, q.scales = part.weight.scales, q.bias = part.bias, q.y = end.out(DType::kF32, {5, 9});
    ASSERT_TRUE(validate(q).has_value());
    run_reference(end);
    for (int64_t i = 0; i < 45; ++i) EXPECT_EQ(q.y.f32()[i], part.y.f32()[i]) << i;
  }
}

TEST(OracleFormats, Fp8ProductsUseRunsThatBeginAnewAtEachLeaf) {
  for (const char* name : {"fp8_codes_17x200x33", "fp8_codes_leaves_of_192", "fp8_codes_leaves_of_64", "fp8_codes_inside_blocks", "fp8_codes_ties"}) {
    const auto b = named(OpId::kMatmul, name);
    auto& p = b->get<MatmulParams>();
    const MatmulPart& part = p.parts[0];
    run_reference(*b);
    const int64_t width = p.x.dim(1), leaf = part.leaf_channels > 0 ? part.leaf_channels : width;
    Values x;
    for (int64_t t = 0; t < p.x.dim(0); ++t) {
      const float* const row = p.x.f32() + t * p.x.step(0);
      for (int64_t c = 0; c < width; ++c) {
        const int64_t run = c / leaf * leaf + c % leaf / 128 * 128;
        const float amax = largest(row + run, std::min({int64_t{128}, width - run, c / leaf * leaf + leaf - run}));
        x.push_back(nearest_f8(static_cast<double>(row[c] * (448.0f / amax))) * static_cast<double>(amax / 448.0f));
      }
    }
    const Values want = lathe::conformance::multiply(x, dense(part.weight), static_cast<size_t>(p.x.dim(0)), static_cast<size_t>(width),
                                                     static_cast<size_t>(part.weight.rows()), true);
    EXPECT_LT(distance(values(part.y), want), 3e-7) << name;
  }
}

/// Rounds a head's state [keys, width] as the format does.
void round_state(std::vector<double>& state, size_t keys, size_t width, DType format) {
  for (size_t j = 0; j < width; ++j) {
    float amax = 0;
    for (size_t c = 0; c < keys; ++c) amax = std::fmax(amax, std::fabs(static_cast<float>(state[c * width + j])));
    for (size_t c = 0; c < keys; ++c) {
      const auto value = static_cast<float>(state[c * width + j]);
      const float code = std::nearbyint(amax > 0 ? value * (127.0f / amax) : 0.0f);
      const float half = tensor::f16_to_float(tensor::float_to_f16(std::fmin(std::fmax(value, -65504.0f), 65504.0f)));
      state[c * width + j] = static_cast<double>(format == DType::kI8 ? code * (amax / 127.0f) : half);
    }
  }
}

/// o of one head of a sequence that enters with zeros and keeps every row, in double but for the rounding of the state.
Values rounded_recurrence(const KdaRecurrenceParams& p, int64_t begin, int64_t end, int64_t h) {
  const auto keys = static_cast<size_t>(p.q.dim(2)), width = static_cast<size_t>(p.v.dim(2));
  std::vector<double> state(keys * width);
  Values out;
  for (int64_t t = begin; t < end; ++t) {
    const auto head = [&](const View& v, size_t c) { return static_cast<double>(v.f32()[t * v.step(0) + h * v.step(1) + static_cast<int64_t>(c)]); };
    double qq = 1e-6, kk = 1e-6;
    for (size_t c = 0; c < keys; ++c) qq += head(p.q, c) * head(p.q, c), kk += head(p.k, c) * head(p.k, c);
    const double beta = static_cast<double>(p.beta.f32()[t * p.beta.step(0) + h]);
    for (size_t j = 0; j < width; ++j) {
      double guess = 0, o = 0;
      for (size_t c = 0; c < keys; ++c) {
        state[c * width + j] *= std::exp(static_cast<double>(p.g.f32()[t * p.g.step(0) + h * p.q.dim(2) + static_cast<int64_t>(c)]));
        guess += state[c * width + j] * head(p.k, c) / std::sqrt(kk);
      }
      for (size_t c = 0; c < keys; ++c) {
        state[c * width + j] += head(p.k, c) / std::sqrt(kk) * beta * (head(p.v, j) - guess);
        o += state[c * width + j] * head(p.q, c) / std::sqrt(qq * static_cast<double>(keys));
      }
      out.push_back(o);
    }
    round_state(state, keys, width, p.states.dtype);
  }
  return out;
}

TEST(OracleFormats, StatesGoOnFromWhatWasKept) {
  for (const char* name : {"f16_64x64_zeros", "i8_64x64_zeros"}) {
    const auto b = named(OpId::kKdaRecurrence, name);
    auto& p = b->get<KdaRecurrenceParams>();
    run_reference(*b);
    const Values got = values(p.o.slice(0, 1, 5)), want = rounded_recurrence(p, 1, 5, 0);
    EXPECT_LT(distance(got, want), p.states.dtype == DType::kI8 ? 1e-3 : 1e-5) << name;
  }
}

/// The same rows as f32: code · scale, a scale for each 128 values.
Paged wide(Problem& memory, const Paged& narrow) {
  Paged out = narrow;
  out.pool = memory.out(DType::kF32, {narrow.pool.dim(0), narrow.pool.dim(1)}), out.scales = {};
  for (int64_t r = 0; r < narrow.pool.dim(0); ++r) {
    for (int64_t c = 0; c < narrow.pool.dim(1); ++c) {
      out.pool.f32()[r * out.pool.step(0) + c] = tensor::load_as_float(narrow.pool.dtype, narrow.pool.data, r * narrow.pool.step(0) + c) *
                                                 narrow.scales.f32()[r * narrow.scales.step(0) + c / 128];
    }
  }
  return out;
}

TEST(OracleFormats, RowsOfCodesReadAsCodeTimesTheScaleOfTheirRun) {
  Problem memory;
  for (const char* name : {"i8_h2_200", "f8_h2_200", "i8_h20_512", "f8_h20_512"}) {
    const auto b = named(OpId::kMlaAttend, name), w = named(OpId::kMlaAttend, name);
    auto& p = w->get<MlaAttendParams>();
    p.latents = wide(memory, p.latents);
    run_reference(*b), run_reference(*w);
    EXPECT_LT(distance(values(b->get<MlaAttendParams>().out), values(p.out)), 1e-6) << name;
  }
  for (const char* name : {"i8_h2_130", "f8_h2_130", "fast_i8_h2_64"}) {
    const auto b = named(OpId::kMlaExpanded, name), w = named(OpId::kMlaExpanded, name);
    auto& p = w->get<MlaExpandedParams>();
    p.latents = wide(memory, p.latents);
    run_reference(*b), run_reference(*w);
    // In fast mode latents of f32 are rounded to BF16, codes are not.
    EXPECT_LT(distance(values(b->get<MlaExpandedParams>().out), values(p.out)), p.compute == Compute::kBF16 ? 2e-2 : 1e-6) << name;
  }
}

TEST(OracleFormats, WrittenRowsAreWithinHalfAStepOfEachRun) {
  for (const char* name : {"i8_200", "f8_200"}) {
    const auto b = named(OpId::kWriteLatents, name);
    auto& p = b->get<WriteLatentsParams>();
    run_reference(*b);
    Problem memory;
    const Paged read = wide(memory, p.pool);
    for (int32_t i = 0; i < 2; ++i) {  // the rows of the second sequence, which are plain
      const int64_t position = p.batch.host_start[1] + i;
      const int64_t at = p.pool.table.i32()[p.pool.table.step(0) + position / 4] * 4 + position % 4;
      const float* const x = p.x.f32() + (p.batch.host_begin[1] + i) * p.x.step(0);
      for (int64_t c = 0; c < 200; ++c) {
        const float amax = largest(x + c / 128 * 128, std::min<int64_t>(128, 200 - c / 128 * 128));
        const float step = p.pool.pool.dtype == DType::kI8 ? amax / 254 : std::fmax(std::fabs(x[c]) / 16, amax / 448 / 512);
        EXPECT_NEAR(read.pool.f32()[at * 200 + c], x[c], 1.001f * step) << name << " " << c;
      }
    }
  }
}

TEST(OracleFormats, ARowThatIsNotFiniteIsNotANumberAndAloneInIt) {
  for (const char* name : {"int8_nan", "int8_infinity", "fp8_codes_nan", "fp8_codes_infinity"}) {
    const auto b = named(OpId::kMatmul, name);
    auto& p = b->get<MatmulParams>();
    run_reference(*b);
    const View& y = p.parts[0].y;
    for (int64_t t = 0; t < y.dim(0); ++t) {
      for (int64_t n = 0; n < y.dim(1); ++n) EXPECT_EQ(std::isnan(y.f32()[t * y.step(0) + n]), t == 1) << name << " row " << t;
    }
  }
}

}  // namespace
}  // namespace lathe::conformance
