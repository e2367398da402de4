#include "backend/cpu/thread_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>

#include "base/check.h"
#include "base/clock.h"
#include "kernels/cpu/roofs.h"

namespace lathe::backend {
namespace {

constexpr int64_t kMeasuredBytes = int64_t{64} << 20;  // of all threads together: above the private caches, and short enough to read a few times
constexpr int kRounds = 4;                             // the first also waits for memory to be given

/// The wider the numbers of threads lie apart, the clearer the answer: all of the cores, three quarters and half of them.
std::vector<BandwidthSample> measure_bandwidth(const base::ThreadPlan& plan) {
  const auto bytes = static_cast<size_t>(kMeasuredBytes);
  const std::unique_ptr<char[]> memory(new (std::nothrow) char[bytes + 64]);
  if (memory == nullptr) return {};
  char* const start = memory.get() + (64 - reinterpret_cast<uintptr_t>(memory.get()) % 64) % 64;
  const kernels::cpu::RoofIsa& isa = *kernels::cpu::roof_loops().isa;
  std::vector<BandwidthSample> out;
  std::atomic<uint32_t> sink{0};
  for (const int threads : {plan.threads, plan.threads * 3 / 4, plan.threads / 2}) {
    base::ThreadPool pool(threads);
    const int64_t part = kMeasuredBytes / threads / kernels::cpu::kRoofStep * kernels::cpu::kRoofStep;
    if (out.empty()) {
      // A page that was never written is one page of zeros for all: a byte in each makes it memory.
      pool.for_each(threads, [&](int64_t task, int) {
        for (int64_t at = task * part; at < (task + 1) * part; at += 4096) start[at] = 1;
      });
    }
    int64_t best = std::numeric_limits<int64_t>::max();
    for (int round = 0; round < kRounds; ++round) {
      const int64_t begin = base::now_ns();
      pool.for_each(threads, [&](int64_t task, int) { sink.fetch_xor(isa.read(start + task * part, part), std::memory_order_relaxed); });
      best = std::min(best, base::now_ns() - begin);
    }
    out.push_back(
        {.threads = threads, .bytes_per_second = static_cast<double>(part * threads) * 1e9 / static_cast<double>(std::max<int64_t>(best, 1))});
  }
  return out;
}

Result<ThreadChoice> choose(const CpuOptions& options) {
  base::ThreadWishes wishes{.threads = options.threads,
                            .cpus = options.cpus,
                            .numa = options.numa,
                            .allowed = base::allowed_processors(),
                            .here = std::max(0, sched_getcpu())};
  ThreadChoice out;
  LATHE_TRY(out.plan, base::plan_threads(base::system_topology(), wishes));
  if (options.threads > 0 || out.plan.threads <= kMeasuredCores) return out;
  out.measured = measure_bandwidth(out.plan);
  if (out.measured.empty()) return out;
  std::vector<std::string> figures;
  for (const BandwidthSample& sample : out.measured)
    figures.push_back(fmt::format("{} read {:.0f} GB/s", sample.threads, sample.bytes_per_second / 1e9));
  const std::string told = fmt::format("; of memory {}", fmt::join(figures, ", "));
  wishes.threads = threads_by_bandwidth(out.measured);
  if (wishes.threads < out.plan.threads) {
    LATHE_TRY(out.plan, base::plan_threads(base::system_topology(), wishes));
    out.plan.reason = fmt::format("{} threads read more from memory than more of them", wishes.threads);
  }
  out.plan.reason += told;
  return out;
}

}  // namespace

int threads_by_bandwidth(std::span<const BandwidthSample> samples) {
  LATHE_CHECK(!samples.empty(), "no bandwidth was measured");
  double best = 0;
  for (const BandwidthSample& sample : samples) best = std::max(best, sample.bytes_per_second);
  int threads = 0;
  for (const BandwidthSample& sample : samples) {
    if (sample.bytes_per_second >= 0.95 * best) threads = std::max(threads, sample.threads);
  }
  return threads;
}

Result<ThreadChoice> choose_threads(const CpuOptions& options) {
  if (options.threads < 0) return err(Code::kInvalidArgument, "{} threads, expected at least 1 (0: chosen for this machine)", options.threads);
  if (options.threads > 0 || !options.cpus.empty() || options.numa != base::Numa::kAuto) return choose(options);
  static const Result<ThreadChoice> kDefault = choose({});
  return kDefault;
}

SettledPages settle_pages(base::ThreadPool& pool, const base::ThreadPlan& plan, const void* data, int64_t bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  const char* const start = static_cast<const char*>(data);
  std::atomic<int64_t> pages{0}, moved{0};
  std::atomic<uint32_t> sink{0};
  pool.for_each(plan.threads, [&](int64_t worker, int) {
    const int node = plan.workers[static_cast<size_t>(worker)].node;
    // A page belongs to the worker whose part begins it.
    const auto first_page = [&](int64_t share) {
      const auto address = reinterpret_cast<uintptr_t>(start) + static_cast<uintptr_t>(bytes * share / plan.threads);
      return share == 0 ? address / static_cast<uintptr_t>(page) : (address + static_cast<uintptr_t>(page) - 1) / static_cast<uintptr_t>(page);
    };
    const uintptr_t end = reinterpret_cast<uintptr_t>(start) + static_cast<uintptr_t>(bytes);
    std::vector<void*> mine;
    for (uintptr_t at = first_page(worker); at < first_page(worker + 1) && at * static_cast<uintptr_t>(page) < end; ++at) {
      const uintptr_t address = std::max(at * static_cast<uintptr_t>(page), reinterpret_cast<uintptr_t>(start));
      sink.fetch_xor(*reinterpret_cast<const volatile unsigned char*>(address), std::memory_order_relaxed);
      mine.push_back(reinterpret_cast<void*>(at * static_cast<uintptr_t>(page)));
    }
    pages += static_cast<int64_t>(mine.size());
    const auto nodes = base::page_nodes(mine);
    if (!nodes) return;
    std::vector<void*> strangers;
    for (size_t i = 0; i < mine.size(); ++i) {
      if ((*nodes)[i] >= 0 && (*nodes)[i] != node) strangers.push_back(mine[i]);
    }
    if (strangers.empty() || !base::move_pages_to(strangers, node)) return;
    const auto after = base::page_nodes(strangers);
    if (after) moved += std::count(after->begin(), after->end(), node);
  });
  return {.pages = pages, .moved = moved};
}

}  // namespace lathe::backend
