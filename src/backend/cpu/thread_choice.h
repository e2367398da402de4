#pragma once
// How many threads the CPU device takes and where they run; and where the weights that they read lie.

#include <span>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "base/threads.h"
#include "base/topology.h"

namespace lathe::backend {

/// What some threads read from memory together.
struct BandwidthSample {
  int threads = 0;
  double bytes_per_second = 0;
};

struct ThreadChoice {
  base::ThreadPlan plan;
  std::vector<BandwidthSample> measured;  ///< empty: nothing was measured, because few cores do not crowd each other out
};

/// The most threads whose bandwidth is within 5 % of the best: decoding waits for memory, and where more threads read less, they cost everybody. Where they
/// read as much they stay: prompts need their arithmetic. Pure; `samples` not empty.
int threads_by_bandwidth(std::span<const BandwidthSample> samples);

/// The plan for these options on this machine. Where nobody says how many threads and there are more than kMeasuredCores cores, their bandwidth is measured
/// first (some 30 ms, once in a process). Errors: invalid_argument (negative threads; processors that this process may not use).
Result<ThreadChoice> choose_threads(const CpuOptions& options);
constexpr int kMeasuredCores = 4;

struct SettledPages {
  int64_t pages = 0;
  int64_t moved = 0;  ///< that lay elsewhere and were moved
};
/// Brings a weight to the nodes of its readers. Rows are shared out as the pool shares out tasks, the same part for a worker in every step; the worker touches
/// its part, so that fresh pages come to its node, and what lies elsewhere is moved. Best effort: pages that other programs share stay. Costs a read of all
/// of it. Threads: the pool's owner.
SettledPages settle_pages(base::ThreadPool& pool, const base::ThreadPlan& plan, const void* data, int64_t bytes);

}  // namespace lathe::backend
