// Goal: allocations are aligned and never overlap, holes are merged and used again, and errors of the device come through.

#include "backend/cuda/memory_pool.h"

#include <gtest/gtest.h>

#include <random>

#include "backend/cuda/cuda_device.h"

namespace lathe::backend {
namespace {

/// Addresses that nobody may touch.
struct Nowhere {
  uintptr_t next = MemoryPool::kAlign * 1000;
  int64_t left = int64_t{1} << 40;
  Result<void*> grow(int64_t bytes) {
    if (bytes > left) return err(Code::kResourceExhausted, "cannot allocate {} bytes", bytes);
    left -= bytes;
    void* const at = reinterpret_cast<void*>(next);
    next += static_cast<uintptr_t>(bytes);
    return at;
  }
  MemoryPool pool{[this](int64_t bytes) { return grow(bytes); }};
};

TEST(MemoryPool, AllocationsAreApartAndReused) {
  Nowhere nowhere;
  std::mt19937 random(5);
  std::map<uintptr_t, int64_t> held;
  for (int round = 0; round < 20000; ++round) {
    if (held.size() > 200 || (!held.empty() && random() % 2 == 0)) {
      auto victim = std::next(held.begin(), static_cast<std::ptrdiff_t>(random() % held.size()));
      nowhere.pool.release(reinterpret_cast<void*>(victim->first), victim->second);
      held.erase(victim);
      continue;
    }
    const auto bytes = static_cast<int64_t>(random() % 3 == 0 ? random() % 5000000 : random() % 2000);
    const Result<void*> memory = nowhere.pool.allocate(bytes);
    ASSERT_TRUE(memory.has_value());
    const auto begin = reinterpret_cast<uintptr_t>(*memory);
    ASSERT_EQ(begin % MemoryPool::kAlign, 0u);
    const auto after = held.lower_bound(begin);
    ASSERT_TRUE(after == held.end() || begin + static_cast<uintptr_t>(bytes) <= after->first);
    ASSERT_TRUE(after == held.begin() || std::prev(after)->first + static_cast<uintptr_t>(std::prev(after)->second) <= begin);
    held.emplace(begin, bytes);
  }
  for (const auto& [begin, bytes] : held) nowhere.pool.release(reinterpret_cast<void*>(begin), bytes);
  EXPECT_EQ(nowhere.pool.used_bytes(), 0);
  const int64_t before = nowhere.pool.held_bytes();
  ASSERT_TRUE(nowhere.pool.allocate(MemoryPool::kBlockBytes - MemoryPool::kAlign).has_value());
  EXPECT_EQ(nowhere.pool.held_bytes(), before) << "a block that is free again is one hole";
}

TEST(MemoryPool, ErrorsOfTheDeviceComeThrough) {
  Nowhere nowhere;
  nowhere.left = 100 << 20;
  ASSERT_TRUE(nowhere.pool.allocate(1).has_value());
  const Result<void*> refused = nowhere.pool.allocate(int64_t{1} << 30);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_TRUE(nowhere.pool.allocate(1 << 20).has_value()) << "the pool works on after an error";
}

TEST(CudaDevice, SaysWhyThereIsNone) {
  const Result<std::unique_ptr<Device>> device = make_cuda_device({.ordinal = 4096});
  ASSERT_FALSE(device.has_value());
  EXPECT_TRUE(device.error().code == Code::kUnimplemented || device.error().code == Code::kUnavailable ||
              device.error().code == Code::kInvalidArgument)
      << device.error().message;
  EXPECT_FALSE(device.error().message.empty());
}

}  // namespace
}  // namespace lathe::backend
