#include "backend/host_context.h"

#include <bit>
#include <new>
#include <utility>

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
  for (const uint64_t size : {std::bit_ceil(static_cast<uint64_t>(bytes < 64 ? 64 : bytes)), static_cast<uint64_t>(bytes)}) {
    bytes_ = static_cast<int64_t>(size);
    data_ = ::operator new(static_cast<size_t>(size), kAlignment, std::nothrow);
    if (data_ != nullptr) return data_;
  }
  bytes_ = 0;
  return nullptr;
}

void HostContext::run(const ops::Variant& variant, const void* params, ops::OpCounters* counters) {
  if (failed_ != nullptr) return;
  const ops::LaunchContext context{.pool = &pool_, .scratch = &scratch_, .counters = counters};
  LATHE_CHECK(counters == nullptr || variant.run_counted != nullptr, "variant '{}' has no counting twin", variant.name);
  (counters == nullptr ? variant.run : variant.run_counted)(params, context);
  scratch_.even_out();
  if (scratch_.refused() != 0) [[unlikely]]
    failed_ = &variant;
}

Result<void> HostContext::take_error() {
  if (failed_ == nullptr) return {};
  const ops::Variant& variant = *std::exchange(failed_, nullptr);
  const int64_t bytes = scratch_.refused();
  scratch_.forget_refused();
  return err(Code::kResourceExhausted, "{} needs {} bytes of scratch, more than this machine can give; a smaller batch or context needs less",
             ops::op_info(variant.op).name, bytes);
}

}  // namespace lathe::backend
