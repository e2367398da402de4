#include "backend/observe_ops.h"

#include <limits>

namespace lathe::backend {
namespace {

constexpr uint64_t kHashStart = 0xcbf29ce484222325u;

/// FNV-1a: the bytes of outputs are few next to the work that made them.
uint64_t hash_bytes(uint64_t hash, const void* data, int64_t bytes) {
  const auto* const at = static_cast<const unsigned char*>(data);
  for (int64_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 0x100000001b3u;
  return hash;
}

uint64_t hash_from(uint64_t hash, const View& view) {
  const auto size = static_cast<int64_t>(tensor::dtype_bytes(view.dtype));
  if (view.contiguous()) return hash_bytes(hash, view.data, view.elements() * size);
  if (view.rank == 1) {
    for (int64_t i = 0; i < view.dim(0); ++i) hash = hash_bytes(hash, static_cast<const char*>(view.data) + i * view.step(0) * size, size);
    return hash;
  }
  for (int64_t i = 0; i < view.dim(0); ++i) hash = hash_from(hash, view.at(i));
  return hash;
}

}  // namespace

uint64_t hash_elements(const View& view) { return view.elements() == 0 ? kHashStart : hash_from(kHashStart, view); }

const void* CallMirror::map(const OpCall& call) {
  const void* const on_host = mirror_.map(*call.info, call.params);
  if (on_host == nullptr && status_) {
    status_ = err(Code::kResourceExhausted, "layer {} {} ({}): no memory on the host to look into its inputs and outputs", call.site->layer,
                  call.site->name, call.info->name);
  }
  return on_host;
}

bool ObserverChain::wants_counters(const OpCall& call) {
  bool wanted = false;
  for (OpObserver* observer : observers_) wanted = observer->wants_counters(call) || wanted;
  return wanted;
}

void ObserverChain::before(OpCall& call, Device& device) {
  for (OpObserver* observer : observers_) observer->before(call, device);
}

void ObserverChain::after(OpCall& call, Device& device) {
  for (OpObserver* observer : observers_) observer->after(call, device);
}

void HashObserver::after(OpCall& call, Device& /*device*/) {
  class Hasher final : public ops::ViewVisitor {
   public:
    Hasher(const OpCall& call, std::vector<Entry>& entries) : call_(call), entries_(entries) {}
    void view(const char* name, ops::Role role, View& view) override {
      if (role == ops::Role::kIn || role == ops::Role::kInOut) return;
      entries_.push_back({.op = call_.info->name, .site = call_.site->name, .layer = call_.site->layer, .view = name, .hash = hash_elements(view)});
    }

   private:
    const OpCall& call_;
    std::vector<Entry>& entries_;
  };
  const void* const on_host = mirror_.map(call);
  if (on_host == nullptr) return;
  Hasher hasher(call, entries_);
  call.info->visit(const_cast<void*>(on_host), hasher);  // NOLINT(cppcoreguidelines-pro-type-const-cast): changes nothing
}

void CountingObserver::after(OpCall& call, Device& /*device*/) {
  Total& total = totals_[static_cast<size_t>(call.info->id)];
  ++total.calls;
  total.nanoseconds += call.end_ns - call.start_ns;
  if (call.counters == nullptr) return;
  // Costs may depend on what views hold, such as the chosen experts.
  const void* const on_host = mirror_.map(call);
  if (on_host == nullptr) return;
  ++total.counted_calls;
  const ops::Cost cost = call.info->cost(on_host);
  for (size_t i = 0; i < total.done.size(); ++i) {
    total.done[i] += call.counters->done[i].load(std::memory_order_relaxed);
    total.needed[i] += cost.needed[i];
  }
}

double CountingObserver::Total::ratio(ops::Counter counter) const {
  const auto at = static_cast<size_t>(counter);
  if (needed[at] == 0) return done[at] == 0 ? 1.0 : std::numeric_limits<double>::infinity();
  return static_cast<double>(done[at]) / static_cast<double>(needed[at]);
}

}  // namespace lathe::backend
