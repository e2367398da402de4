#pragma once
// What processors this machine has and which of them the program may use; and the plan that follows: how many threads, and where they run.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lathe::base {

/// A hardware thread. Numbers are the system's own.
struct Processor {
  int cpu = 0;
  int core = 0;            ///< lowest cpu of the core: siblings have the same
  int package = 0;         ///< socket
  int node = 0;            ///< of memory
  bool efficient = false;  ///< a slow core of a machine that has fast ones too
};

struct Topology {
  std::vector<Processor> processors;  ///< online, ascending
  double quota = 0;                   ///< processors' worth of time that the control group grants; 0: no limit
};

/// "0-3,8" as 0 1 2 3 8. Errors: invalid_argument (no such list, or a number beyond kLimits.processors).
Result<std::vector<int>> parse_cpu_list(std::string_view text);
/// "0x1f" or "1f", bit i for processor i. Errors: likewise.
Result<std::vector<int>> parse_cpu_mask(std::string_view text);
/// 0 1 2 3 8 as "0-3,8".
std::string cpu_list_text(std::span<const int> cpus);

/// Reads /sys and /proc below `root` ("": the real ones). What is not told is taken as simple: every processor its own core, one package, one node.
/// `allowed` stands for the processors where the system names none. Errors: none; a file that cannot be understood is as good as absent.
Topology read_topology(const std::string& root, std::span<const int> allowed);

/// Processors that this process might use when it was first asked: pinning threads later does not change it. Never empty.
const std::vector<int>& allowed_processors();
/// The real one, as it was when first asked.
const Topology& system_topology();

enum class Numa : uint8_t {
  kAuto,        ///< as kDistribute where places differ (several nodes, or slow cores) and the threads are as many as the cores
  kDistribute,  ///< threads evenly over all nodes, each with its part of the weights
  kIsolate,     ///< only the node where the program started
  kOff,         ///< threads run anywhere
};

/// What the user asks for, and what this process is.
struct ThreadWishes {
  int threads = 0;        ///< 0: chosen
  std::vector<int> cpus;  ///< only these processors; empty: all allowed
  Numa numa = Numa::kAuto;
  std::vector<int> allowed;  ///< affinity of the process
  int here = 0;              ///< processor that the program runs on now
};

struct WorkerPlace {
  std::vector<int> cpus;  ///< where it may run; empty: anywhere
  int node = 0;
};

struct ThreadPlan {
  int threads = 1;
  std::vector<WorkerPlace> workers;  ///< [threads], by node; worker 0 is the caller's thread, kept only to its node or the user's processors
  bool pinned = false;
  int nodes = 1;  ///< among the workers, 1 where they are not pinned
  // Of what may be used:
  int processors = 0;
  int cores = 0;
  std::string reason;  ///< one or two sentences
};

/// Pure. Chosen count: one a core (siblings once), fast cores only where there are slow ones, no more than the control group's quota.
/// Pinned: where places differ and every core has its thread, or the user names processors or nodes. Errors: invalid_argument (no processor is left, with what there is).
Result<ThreadPlan> plan_threads(const Topology& topology, const ThreadWishes& wishes);

/// plan_threads for this process on this machine, nothing wished.
const ThreadPlan& system_plan();

/// Where the pages of memory lie: one node per address, negative where unknown or not present. Errors: unavailable (the system does not tell).
Result<std::vector<int>> page_nodes(std::span<void* const> pages);
/// Asks the system to move pages to a node; pages that other programs use too stay. Best effort: false if it refused altogether.
bool move_pages_to(std::span<void* const> pages, int node);

}  // namespace lathe::base
