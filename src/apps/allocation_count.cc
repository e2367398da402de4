#include "apps/allocation_count.h"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LATHE_OWN_NEW 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define LATHE_OWN_NEW 0
#endif
#endif
#ifndef LATHE_OWN_NEW
#define LATHE_OWN_NEW 1
#endif

#if LATHE_OWN_NEW

namespace {

std::atomic<int64_t> count{0};

/// What operator new has to do when memory is out: the caller gets std::bad_alloc, which main() reports.
void* checked(void* memory) {
  if (memory != nullptr) [[likely]]
    return memory;
  volatile size_t impossible = static_cast<size_t>(-1);
  return std::allocator<char>().allocate(impossible);  // refuses at once, by that exception
}

void* aligned(size_t bytes, size_t alignment) {
  count.fetch_add(1, std::memory_order_relaxed);
  const size_t padded = (bytes + alignment - 1) / alignment * alignment;
  return padded < bytes ? nullptr : std::aligned_alloc(alignment, padded > 0 ? padded : alignment);
}

}  // namespace

void* operator new(size_t bytes) {
  count.fetch_add(1, std::memory_order_relaxed);
  return checked(std::malloc(bytes > 0 ? bytes : 1));
}
void* operator new(size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  count.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes > 0 ? bytes : 1);
}
void* operator new(size_t bytes, std::align_val_t alignment) { return checked(aligned(bytes, static_cast<size_t>(alignment))); }
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t& /*tag*/) noexcept {
  return aligned(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t /*bytes*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept { std::free(memory); }
void operator delete(void* memory, size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t& /*tag*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t /*alignment*/, const std::nothrow_t& /*tag*/) noexcept { std::free(memory); }

namespace lathe::apps {
int64_t allocation_count() { return count.load(std::memory_order_relaxed); }
}  // namespace lathe::apps

#else

namespace lathe::apps {
int64_t allocation_count() { return -1; }
}  // namespace lathe::apps

#endif
