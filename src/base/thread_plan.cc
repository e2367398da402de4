// From a topology to threads with places. The declarations are in topology.h.

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <set>

#include "base/topology.h"

namespace lathe::base {
namespace {

struct Core {
  int id = 0, package = 0, node = 0;
  bool efficient = false;
  std::vector<int> cpus;  ///< that may be used
};

std::vector<int> intersection(std::span<const int> a, std::span<const int> b) {
  std::vector<int> out;
  for (const int value : a) {
    if (std::find(b.begin(), b.end(), value) != b.end()) out.push_back(value);
  }
  return out;
}

/// Cores with a processor in `usable`: fast ones first, then by node, package and number.
std::vector<Core> cores_of(const Topology& topology, std::span<const int> usable) {
  std::vector<Core> cores;
  for (const Processor& p : topology.processors) {
    if (std::find(usable.begin(), usable.end(), p.cpu) == usable.end()) continue;
    // A core's number is only unique within what the system tells; package and node make it so everywhere.
    const auto same = [&](const Core& c) { return c.id == p.core && c.package == p.package && c.node == p.node; };
    auto found = std::find_if(cores.begin(), cores.end(), same);
    if (found == cores.end()) {
      cores.push_back({.id = p.core, .package = p.package, .node = p.node, .efficient = p.efficient, .cpus = {}});
      found = cores.end() - 1;
    }
    found->cpus.push_back(p.cpu);
  }
  const auto key = [](const Core& c) { return std::tuple(c.efficient, c.node, c.package, c.id); };
  std::stable_sort(cores.begin(), cores.end(), [&](const Core& a, const Core& b) { return key(a) < key(b); });
  return cores;
}

int node_of(const Topology& topology, int cpu) {
  for (const Processor& p : topology.processors) {
    if (p.cpu == cpu) return p.node;
  }
  return 0;
}

/// The first `count` of the cores, turn by turn from each node, so that no node's memory carries more than its part.
std::vector<Core> spread(const std::vector<Core>& cores, int count) {
  std::vector<int> turn(cores.size());  // how many of its node come before
  for (size_t i = 0; i < cores.size(); ++i) {
    turn[i] = static_cast<int>(std::count_if(cores.begin(), cores.begin() + static_cast<std::ptrdiff_t>(i),
                                             [&](const Core& c) { return c.node == cores[i].node && c.efficient == cores[i].efficient; }));
  }
  std::vector<size_t> order(cores.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tuple(cores[a].efficient, turn[a], cores[a].node) < std::tuple(cores[b].efficient, turn[b], cores[b].node);
  });
  std::vector<Core> out;
  for (int i = 0; i < count; ++i) out.push_back(cores[order[static_cast<size_t>(i) % order.size()]]);  // more threads than cores: a second round
  std::stable_sort(out.begin(), out.end(), [](const Core& a, const Core& b) { return a.node < b.node; });
  return out;
}

/// What decided the number of threads.
struct Count {
  int threads = 1;
  std::string reason;
};
Count choose_count(const Topology& topology, const std::vector<Core>& cores, size_t processors) {
  const auto fast = std::count_if(cores.begin(), cores.end(), [](const Core& c) { return !c.efficient; });
  Count out{.threads = static_cast<int>(fast > 0 ? fast : static_cast<std::ptrdiff_t>(cores.size())), .reason = "one thread per core"};
  if (processors > cores.size()) out.reason += fmt::format(" ({} processors are siblings of others)", processors - cores.size());
  if (fast > 0 && fast < static_cast<std::ptrdiff_t>(cores.size())) {
    out.reason = fmt::format("one thread per fast core ({} of {} cores are slow)", static_cast<std::ptrdiff_t>(cores.size()) - fast, cores.size());
  }
  if (topology.quota > 0 && topology.quota < out.threads) {
    out.threads = std::max(1, static_cast<int>(topology.quota));
    out.reason = fmt::format("the control group grants the time of {:.2f} processors", topology.quota);
  }
  return out;
}

enum class Caller : uint8_t {
  kFree,  ///< anywhere, or on its node where there are several
  kKept,  ///< the user said where the program runs
};

void place(ThreadPlan& plan, const std::vector<Core>& cores, Caller caller) {
  const std::vector<Core> chosen = spread(cores, plan.threads);
  std::set<int> nodes;
  for (const Core& core : chosen) nodes.insert(core.node);
  plan.nodes = static_cast<int>(nodes.size());
  for (int worker = 0; worker < plan.threads; ++worker) {
    const Core& core = chosen[static_cast<size_t>(worker)];
    plan.workers[static_cast<size_t>(worker)] = {.cpus = core.cpus, .node = core.node};
  }
  // The caller's thread is the program's: it stays free, but near its part of the weights, and where the user wants it.
  std::vector<int>& mine = plan.workers.front().cpus;
  mine.clear();
  if (plan.nodes == 1 && caller == Caller::kFree) return;
  for (const Core& core : chosen) {
    if (core.node == plan.workers.front().node) mine.insert(mine.end(), core.cpus.begin(), core.cpus.end());
  }
  std::sort(mine.begin(), mine.end());
  mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
}

}  // namespace

Result<ThreadPlan> plan_threads(const Topology& topology, const ThreadWishes& wishes) {
  std::vector<int> online;
  for (const Processor& p : topology.processors) online.push_back(p.cpu);
  const std::vector<int> allowed = intersection(online, wishes.allowed);
  std::vector<int> usable = wishes.cpus.empty() ? allowed : intersection(allowed, wishes.cpus);
  if (usable.empty()) {
    return err(Code::kInvalidArgument, "none of the processors {} can be used: this process may run on {}", cpu_list_text(wishes.cpus),
               cpu_list_text(allowed));
  }
  std::string where;
  if (wishes.numa == Numa::kIsolate) {
    // The program may run outside of the processors that the user names: then the first of these decides.
    const int home = node_of(topology, std::find(usable.begin(), usable.end(), wishes.here) != usable.end() ? wishes.here : usable.front());
    std::erase_if(usable, [&](int cpu) { return node_of(topology, cpu) != home; });
    where = fmt::format("; only node {}", home);
  }
  const std::vector<Core> cores = cores_of(topology, usable);
  const Count count = wishes.threads > 0 ? Count{.threads = wishes.threads, .reason = "as asked for"} : choose_count(topology, cores, usable.size());
  ThreadPlan plan{.threads = count.threads,
                  .workers = std::vector<WorkerPlace>(static_cast<size_t>(count.threads)),
                  .processors = static_cast<int>(usable.size()),
                  .cores = static_cast<int>(cores.size()),
                  .reason = count.reason + where};
  const auto fast = static_cast<int>(std::count_if(cores.begin(), cores.end(), [](const Core& c) { return !c.efficient; }));
  const bool asked = !wishes.cpus.empty() || wishes.numa == Numa::kDistribute || wishes.numa == Numa::kIsolate;
  const bool full = plan.threads == plan.cores || (wishes.threads == 0 && plan.threads == fast);
  // Where all places are alike, a pinned thread gains nothing, and waits where a neighbour's work takes its core.
  const bool alike = fast == plan.cores && std::all_of(cores.begin(), cores.end(), [&](const Core& c) { return c.node == cores.front().node; });
  if (plan.threads == 1 && !asked) return plan;
  if (wishes.numa == Numa::kOff) {
    plan.reason += "; not pinned: switched off";
  } else if (plan.threads > plan.processors) {
    plan.reason += "; not pinned: more threads than processors";
  } else if (!asked && alike) {
    plan.reason += "; not pinned: all cores are alike";
  } else if (!asked && !full) {
    plan.reason += "; not pinned: cores are left over, and the system knows which are free";
  } else {
    plan.pinned = true;
    place(plan, cores, asked ? Caller::kKept : Caller::kFree);
    plan.reason += plan.nodes > 1 ? fmt::format("; pinned, {} nodes, each with its part of the weights", plan.nodes) : "; pinned to cores";
  }
  return plan;
}

const ThreadPlan& system_plan() {
  static const ThreadPlan kPlan =
      *plan_threads(system_topology(), {.threads = 0, .cpus = {}, .allowed = allowed_processors(), .here = sched_getcpu()});
  return kPlan;
}

}  // namespace lathe::base
