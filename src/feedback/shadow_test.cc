// Goal: the shadow sees a wrong output, passes over what it cannot compare, and says so where it had no memory to look.
#include "feedback/shadow.h"

#include <gtest/gtest.h>

#include <array>

#include "backend/cpu/cpu_device.h"
#include "backend/fake_device.h"
#include "kernels/ref/reference.h"
#include "ops/basic.h"

namespace lathe::feedback {
namespace {

TEST(Shadow, TellsAWrongOutput) {
  const auto device = std::move(*backend::make_cpu_device({.threads = 1, .isa = "", .reference = true}));
  std::array<float, 4> a{1, 2, 3, 4}, b{10, 20, 30, 40}, sum{11, 22, 33, 44.5f};
  const auto view = [](std::array<float, 4>& values) { return tensor::make_view(values.data(), DType::kF32, {1, 4}); };
  ops::AddParams params{.a = view(a), .b = view(b), .out = view(sum)};
  backend::OpSite site{.name = "sum", .layer = 3};
  backend::OpCall call{.info = &ops::op_info(ops::OpId::kAdd), .site = &site, .params = &params};
  ShadowObserver shadow(*device);
  shadow.after(call, *device);
  const ShadowObserver::Finding& finding = shadow.finding(ops::OpId::kAdd);
  EXPECT_EQ(finding.calls, 1);
  EXPECT_NEAR(finding.worst, 0.5 / 44, 1e-6);
  EXPECT_EQ(finding.where, "sum layer 3");
  params.out = params.a;  // in place: the input is gone
  shadow.after(call, *device);
  EXPECT_EQ(finding.calls, 1);
  EXPECT_TRUE(shadow.status().has_value());
}

TEST(Shadow, SaysThatItHadNoMemoryToLook) {
  const auto device = std::move(*backend::FakeDevice::create({kernels::ref::reference_of(ops::OpId::kAdd)}));
  const auto buffer = backend::Buffer::create(*device, 64);
  ASSERT_TRUE(buffer.has_value());
  View vast = tensor::make_view(buffer->data(), DType::kF32, {2, 3});
  vast.shape[0] = int64_t{1} << 55;  // nothing has that much memory
  ops::AddParams params{.a = vast, .b = vast, .out = vast};
  backend::OpSite site{.name = "sum", .layer = 3};
  backend::OpCall call{.info = &ops::op_info(ops::OpId::kAdd), .site = &site, .params = &params};
  ShadowObserver shadow(*device);
  shadow.after(call, *device);
  EXPECT_EQ(shadow.finding(ops::OpId::kAdd).calls, 0);
  ASSERT_FALSE(shadow.status().has_value());
  EXPECT_EQ(shadow.status().error().message, "layer 3 sum (add): no memory on the host to look into its inputs and outputs");
}

}  // namespace
}  // namespace lathe::feedback
