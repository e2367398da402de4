// One call under observation: a copy of its params, the counting twins, and times without the observer's own.

#include <algorithm>
#include <cstring>

#include "backend/dispatch.h"
#include "backend/dispatch_impl.h"
#include "base/clock.h"

namespace lathe::backend {
namespace {

const char* served_by(const OpSite& site) {
  switch (site.route) {
    case Route::kNative: return site.variant->name;
    case Route::kComposition: return site.composition->name;
    case Route::kHostReference: return kHostName;
    case Route::kUnplanned: break;
  }
  return "";
}

}  // namespace

void Dispatch::run_observed(OpSite& site, const void* params, size_t bytes) {
  Impl& impl = *impl_;
  std::memcpy(impl.params.data(), params, bytes);
  OpCall call{.info = &ops::op_info(site.op),
              .site = &site,
              .rank = options_.rank,
              .tokens = tokens_,
              .heads = site.heads,
              .call = impl.calls++,
              .variant = served_by(site),
              .params = impl.params.data()};
  device_.synchronise();
  const bool wants_counters = impl.observer->wants_counters(call);
  impl.observer->before(call, device_);
  for (auto& done : impl.counters.done) done.store(0, std::memory_order_relaxed);
  impl.active_counters = wants_counters ? &impl.counters : nullptr;
  impl.counters_complete = wants_counters;
  const int64_t ready = std::max(base::now_ns(), impl.last_end_ns);
  const int64_t start = base::now_ns();
  run_planned(site, call.params, impl.active_counters);
  device_.synchronise();
  const int64_t end = base::now_ns();
  impl.active_counters = nullptr;
  impl.last_end_ns = end;
  call.ready_ns = ready, call.start_ns = start, call.end_ns = end;
  call.counters = impl.counters_complete ? &impl.counters : nullptr;
  if (failure() != nullptr) return;  // its outputs were never written
  impl.observer->after(call, device_);
}

}  // namespace lathe::backend
