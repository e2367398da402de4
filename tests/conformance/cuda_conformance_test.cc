// The CUDA table against the reference: on a GPU where there is one, else nothing. Compiled a second time over the emulation of the kernels (LATHE_CUDA_EMULATED)
// for machines without a GPU.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "backend/fake_device.h"
#include "device_runner.h"
#include "kernels/cuda/cuda_variants.h"
#ifndef LATHE_CUDA_EMULATED
#include "backend/cuda/cuda_device.h"
#endif

namespace lathe::conformance {
namespace {

/// Null: why is printed.
std::unique_ptr<backend::Device> device_under_test() {
#ifdef LATHE_CUDA_EMULATED
  const std::span<const Variant> table = kernels::cuda::cuda_variants();
  return std::move(*backend::FakeDevice::create({table.begin(), table.end()}));
#else
  Result<std::unique_ptr<backend::Device>> device = backend::make_cuda_device({});
  if (device) return std::move(*device);
  std::printf("skipped: %s\n", device.error().message.c_str());
  return nullptr;
#endif
}

class CudaVariantTest : public testing::Test {
 public:
  CudaVariantTest(backend::Device& device, std::span<const Variant> variant) : device_(device), variant_(variant) {}
  void TestBody() override {
    DeviceRunner runner(device_);
    const Report report = run_conformance(variant_, {runner, runner});
    for (const std::string& text : report.failures) ADD_FAILURE() << text;
    EXPECT_GT(report.ran, 0) << "no case of the table fits this variant: it is not tested";
  }

 private:
  backend::Device& device_;
  std::span<const Variant> variant_;
};

}  // namespace
}  // namespace lathe::conformance

int main(int argc, char** argv) {
  using namespace lathe;
  testing::InitGoogleTest(&argc, argv);
  const std::unique_ptr<backend::Device> device = conformance::device_under_test();
  if (device == nullptr) return 0;
  const std::span<const ops::Variant> table = device->table();
  for (size_t i = 0; i < table.size(); ++i) {
    const std::span<const ops::Variant> variant = table.subspan(i, 1);
    const std::string name = fmt::format("{}/{}", ops::op_info(variant[0].op).name, variant[0].name);
    testing::RegisterTest("Conformance/cuda", name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [&device, variant]() -> testing::Test* { return new conformance::CudaVariantTest(*device, variant); });
  }
  return RUN_ALL_TESTS();
}
