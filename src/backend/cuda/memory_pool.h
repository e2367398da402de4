#pragma once
// Carves allocations out of large blocks of device memory. Knows addresses and sizes alone: it never looks into the memory, so tests run it on the host.

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "base/result.h"

namespace lathe::backend {

/// Best fit over holes that are merged when they meet. Not thread-safe.
class MemoryPool {
 public:
  static constexpr int64_t kAlign = 256;
  static constexpr int64_t kBlockBytes = int64_t{64} << 20;

  /// grow(bytes): a new block of that many bytes, or an error.
  explicit MemoryPool(std::function<Result<void*>(int64_t)> grow) : grow_(std::move(grow)) {}
  Result<void*> allocate(int64_t bytes);
  void release(void* memory, int64_t bytes);

  int64_t used_bytes() const { return used_; }
  int64_t held_bytes() const { return held_; }
  /// Blocks as grow gave them.
  const std::vector<void*>& blocks() const { return blocks_; }

 private:
  static int64_t padded(int64_t bytes) { return bytes <= 0 ? kAlign : (bytes + kAlign - 1) / kAlign * kAlign; }

  std::function<Result<void*>(int64_t)> grow_;
  std::vector<void*> blocks_;
  std::map<uintptr_t, int64_t> holes_;  ///< begin → bytes; holes of different blocks never meet: a block ends with a gap
  int64_t used_ = 0;
  int64_t held_ = 0;
};

}  // namespace lathe::backend
