#pragma once
// Observers that need no more than the op table: hashes of outputs, and work done against work needed.

#include <string>
#include <vector>

#include "backend/dispatch.h"
#include "backend/host_mirror.h"

namespace lathe::backend {

/// Passes every call to several observers, in order.
class ObserverChain final : public OpObserver {
 public:
  explicit ObserverChain(std::vector<OpObserver*> observers) : observers_(std::move(observers)) {}
  bool wants_counters(const OpCall& call) override;
  void before(OpCall& call, Device& device) override;
  void after(OpCall& call, Device& device) override;

 private:
  std::vector<OpObserver*> observers_;
};

/// The params of an observed call on the host.
class CallMirror {
 public:
  explicit CallMirror(Device& device) : mirror_(device) {}
  /// As HostMirror::map. Null: the host has no memory for the copies; the observer passes the call over and status() says so.
  const void* map(const OpCall& call);
  /// resource_exhausted if a call was passed over: what the observer found is then not about every call.
  const Result<void>& status() const { return status_; }

 private:
  HostMirror mirror_;
  Result<void> status_;
};

/// Hash of the elements of a view in host memory (gaps between rows do not count).
uint64_t hash_elements(const View& view);

/// Keeps a hash of every output of every call: two runs with equal lists computed the same bits. Pools and rings (inout) are left out.
class HashObserver final : public OpObserver {
 public:
  explicit HashObserver(Device& device) : mirror_(device) {}
  void after(OpCall& call, Device& device) override;

  struct Entry {
    const char* op = "";
    std::string site;
    int32_t layer = -1;
    const char* view = "";
    uint64_t hash = 0;
    friend bool operator==(const Entry& a, const Entry& b) = default;
  };
  const std::vector<Entry>& entries() const { return entries_; }
  const Result<void>& status() const { return mirror_.status(); }
  void clear() { entries_.clear(); }

 private:
  CallMirror mirror_;
  std::vector<Entry> entries_;
};

/// Work done and needed per op, over all calls. Ops without a counting twin have calls but counted_calls = 0.
class CountingObserver final : public OpObserver {
 public:
  explicit CountingObserver(Device& device) : mirror_(device) {}
  bool wants_counters(const OpCall& /*call*/) override { return true; }
  void after(OpCall& call, Device& device) override;

  struct Total {
    int64_t calls = 0;
    int64_t counted_calls = 0;
    int64_t nanoseconds = 0;
    std::array<int64_t, ops::kCounterCount> done{};    ///< of the counted calls
    std::array<int64_t, ops::kCounterCount> needed{};  ///< of the counted calls
    /// done/needed; 1 if nothing was needed nor done, infinity if something was done that was not needed.
    double ratio(ops::Counter counter) const;
  };
  const Total& total(ops::OpId op) const { return totals_[static_cast<size_t>(op)]; }
  const Result<void>& status() const { return mirror_.status(); }

 private:
  CallMirror mirror_;
  std::array<Total, ops::kOpCount> totals_;
};

}  // namespace lathe::backend
