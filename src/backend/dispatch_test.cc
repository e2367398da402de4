// Goal: the choice of a variant and its reason, forcing, errors of the plan pass, and a hot path that allocates nothing. What a call costs: src/evaluate/bench_test.cc.
#include "backend/dispatch.h"

#include "backend/allocations.h"
#include "backend/fake_device.h"
#include "backend/test_support.h"
#include "ops/basic.h"
#include "ops/kda.h"
#include "ops/mla.h"

namespace lathe::backend::testing {
namespace {

using ops::OpId;

bool yes(const void*) { return true; }
bool no(const void*) { return false; }
void nothing(const void*, const ops::LaunchContext&) {}

constexpr std::array<ops::Variant, 4> kTable = {{{OpId::kAdd, "wide", no, nothing, nullptr},
                                                 {OpId::kGelu, "other", yes, nothing, nullptr},
                                                 {OpId::kAdd, "fast", yes, nothing, nullptr},
                                                 {OpId::kAdd, "slow", yes, nothing, nullptr}}};

struct Add {
  std::array<float, 6> data{};
  ops::AddParams params;
  Add() {
    const View view = tensor::make_view(data.data(), DType::kF32, {2, 3});
    params = {.a = view, .b = view, .out = view};
  }
};

std::string choice(const std::string& forced) {
  const Add add;
  const Choice chosen = choose(kTable, OpId::kAdd, &add.params, forced);
  return (chosen.variant == nullptr ? "none" : chosen.variant->name) + std::string(": ") + chosen.reason;
}

TEST(Choose, TakesTheFirstThatSupportsAndSaysWhatItPassedOver) {
  EXPECT_EQ(choice(""), "fast: first that supports it; not supporting (a f32, b f32, out f32): wide");
}

TEST(Choose, TakesTheForcedOne) { EXPECT_EQ(choice("slow"), "slow: forced by --kernel"); }

TEST(Choose, FallsBackFromAForcedOneThatCannot) {
  EXPECT_EQ(choice("wide"), "fast: forced 'wide' does not support it, first that supports it; not supporting (a f32, b f32, out f32): wide");
}

TEST(Choose, SaysSoIfThereIsNone) {
  const Add add;
  const Choice chosen = choose(std::span(kTable).first(2), OpId::kAdd, &add.params, "");
  EXPECT_EQ(chosen.variant, nullptr);
  EXPECT_EQ(chosen.reason, "no native variant; not supporting (a f32, b f32, out f32): wide");
}

TEST(Forcing, UnknownNamesAreErrorsThatListTheKnown) {
  const auto device = *FakeDevice::create({kTable.begin(), kTable.end()});
  const auto message = [&](const std::string& op, const std::string& variant) {
    const auto dispatch =
        Dispatch::create(*device, {.no_fallback = false, .kernels = {{op, variant}}, .host_reference = reference_table(), .rank = 0});
    EXPECT_FALSE(dispatch.has_value());
    EXPECT_EQ(dispatch.error().code, Code::kInvalidArgument);
    return dispatch.error().message;
  };
  EXPECT_EQ(message("add", "fastest"),
            "--kernel add=fastest: no variant of add on device fake is called 'fastest'; known ones: wide, fast, slow, mhc_out, host");
  EXPECT_EQ(message("plus", "fast").substr(0, 71), "--kernel plus=fast: no op is called 'plus'; known ops: embed, gather_ro");
}

TEST(Plan, LaunchesNothingAndListsSites) {
  const auto device = *FakeDevice::create({kTable.begin(), kTable.end()});
  const auto dispatch = dispatch_on(*device, {.no_fallback = false, .kernels = {{"add", "slow"}}, .host_reference = {}, .rank = 0});
  Tensors tensors(*device);
  const View view = tensors.zeros({2, 3});
  OpSite site{.name = "residual", .layer = 4};
  for (int pass = 0; pass < 2; ++pass) {
    dispatch->begin_plan();
    dispatch->run(site, ops::AddParams{.a = view, .b = view, .out = view});
    EXPECT_TRUE(dispatch->end_plan().has_value());
  }
  EXPECT_EQ(device->counts().launches, 0);
  ASSERT_EQ(dispatch->sites(), std::vector<const OpSite*>{&site});
  EXPECT_EQ(site.route, Route::kNative);
  EXPECT_EQ(site.variant, &device->table()[3]);
  dispatch->run(site, ops::AddParams{.a = view, .b = view, .out = view});
  EXPECT_EQ(device->counts().launches, 1);
}

TEST(Plan, ReportsTheFirstErrorWithItsPlace) {
  const auto device = *FakeDevice::create({kTable.begin(), kTable.end()});
  const auto dispatch = dispatch_on(*device);
  Tensors tensors(*device);
  const View view = tensors.zeros({2, 3});
  OpSite bad{.name = "residual", .layer = 4};
  OpSite worse{.name = "end"};
  dispatch->begin_plan();
  dispatch->run(bad, ops::AddParams{.a = view, .b = view.rows(0, 1), .out = view});
  dispatch->run(worse, ops::AddParams{.a = view, .b = {}, .out = view});
  const Result<void> planned = dispatch->end_plan();
  ASSERT_FALSE(planned.has_value());
  EXPECT_EQ(planned.error().message, "layer 4 residual (add): add: b is f32[1, 3], expected [T = 2 as in a, D = 3 as in a]");
  dispatch->begin_plan();
  EXPECT_TRUE(dispatch->end_plan().has_value()) << "an error belongs to its pass";
}

TEST(Plan, AnOpThatNobodyHasIsAnError) {
  const auto device = *FakeDevice::create({kTable.begin(), kTable.end()});
  const auto dispatch = dispatch_on(*device);
  Tensors tensors(*device);
  OpSite site{.name = "latents", .layer = 1};
  dispatch->begin_plan();
  const View x = tensors.zeros({2, 8});
  dispatch->run(site, ops::RmsNormParams{.x = x, .weight = tensors.zeros({8}), .eps = 0, .out = x});
  const Result<void> planned = dispatch->end_plan();
  ASSERT_FALSE(planned.has_value());
  EXPECT_EQ(planned.error().code, Code::kUnimplemented);
  EXPECT_EQ(planned.error().message,
            "layer 1 latents (rms_norm): device fake cannot run it and there is no host reference (no native variant; composition gated_norm: needs "
            "gated_norm, which the device lacks)");
}

TEST(PlanDeathTest, OneSiteIsOneOp) {
  const auto device = *FakeDevice::create({kTable.begin(), kTable.end()});
  const auto dispatch = dispatch_on(*device);
  Tensors tensors(*device);
  const View view = tensors.zeros({2, 3});
  OpSite site{.name = "twice"};
  dispatch->begin_plan();
  dispatch->run(site, ops::AddParams{.a = view, .b = view, .out = view});
  EXPECT_DEATH(dispatch->run(site, ops::GeluParams{.x = view, .out = view}), "site 'twice' is used for two ops: add and gelu");
  EXPECT_TRUE(dispatch->end_plan().has_value());
}

TEST(HotPath, AllocatesNothing) {
  // Kernels that do nothing: native, through a composition, and observed by an observer that does nothing.
  const auto device = *FakeDevice::create({{OpId::kGelu, "nothing", yes, nothing, nullptr}, {OpId::kMhcOut, "nothing", yes, nothing, nullptr}});
  const auto dispatch = dispatch_on(*device);
  Tensors tensors(*device);
  const View x = tensors.floats({2, 3});
  const View out = tensors.floats({2, 3});
  OpSite gelu{.name = "gelu"};
  OpSite add{.name = "add"};
  OpObserver silent;
  const auto step = [&] {
    dispatch->run(gelu, ops::GeluParams{.x = x, .out = out});
    dispatch->run(add, ops::AddParams{.a = x, .b = out, .out = out});
  };
  step();
  const int64_t before = allocation_count();
  for (int i = 0; i < 10; ++i) step();
  dispatch->set_observer(&silent);
  for (int i = 0; i < 10; ++i) step();
  dispatch->set_observer(nullptr);
#ifndef LATHE_DCHECKS  // such builds validate every call, and messages allocate
  EXPECT_EQ(allocation_count(), before);
#else
  EXPECT_GE(allocation_count(), before);
#endif
  EXPECT_EQ(add.fallback_calls, 21);
  EXPECT_EQ(dispatch->fallback_calls(), 21);
}

/// An observer is not shown a call that failed, and no call runs until the failure is taken.
TEST(Failure, StaysUntilItIsTaken) {
  const auto device = *FakeDevice::create({{OpId::kGelu, "nothing", yes, nothing, nullptr}});
  const auto dispatch = dispatch_on(*device);
  Tensors tensors(*device);
  const View x = tensors.floats({2, 3});
  OpSite site{.name = "gelu"};
  class Seen final : public OpObserver {
   public:
    explicit Seen(Dispatch& dispatch) : dispatch_(dispatch) {}
    void before(OpCall&, Device&) override {
      ++begun;
      if (begun == 2) dispatch_.fail({Code::kResourceExhausted, "first"});
    }
    void after(OpCall&, Device&) override { ++ended; }
    int begun = 0, ended = 0;

   private:
    Dispatch& dispatch_;
  } seen(*dispatch);
  dispatch->set_observer(&seen);
  for (int i = 0; i < 4; ++i) dispatch->run(site, ops::GeluParams{.x = x, .out = x});
  EXPECT_EQ(seen.begun, 2);
  EXPECT_EQ(seen.ended, 1);
  dispatch->set_observer(nullptr);
  dispatch->fail({Code::kInternal, "second"});
  ASSERT_NE(dispatch->failure(), nullptr);
  EXPECT_EQ(dispatch->failure()->message, "first");
  const int64_t launches = device->counts().launches;
  dispatch->run(site, ops::GeluParams{.x = x, .out = x});
  EXPECT_EQ(device->counts().launches, launches);
  EXPECT_EQ(dispatch->take_error().error().message, "first");
  EXPECT_EQ(dispatch->failure(), nullptr);
  EXPECT_TRUE(dispatch->take_error().has_value());
  dispatch->run(site, ops::GeluParams{.x = x, .out = x});
  EXPECT_EQ(device->counts().launches, launches + 1);
}

}  // namespace
}  // namespace lathe::backend::testing
