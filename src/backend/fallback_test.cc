// Goal: a device that lacks an op gives the same bits through the host reference, the promised result through a composition, and says which it took.
#include <cmath>

#include "backend/fake_device.h"
#include "backend/test_support.h"
#include "ops/basic.h"

namespace lathe::backend::testing {
namespace {

using ops::OpId;

/// All bytes of a problem's tensors after it ran on the reference.
std::vector<char> expected(const Problem& problem) {
  const auto device = reference_device();
  const auto dispatch = dispatch_on(*device);
  Tensors tensors(*device);
  OpSite site{.name = "expected"};
  problem.run(tensors, *dispatch, site);
  return tensors.all();
}

class Fallback : public ::testing::TestWithParam<Problem> {};

TEST_P(Fallback, HostReferenceGivesTheSameBits) {
  const auto device = *FakeDevice::create({});
  const auto dispatch = dispatch_on(*device, {.no_fallback = false, .kernels = {}, .host_reference = reference_table(), .rank = 0});
  Tensors tensors(*device);
  OpSite site{.name = "site", .layer = 2};
  GetParam().run(tensors, *dispatch, site);
  EXPECT_EQ(site.route, Route::kHostReference);
  EXPECT_EQ(device->counts().launches, 0);
  EXPECT_GT(device->counts().bytes_to_host, 0);
  EXPECT_GT(site.fallback_calls, 0);
  EXPECT_EQ(site.fallback_calls, dispatch->fallback_calls());
  EXPECT_TRUE(tensors.all() == expected(GetParam()));
}

TEST_P(Fallback, RunsNativelyOnClosedMemory) {
  const auto table = reference_table();
  const auto device = *FakeDevice::create({table.begin(), table.end()});
  const auto dispatch = dispatch_on(*device);
  Tensors tensors(*device);
  OpSite site{.name = "site"};
  GetParam().run(tensors, *dispatch, site);
  EXPECT_EQ(site.route, Route::kNative);
  EXPECT_GT(device->counts().launches, 0);
  EXPECT_EQ(dispatch->fallback_calls(), 0);
  EXPECT_TRUE(tensors.all() == expected(GetParam()));
}

TEST_P(Fallback, IsAnErrorWhereForbidden) {
  const auto device = *FakeDevice::create(without(reference_table(), GetParam().op));
  const auto dispatch = dispatch_on(*device, {.no_fallback = true, .kernels = {}, .host_reference = reference_table(), .rank = 0});
  Tensors tensors(*device);
  OpSite site{.name = "site"};
  dispatch->begin_plan();
  GetParam().run(tensors, *dispatch, site);
  const Result<void> planned = dispatch->end_plan();
  ASSERT_FALSE(planned.has_value());
  EXPECT_EQ(planned.error().code, Code::kFailedPrecondition);
  EXPECT_NE(planned.error().message.find("--no-fallback"), std::string::npos) << planned.error().message;
  EXPECT_NE(planned.error().message.find(ops::op_info(GetParam().op).name), std::string::npos) << planned.error().message;
}

INSTANTIATE_TEST_SUITE_P(Problems, Fallback, ::testing::ValuesIn(problems()), [](const auto& test) {
  std::string name = test.param.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

TEST(HostMirror, WritesBackWhatChangedAndNothingElse) {
  const auto device = *FakeDevice::create({});
  const auto dispatch = dispatch_on(*device, {.no_fallback = false, .kernels = {}, .host_reference = reference_table(), .rank = 0});
  Tensors tensors(*device);
  const View wide = tensors.floats({2, 4});
  const std::vector<float> before = tensors.get(wide);
  OpSite site{.name = "site"};
  dispatch->run(site, ops::AddParams{.a = wide.slice(1, 0, 1), .b = wide.slice(1, 1, 2), .out = wide.slice(1, 2, 3)});
  const std::vector<float> after = tensors.get(wide);
  for (const size_t kept : {0u, 1u, 3u, 4u, 5u, 7u}) EXPECT_EQ(after[kept], before[kept]);
  EXPECT_EQ(after[2], before[0] + before[1]);
  EXPECT_EQ(after[6], before[4] + before[5]);
}

/// Compositions against the op itself, on every problem that they support.
struct Promise {
  OpId op;
  const char* name;
  bool same_bits;
};

class Compositions : public ::testing::TestWithParam<Promise> {};

TEST_P(Compositions, MeanTheSameAsTheOp) {
  int supported = 0;
  for (const Problem& problem : problems()) {
    if (problem.op != GetParam().op) continue;
    const auto table = reference_table();
    const auto device = *FakeDevice::create({table.begin(), table.end()});
    const std::map<std::string, std::string> forced = {{ops::op_info(problem.op).name, GetParam().name}};
    const auto dispatch = dispatch_on(*device, {.no_fallback = false, .kernels = forced, .host_reference = table, .rank = 0});
    Tensors tensors(*device);
    OpSite site{.name = "site"};
    problem.run(tensors, *dispatch, site);
    if (site.route != Route::kComposition) continue;
    ++supported;
    EXPECT_STREQ(site.composition->name, GetParam().name);
    for (const OpSite& part : *site.parts) EXPECT_EQ(part.route, Route::kNative) << part.reason;
    EXPECT_EQ(dispatch->sites().size(), 1 + site.parts->size());
    const std::vector<char> got = tensors.all();
    const std::vector<char> want = expected(problem);
    if (GetParam().same_bits) {
      EXPECT_TRUE(got == want) << problem.name;
      continue;
    }
    ASSERT_EQ(got.size(), want.size());
    for (size_t at = 0; at + 4 <= got.size(); at += 4) {
      if (std::memcmp(&got[at], &want[at], 4) == 0) continue;  // inputs of other dtypes
      float a = 0;
      float b = 0;
      std::memcpy(&a, &got[at], 4), std::memcpy(&b, &want[at], 4);
      EXPECT_NEAR(a, b, 1e-5f) << problem.name;
    }
  }
  EXPECT_GT(supported, 0);
}

constexpr Promise kPromises[] = {{OpId::kGateUp, "matmul+swiglu", true},
                                 {OpId::kMatmul, "one_by_one", true},
                                 {OpId::kMlaExpanded, "absorb+attend+unabsorb", false},
                                 {OpId::kMlaUnabsorb, "matmul_per_head", false},
                                 {OpId::kAdd, "mhc_out", true},
                                 {OpId::kStreamMean, "mhc_out", false},
                                 {OpId::kGatherRows, "embed", true},
                                 {OpId::kEmbed, "gather_rows", true},
                                 {OpId::kRmsNorm, "gated_norm", false}};

INSTANTIATE_TEST_SUITE_P(All, Compositions, ::testing::ValuesIn(kPromises), [](const auto& test) { return ops::op_info(test.param.op).name; });

TEST(Compositions, EachHasItsPromise) { EXPECT_EQ(compositions().size(), std::size(kPromises)); }

TEST(Compositions, ComeBeforeTheHostReference) {
  const auto device = *FakeDevice::create(without(reference_table(), OpId::kGateUp));
  const auto dispatch = dispatch_on(*device, {.no_fallback = false, .kernels = {}, .host_reference = reference_table(), .rank = 0});
  for (const Problem& problem : problems()) {
    if (problem.op != OpId::kGateUp) continue;
    Tensors tensors(*device);
    OpSite site{.name = "site"};
    problem.run(tensors, *dispatch, site);
    EXPECT_EQ(site.route, Route::kComposition);
    EXPECT_EQ(site.reason, "no native variant");
    EXPECT_EQ(device->counts().bytes_to_host, 0);
  }
}

}  // namespace
}  // namespace lathe::backend::testing
