#include "backend/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> count{0};

void* counted(size_t bytes, size_t alignment) {
  count.fetch_add(1, std::memory_order_relaxed);
  const size_t padded = (bytes + alignment - 1) / alignment * alignment;
  return std::aligned_alloc(alignment, padded > 0 ? padded : alignment);
}

void* counted_or_end(size_t bytes, size_t alignment) {
  void* const memory = counted(bytes, alignment);
  if (memory == nullptr) std::abort();
  return memory;
}

constexpr size_t kDefault = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

}  // namespace

namespace lathe::backend {
int64_t allocation_count() { return count.load(std::memory_order_relaxed); }
}  // namespace lathe::backend

void* operator new(size_t bytes) { return counted_or_end(bytes, kDefault); }
void* operator new(size_t bytes, std::align_val_t alignment) { return counted_or_end(bytes, static_cast<size_t>(alignment)); }
void* operator new(size_t bytes, const std::nothrow_t& /*tag*/) noexcept { return counted(bytes, kDefault); }
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t& /*tag*/) noexcept {
  return counted(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t /*bytes*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept { std::free(memory); }
void operator delete(void* memory, size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept { std::free(memory); }
