#include "backend/cuda/memory_pool.h"

#include <algorithm>

#include "base/check.h"

namespace lathe::backend {

Result<void*> MemoryPool::allocate(int64_t bytes) {
  const int64_t need = padded(bytes);
  auto best = holes_.end();
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    if (hole->second >= need && (best == holes_.end() || hole->second < best->second)) best = hole;
  }
  if (best == holes_.end()) {
    // One unit more than is handed out, so that neighbouring blocks stay apart.
    const int64_t block = std::max(kBlockBytes, need + kAlign);
    LATHE_TRY(void* const memory, grow_(block));
    LATHE_CHECK(reinterpret_cast<uintptr_t>(memory) % kAlign == 0, "a block at {}", memory);
    blocks_.push_back(memory);
    held_ += block;
    best = holes_.emplace(reinterpret_cast<uintptr_t>(memory), block - kAlign).first;
  }
  const auto [begin, size] = *best;
  holes_.erase(best);
  if (size > need) holes_.emplace(begin + static_cast<uintptr_t>(need), size - need);
  used_ += need;
  return reinterpret_cast<void*>(begin);
}

void MemoryPool::release(void* memory, int64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const int64_t size = padded(bytes);
  auto [hole, fresh] = holes_.emplace(begin, size);
  LATHE_CHECK(fresh, "{} was released twice", memory);
  used_ -= size;
  const auto next = std::next(hole);
  if (next != holes_.end() && begin + static_cast<uintptr_t>(size) == next->first) hole->second += next->second, holes_.erase(next);
  if (hole == holes_.begin()) return;
  const auto before = std::prev(hole);
  if (before->first + static_cast<uintptr_t>(before->second) == begin) before->second += hole->second, holes_.erase(hole);
}

}  // namespace lathe::backend
