// Goal: the number of threads follows the bandwidth only where it must; what a device takes is what the plan says; settled memory keeps its bytes.
#include "backend/cpu/thread_choice.h"

#include <gtest/gtest.h>

namespace lathe::backend {
namespace {

constexpr double kGb = 1e9;

TEST(ThreadChoice, TheMostThreadsThatReadAsMuch) {
  EXPECT_EQ(threads_by_bandwidth(std::vector<BandwidthSample>{{.threads = 64, .bytes_per_second = 300 * kGb},
                                                              {.threads = 48, .bytes_per_second = 310 * kGb},
                                                              {.threads = 32, .bytes_per_second = 305 * kGb}}),
            64);
  EXPECT_EQ(threads_by_bandwidth(std::vector<BandwidthSample>{{.threads = 64, .bytes_per_second = 200 * kGb},
                                                              {.threads = 48, .bytes_per_second = 300 * kGb},
                                                              {.threads = 32, .bytes_per_second = 310 * kGb}}),
            48);
  EXPECT_EQ(
      threads_by_bandwidth(std::vector<BandwidthSample>{
          {.threads = 8, .bytes_per_second = 10 * kGb}, {.threads = 6, .bytes_per_second = 20 * kGb}, {.threads = 4, .bytes_per_second = 40 * kGb}}),
      4);
}

TEST(ThreadChoice, ADeviceTakesIt) {
  const ThreadChoice choice = choose_threads({.isa = ""}).value();
  EXPECT_GE(choice.plan.threads, 1);
  EXPECT_EQ(choice.measured.empty(), choice.plan.cores <= kMeasuredCores || choice.plan.threads <= kMeasuredCores);
  EXPECT_FALSE(choice.plan.reason.empty());
  const auto device = std::move(*make_cpu_device({.isa = "scalar"}));
  EXPECT_NE(device->describe().find(std::to_string(choice.plan.threads) + " threads"), std::string::npos) << device->describe();
  EXPECT_EQ(choose_threads({.threads = 3, .isa = ""})->plan.threads, 3);
  EXPECT_TRUE(choose_threads({.threads = 3, .isa = ""})->measured.empty());
  const auto refused = make_cpu_device({.isa = "scalar", .cpus = {8000}});
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("8000"), std::string::npos);
}

TEST(ThreadChoice, SettledMemoryIsTheSameMemory) {
  // Two workers that are said to be on two nodes; where there is one only, the other's pages stay.
  base::ThreadPlan plan{.threads = 2, .workers = {{.cpus = {}, .node = 0}, {.cpus = {}, .node = 1}}, .pinned = true, .nodes = 2, .reason = ""};
  base::ThreadPool pool(2);
  std::vector<unsigned char> memory(100 * 4096);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<unsigned char>(i * 7 + i / 4096);
  const std::vector<unsigned char> before = memory;
  for (const size_t offset : {size_t{0}, size_t{5}, size_t{4096 + 77}}) {
    const SettledPages settled = settle_pages(pool, plan, memory.data() + offset, static_cast<int64_t>(memory.size() - offset));
    const auto first = reinterpret_cast<uintptr_t>(memory.data() + offset) / 4096,
               end = reinterpret_cast<uintptr_t>(memory.data() + memory.size() - 1) / 4096;
    EXPECT_EQ(settled.pages, static_cast<int64_t>(end - first + 1)) << offset;
    EXPECT_LE(settled.moved, settled.pages);
  }
  EXPECT_EQ(memory, before);
}

}  // namespace
}  // namespace lathe::backend
