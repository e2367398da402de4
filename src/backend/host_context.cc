#include "backend/host_context.h"

#include <bit>
#include <new>

#include "base/check.h"

namespace lathe::backend {
namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

HostArena::~HostArena() { ::operator delete(data_, kAlignment); }

void* HostArena::ensure(int64_t bytes) {
  LATHE_CHECK(bytes >= 0, "arena of {} bytes", bytes);
  if (bytes <= bytes_ && data_ != nullptr) return data_;
  ::operator delete(data_, kAlignment);
  // Powers of two: a slowly growing batch must not allocate at every step.
  bytes_ = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes < 64 ? 64 : bytes)));
  data_ = ::operator new(static_cast<size_t>(bytes_), kAlignment, std::nothrow);
  LATHE_CHECK(data_ != nullptr, "no memory for {} bytes of scratch", bytes_);
  return data_;
}

void HostContext::run(const ops::Variant& variant, const void* params, ops::OpCounters* counters) {
  const ops::LaunchContext context{.pool = &pool_, .scratch = &scratch_, .counters = counters};
  if (counters == nullptr) {
    variant.run(params, context);
    return;
  }
  LATHE_CHECK(variant.run_counted != nullptr, "variant '{}' has no counting twin", variant.name);
  variant.run_counted(params, context);
}

}  // namespace lathe::backend
