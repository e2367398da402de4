// Goal: device memory is zeroed, aligned, lazy and bounded; instruction sets can be forced; the fake device shuts the host out.
#include <algorithm>
#include <cstdlib>
#include <random>

#include "backend/cpu/isa.h"
#include "backend/fake_device.h"
#include "backend/test_support.h"
#include "ops/basic.h"

namespace lathe::backend::testing {
namespace {

TEST(CpuDevice, MemoryIsZeroedAlignedAndLazy) {
  const auto device = reference_device();
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{5000}, int64_t{1} << 28}) {
    const Result<Buffer> buffer = Buffer::create(*device, bytes);
    ASSERT_TRUE(buffer.has_value());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u);
    const char* const at = static_cast<const char*>(buffer->data());
    EXPECT_TRUE(bytes == 0 || (at[0] == 0 && at[bytes / 2] == 0 && at[bytes - 1] == 0));
  }
}

TEST(CpuDevice, MoreThanTheMachineHasIsAnError) {
  const auto device = reference_device();
  const Result<Buffer> buffer = Buffer::create(*device, int64_t{1} << 60);
  ASSERT_FALSE(buffer.has_value());
  EXPECT_EQ(buffer.error().code, Code::kResourceExhausted);
  EXPECT_NE(buffer.error().message.find("1152921504606846976 bytes"), std::string::npos) << buffer.error().message;
}

/// Asks for as many bytes as its only parameter says; notes when it got them.
struct Hungry {
  int64_t bytes = 0;
  bool local = false;
  int* fed = nullptr;
  static void run(const void* params, const ops::LaunchContext& context) {
    const Hungry& hungry = *static_cast<const Hungry*>(params);
    void* const memory = hungry.local ? context.scratch->local(0, hungry.bytes) : context.scratch->shared(hungry.bytes);
    if (memory != nullptr) ++*hungry.fed;
  }
};

TEST(CpuDevice, RefusedScratchIsAnErrorAndNothingRunsBeforeItIsTaken) {
  const auto device = *make_cpu_device({.threads = 2, .isa = "", .reference = false, .scratch_max = 1000});
  const ops::Variant variant{.op = ops::OpId::kAdd, .name = "hungry", .run = &Hungry::run};
  for (const bool local : {false, true}) {
    int small_fed = 0;
    int large_fed = 0;
    const Hungry small{.bytes = 1000, .local = local, .fed = &small_fed};
    const Hungry large{.bytes = 1001, .local = local, .fed = &large_fed};
    device->launch(variant, &small, nullptr);
    EXPECT_TRUE(device->take_error().has_value());
    device->launch(variant, &large, nullptr);
    device->launch(variant, &small, nullptr);
    EXPECT_EQ(small_fed, 1);
    const Result<void> error = device->take_error();
    ASSERT_FALSE(error.has_value());
    EXPECT_EQ(error.error().code, Code::kResourceExhausted);
    EXPECT_EQ(error.error().message.substr(0, 33), "add needs 1001 bytes of scratch, ") << error.error().message;
    device->launch(variant, &small, nullptr);
    EXPECT_EQ(small_fed, 2);
    EXPECT_EQ(large_fed, 0);
    EXPECT_TRUE(device->take_error().has_value());
  }
}

TEST(CpuDevice, MoreScratchThanMemoryIsAnError) {
  const auto device = reference_device();
  const ops::Variant variant{.op = ops::OpId::kAdd, .name = "hungry", .run = &Hungry::run};
  int fed = 0;
  const Hungry hungry{.bytes = int64_t{1} << 60, .local = false, .fed = &fed};
  device->launch(variant, &hungry, nullptr);
  EXPECT_EQ(fed, 0);
  EXPECT_FALSE(device->take_error().has_value());
}

TEST(CpuDevice, ThreadsAreChecked) { EXPECT_FALSE(make_cpu_device({.threads = -1, .isa = "", .reference = false}).has_value()); }

TEST(Isa, LevelsAreListedLowestFirst) {
  const std::vector<IsaLevel> levels = available_isa_levels();
  ASSERT_FALSE(levels.empty());
  EXPECT_EQ(levels.front(), IsaLevel::kScalar);
  EXPECT_TRUE(std::is_sorted(levels.begin(), levels.end()));
  EXPECT_EQ(levels.back(), detect_isa());
}

TEST(Isa, IsForcedByOptionThenEnvironment) {
  EXPECT_EQ(*choose_isa("", nullptr), detect_isa());
  EXPECT_EQ(*choose_isa("", ""), detect_isa());
  EXPECT_EQ(*choose_isa("", "scalar"), IsaLevel::kScalar);
  EXPECT_EQ(*choose_isa("scalar", "nonsense"), IsaLevel::kScalar);
}

TEST(Isa, UnknownAndUnavailableLevelsAreErrors) {
  const Result<IsaLevel> unknown = choose_isa("", "sse9");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().message.substr(0, 65), "instruction set 'sse9' of LATHE_ISA is unknown; available: scalar") << unknown.error().message;
  const Result<IsaLevel> missing = choose_isa("amx", nullptr);
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().message.substr(0, 79), "instruction set 'amx' is not available on this machine and build; available: sc")
      << missing.error().message;
}

TEST(Isa, TableGoesFromHighToLowAndEndsWithTheReference) {
  const auto device = std::move(*make_cpu_device({.threads = 1, .isa = "scalar", .reference = false}));
  const auto reference = reference_table();
  const auto table = device->table();
  ASSERT_GE(table.size(), reference.size());
  const auto tail = table.last(reference.size());
  for (size_t i = 0; i < tail.size(); ++i) EXPECT_EQ(tail[i].run, reference[i].run);
  for (int op = 0; op < ops::kOpCount; ++op) {
    EXPECT_TRUE(std::any_of(table.begin(), table.end(), [&](const ops::Variant& v) { return static_cast<int>(v.op) == op; })) << "op " << op;
  }
  EXPECT_NE(device->describe().find("scalar"), std::string::npos);
}

TEST(FakeDevice, MemoryIsReusedZeroedAndAligned) {
  const auto device = *FakeDevice::create({}, 1 << 20);
  std::mt19937 random(3);
  std::vector<Buffer> held;
  for (int round = 0; round < 500; ++round) {
    const int64_t bytes = static_cast<int64_t>(random() % 9000);
    Result<Buffer> buffer = Buffer::create(*device, bytes);
    ASSERT_TRUE(buffer.has_value()) << buffer.error().message;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u);
    std::vector<char> content(static_cast<size_t>(bytes), 1);
    device->copy_to_host(content.data(), buffer->data(), bytes);
    EXPECT_EQ(std::count(content.begin(), content.end(), 0), bytes);
    std::fill(content.begin(), content.end(), 1);
    device->copy_to_device(buffer->data(), content.data(), bytes);
    held.push_back(std::move(*buffer));
    if (held.size() > 60) held.erase(held.begin() + static_cast<std::ptrdiff_t>(random() % held.size()));
  }
  held.clear();
  EXPECT_EQ(device->used_bytes(), 0);
  EXPECT_TRUE(Buffer::create(*device, 1 << 20).has_value()) << "holes unite";
  const Result<Buffer> more = Buffer::create(*device, (1 << 20) + 1);
  ASSERT_FALSE(more.has_value());
  EXPECT_EQ(more.error().code, Code::kResourceExhausted);
}

TEST(FakeDeviceDeathTest, TheHostCannotLookIn) {
  const auto device = *FakeDevice::create({});
  const Result<Buffer> buffer = Buffer::create(*device, 64);
  float value = 1;
  device->copy_to_device(buffer->data(), &value, sizeof(value));  // opened and closed again
  EXPECT_DEATH(value += *static_cast<volatile float*>(buffer->data()), "");
  EXPECT_DEATH(*static_cast<volatile float*>(buffer->data()) = value, "");
}

TEST(FakeDeviceDeathTest, LaunchesTakeDeviceMemoryAlone) {
  const auto table = reference_table();
  const auto device = *FakeDevice::create({table.begin(), table.end()});
  const auto dispatch = dispatch_on(*device);
  std::array<float, 4> host{};
  const View x = tensor::make_view(host.data(), DType::kF32, {2, 2});
  OpSite site{.name = "gelu"};
  EXPECT_DEATH(dispatch->run(site, ops::GeluParams{.x = x, .out = x}), "gelu: x is not in device memory");
}

}  // namespace
}  // namespace lathe::backend::testing
