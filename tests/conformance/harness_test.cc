// The harness must be able to fail: kernels with one fault each, and the check that finds it.

#include "harness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/ref/reference.h"

namespace lathe::conformance {
namespace {

using namespace lathe::ops;  // NOLINT(google-build-using-namespace): a test of that namespace
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

bool any(const void*) { return true; }

void reference(OpId op, const void* params, const LaunchContext& context) {
  for (const Variant& variant : kernels::ref::reference_variants()) {
    if (variant.op == op) variant.run(params, context);
  }
}

std::vector<std::string> failures(OpId op, KernelFn run, KernelFn counted = nullptr) {
  static HostRunner one(1);
  static HostRunner several(3);
  const Variant variant{.op = op, .name = "faulty", .supports = any, .run = run, .run_counted = counted};
  const Report report = run_conformance(std::span(&variant, 1), {one, several});
  EXPECT_GT(report.ran, 0);
  return report.failures;
}

void last_column_forgotten(const void* params, const LaunchContext& context) {
  MatmulParams p = *static_cast<const MatmulParams*>(params);
  for (int32_t i = 0; i < p.part_count; ++i) {
    MatmulPart& part = p.parts[static_cast<size_t>(i)];
    const int64_t n = part.weight.rows();
    if (n < 2) continue;
    part.weight = tensor::slice_matrix(part.weight, {0, n - 1}, {0, part.weight.cols()});
    part.y = part.y.slice(part.y.rank - 1, 0, n - 1);
    if (part.bias.present()) part.bias = part.bias.slice(0, 0, n - 1);
  }
  reference(OpId::kMatmul, &p, context);
}
TEST(Harness, FindsElementsThatWereNotWritten) {
  EXPECT_THAT(failures(OpId::kMatmul, last_column_forgotten), Contains(HasSubstr("was not written")));
}

void writes_behind_the_row(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const RmsNormParams*>(params);
  reference(OpId::kRmsNorm, params, context);
  for (int64_t t = 0; t < p.out.dim(0); ++t) p.out.f32()[t * p.out.step(0) + p.out.dim(1)] = 0;
}
TEST(Harness, FindsWritesOutsideTheElements) {
  EXPECT_THAT(failures(OpId::kRmsNorm, writes_behind_the_row), Contains(HasSubstr("outside the elements")));
}

void changes_its_input(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const GeluParams*>(params);
  reference(OpId::kGelu, params, context);
  if (p.x.elements() > 0 && p.x.data != p.out.data) p.x.f32()[0] += 1;
}
TEST(Harness, FindsChangedInputs) { EXPECT_THAT(failures(OpId::kGelu, changes_its_input), Contains(HasSubstr("was changed"))); }

void other_order_for_one_row(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const RmsNormParams*>(params);
  reference(OpId::kRmsNorm, params, context);
  if (p.x.dim(0) != 1) return;  // a "GEMV path" that rounds in another way
  for (int64_t c = 0; c < p.out.dim(1); ++c) p.out.f32()[c] = std::nextafter(p.out.f32()[c], 1.0f);
}
TEST(Harness, FindsBitsThatDependOnTheNumberOfRows) {
  const std::vector<std::string> found = failures(OpId::kRmsNorm, other_order_for_one_row);
  EXPECT_THAT(found, Contains(HasSubstr("rows alone: out[")));
  EXPECT_THAT(found, Contains(HasSubstr("has other bits")));
  EXPECT_THAT(found, Not(Contains(HasSubstr("expected")))) << "the error is within tolerance: only the partition check can see it";
}

void depends_on_the_worker(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const AddParams*>(params);
  reference(OpId::kAdd, params, context);
  if (context.pool->threads() > 1 && p.out.elements() > 0) p.out.f32()[0] = std::nextafter(p.out.f32()[0], 100.0f);
}
TEST(Harness, FindsBitsThatDependOnThreads) {
  EXPECT_THAT(failures(OpId::kAdd, depends_on_the_worker), Contains(HasSubstr("several threads: out[")));
}

void forgets_the_ring(const void* params, const LaunchContext& context) {
  ShortConvParams p = *static_cast<const ShortConvParams*>(params);
  const std::vector<std::byte> kept(static_cast<std::byte*>(p.ring.data), static_cast<std::byte*>(p.ring.data) + p.ring.extent_bytes());
  reference(OpId::kShortConv, &p, context);
  std::copy(kept.begin(), kept.end(), static_cast<std::byte*>(p.ring.data));
}
TEST(Harness, FindsLostState) {
  const std::vector<std::string> found = failures(OpId::kShortConv, forgets_the_ring);
  EXPECT_THAT(found, Contains(HasSubstr("ring[")));
  EXPECT_THAT(found, Contains(HasSubstr("sequences cut: out[")));
}

void decay_a_little_off(const void* params, const LaunchContext& context) {
  KdaRecurrenceParams p = *static_cast<const KdaRecurrenceParams*>(params);
  std::vector<float> g(static_cast<size_t>(std::max<int64_t>(1, p.g.elements())));
  size_t i = 0;
  cases::each_element(p.g, [&](int64_t at) { g[i++] = p.g.f32()[at] * 1.0001f; });
  p.g = tensor::make_view(g.data(), DType::kF32, {p.g.dim(0), p.g.dim(1)});
  reference(OpId::kKdaRecurrence, &p, context);
}
TEST(Harness, FindsADecayThatIsOffByOneInTenThousand) {
  EXPECT_THAT(failures(OpId::kKdaRecurrence, decay_a_little_off), Contains(HasSubstr("states[")));
}

void a_chosen_pool_is_swapped(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const IndexSelectParams*>(params);
  reference(OpId::kIndexSelect, params, context);
  for (int64_t t = 0; t < p.selection.dim(0); ++t) {
    int32_t* const row = p.selection.i32() + t * p.selection.step(0);
    int64_t last = p.selection.dim(1) - 1;
    while (last > 0 && row[last] < 0) --last;
    if (last > 0 && row[last] > row[last - 1] + 1) --row[last];
  }
}
TEST(Harness, FindsAWrongChoice) { EXPECT_THAT(failures(OpId::kIndexSelect, a_chosen_pool_is_swapped), Contains(HasSubstr("is left out"))); }

void nan_is_swallowed(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const SwigluParams*>(params);
  reference(OpId::kSwiglu, params, context);
  cases::each_element(p.out, [&](int64_t at) {
    if (std::isnan(p.out.f32()[at])) p.out.f32()[at] = 0;
  });
}
TEST(Harness, FindsSwallowedNaN) { EXPECT_THAT(failures(OpId::kSwiglu, nan_is_swallowed), Contains(HasSubstr("expected"))); }

void counted_differs(const void* params, const LaunchContext& context) {
  const auto& p = *static_cast<const AddParams*>(params);
  reference(OpId::kAdd, params, context);
  if (p.out.elements() > 0) p.out.f32()[0] = 1234;
}
void plain_add(const void* params, const LaunchContext& context) { reference(OpId::kAdd, params, context); }
TEST(Harness, FindsATwinThatComputesSomethingElse) {
  EXPECT_THAT(failures(OpId::kAdd, plain_add, counted_differs), Contains(HasSubstr("counting twin: out[")));
}

template <int kTwice>
void counted_add(const void* params, const LaunchContext& context) {
  reference(OpId::kAdd, params, context);
  const auto& p = *static_cast<const AddParams*>(params);
  context.counters->add(Counter::kBytesRead, 8 * p.out.elements());
  context.counters->add(Counter::kBytesWritten, 4 * p.out.elements());
  context.counters->add(Counter::kFlops, p.out.elements() * kTwice / 2);
}
TEST(Harness, FindsWorkThatIsNotCountedOrRepeated) {
  EXPECT_THAT(failures(OpId::kAdd, plain_add, counted_add<2>), testing::IsEmpty());
  EXPECT_THAT(failures(OpId::kAdd, plain_add, counted_add<1>), Contains(HasSubstr("needed")));
  EXPECT_THAT(failures(OpId::kAdd, plain_add, counted_add<3>), Contains(HasSubstr("allowed")));
}

TEST(Harness, CaseNamesAreUnique) {
  std::vector<std::string> names;
  for (const Case& item : cases::all_cases()) names.push_back(std::string(op_info(item.op).name) + "/" + item.name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  for (int i = 0; i < kOpCount; ++i) {
    const std::string prefix = std::string(op_info(static_cast<OpId>(i)).name) + "/";
    EXPECT_TRUE(std::any_of(names.begin(), names.end(), [&](const std::string& name) { return name.starts_with(prefix); }))
        << prefix << " has no case";
  }
}

TEST(Harness, CasesAtModelSizesAreValidAndRun) {
  HostRunner runner(2);
  for (const Case& item : cases::model_cases(cases::builtin_shape(), 6, 2, 300, Compute::kF32)) {
    const std::unique_ptr<Problem> problem = build(item);
    const Result<void> valid = op_info(item.op).validate(problem->params());
    ASSERT_TRUE(valid.has_value()) << item.name << ": " << valid.error().message;
    if (item.op == OpId::kMatmul || item.op == OpId::kMoe) continue;  // the long ones
    for (const Variant& variant : kernels::ref::reference_variants()) {
      if (variant.op == item.op) runner.run(variant, problem->params(), nullptr);
    }
    EXPECT_EQ(problem->damage(), "") << item.name;
    EXPECT_EQ(unwritten(*problem), "") << item.name;
  }
}

}  // namespace
}  // namespace lathe::conformance
