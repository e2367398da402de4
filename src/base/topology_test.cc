// Goal: topologies of any shape, written to a folder as the system shows them, are read right; the plan counts cores once, stays within affinity, quota and
// the user's wishes, and gives every worker a place of its own; pinning does what the plan says.
#include "base/topology.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "base/threads.h"

namespace lathe::base {
namespace {

std::vector<int> range(int begin, int end) {
  std::vector<int> out;
  for (int i = begin; i < end; ++i) out.push_back(i);
  return out;
}

/// A fake /sys and /proc.
class Machine {
 public:
  Machine() : root_(testing::TempDir() + "topology_" + testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(root_);
  }
  ~Machine() { std::filesystem::remove_all(root_); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = root_ + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text << "\n";
  }
  void processor(int cpu, const std::string& siblings, int package) {
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    put(folder + "core_cpus_list", siblings);
    put(folder + "physical_package_id", std::to_string(package));
  }
  /// `packages` sockets, each a node of `cores` cores; siblings are numbered after all first threads, as usual.
  void sockets(int packages, int cores, int siblings) {
    const int all = packages * cores;
    put("/sys/devices/system/cpu/online", "0-" + std::to_string(all * siblings - 1));
    put("/sys/devices/system/node/online", packages > 1 ? "0-" + std::to_string(packages - 1) : "0");
    for (int package = 0; package < packages; ++package) {
      std::vector<int> of_node;
      for (int core = package * cores; core < (package + 1) * cores; ++core) {
        for (int s = 0; s < siblings; ++s) {
          of_node.push_back(core + s * all);
          processor(core + s * all, siblings > 1 ? std::to_string(core) + "," + std::to_string(core + all) : std::to_string(core), package);
        }
      }
      std::sort(of_node.begin(), of_node.end());
      put("/sys/devices/system/node/node" + std::to_string(package) + "/cpulist", cpu_list_text(of_node));
    }
  }
  Topology read(const std::vector<int>& allowed) const { return read_topology(root_, allowed); }
  ThreadPlan plan(ThreadWishes wishes) const { return plan_threads(read(wishes.allowed), wishes).value(); }

 private:
  std::string root_;
};

/// Every worker but the caller's has a core of its own, no other worker's; by node.
void expect_own_places(const ThreadPlan& plan) {
  std::set<int> taken;
  ASSERT_EQ(plan.workers.size(), static_cast<size_t>(plan.threads));
  for (size_t worker = 1; worker < plan.workers.size(); ++worker) {
    ASSERT_FALSE(plan.workers[worker].cpus.empty()) << worker;
    for (const int cpu : plan.workers[worker].cpus) EXPECT_TRUE(taken.insert(cpu).second) << "processor " << cpu;
    EXPECT_GE(plan.workers[worker].node, plan.workers[worker - 1].node);
  }
}

TEST(CpuList, ReadsWhatTheSystemWritesAndNothingElse) {
  EXPECT_EQ(*parse_cpu_list("0-3,8,10-11\n"), (std::vector<int>{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(*parse_cpu_list("5,1,1-2"), (std::vector<int>{1, 2, 5}));
  EXPECT_EQ(cpu_list_text(*parse_cpu_list("0-3,8,10-11")), "0-3,8,10-11");
  for (const char* bad : {"", "a", "1-", "-1", "3-1", "1,,2", "0-99999999", "1 2", "0x3", "18446744073709551616"}) {
    const auto list = parse_cpu_list(bad);
    ASSERT_FALSE(list.has_value()) << bad;
    EXPECT_NE(list.error().message.find("is no list of processors"), std::string::npos);
  }
  EXPECT_EQ(*parse_cpu_mask("0x1f"), range(0, 5));
  EXPECT_EQ(*parse_cpu_mask("8001"), (std::vector<int>{0, 15}));
  for (const char* bad : {"", "0x", "g", "-1", "0", "00"}) EXPECT_FALSE(parse_cpu_mask(bad).has_value()) << bad;
  EXPECT_FALSE(parse_cpu_mask(std::string(3000, 'f')).has_value());
}

TEST(Topology, TwoSocketsWithSiblings) {
  Machine machine;
  machine.sockets(2, 4, 2);
  const Topology topology = machine.read(range(0, 16));
  ASSERT_EQ(topology.processors.size(), 16u);
  const Processor& p = topology.processors[13];  // sibling of core 5
  EXPECT_EQ(p.cpu, 13);
  EXPECT_EQ(p.core, 5);
  EXPECT_EQ(p.package, 1);
  EXPECT_EQ(p.node, 1);
  EXPECT_EQ(topology.quota, 0);

  const ThreadPlan plan = machine.plan({.cpus = {}, .allowed = range(0, 16)});
  EXPECT_EQ(plan.threads, 8);
  EXPECT_EQ(plan.cores, 8);
  EXPECT_EQ(plan.processors, 16);
  EXPECT_EQ(plan.nodes, 2);
  EXPECT_TRUE(plan.pinned);
  expect_own_places(plan);
  EXPECT_EQ(plan.workers[0].cpus, (std::vector<int>{0, 1, 2, 3, 8, 9, 10, 11}));  // the caller keeps to its node
  EXPECT_EQ(plan.workers[3].cpus, (std::vector<int>{3, 11}));
  EXPECT_EQ(plan.workers[4].node, 1);
  EXPECT_NE(plan.reason.find("8 processors are siblings"), std::string::npos) << plan.reason;
}

TEST(Topology, ThreadsAreSpreadOverNodesOrKeptToOne) {
  Machine machine;
  machine.sockets(2, 4, 2);
  const ThreadPlan spread = machine.plan({.threads = 4, .cpus = {}, .numa = Numa::kDistribute, .allowed = range(0, 16)});
  EXPECT_EQ(spread.nodes, 2);
  EXPECT_EQ(spread.workers[1].node, 0);
  EXPECT_EQ(spread.workers[2].node, 1);
  expect_own_places(spread);
  const ThreadPlan one = machine.plan({.cpus = {}, .numa = Numa::kIsolate, .allowed = range(0, 16), .here = 14});
  EXPECT_EQ(one.threads, 4);
  EXPECT_EQ(one.nodes, 1);
  for (const WorkerPlace& place : one.workers) EXPECT_EQ(place.node, 1);
  EXPECT_NE(one.reason.find("only node 1"), std::string::npos);
  // Fewer threads than cores, and nobody said where: the system knows better.
  EXPECT_FALSE(machine.plan({.threads = 4, .cpus = {}, .allowed = range(0, 16)}).pinned);
  EXPECT_FALSE(machine.plan({.cpus = {}, .numa = Numa::kOff, .allowed = range(0, 16)}).pinned);
  // All processors: each core has two threads, which share it.
  const ThreadPlan all = machine.plan({.threads = 16, .cpus = {}, .numa = Numa::kDistribute, .allowed = range(0, 16)});
  EXPECT_EQ(all.threads, 16);
  EXPECT_EQ(all.workers[15].cpus.size(), 2u);
  EXPECT_FALSE(machine.plan({.threads = 17, .cpus = {}, .numa = Numa::kDistribute, .allowed = range(0, 16)}).pinned);
}

TEST(Topology, HolesAffinityAndTheUsersProcessors) {
  Machine machine;
  machine.sockets(2, 4, 2);
  machine.put("/sys/devices/system/cpu/online", "0-2,5-10,13-15");  // 3, 4, 11 and 12 are switched off
  ThreadPlan plan = machine.plan({.cpus = {}, .allowed = range(0, 16)});
  EXPECT_EQ(plan.threads, 6);
  EXPECT_EQ(plan.processors, 12);
  expect_own_places(plan);
  // A container that may use one core of two threads, and one sibling of another.
  plan = machine.plan({.cpus = {}, .numa = Numa::kDistribute, .allowed = {1, 9, 10}});
  EXPECT_EQ(plan.threads, 2);
  EXPECT_EQ(plan.workers[1].cpus, (std::vector<int>{10}));
  plan = machine.plan({.cpus = {5, 6, 7}, .allowed = range(0, 16)});
  EXPECT_EQ(plan.threads, 3);
  EXPECT_TRUE(plan.pinned);
  EXPECT_EQ(plan.workers[0].cpus, (std::vector<int>{5, 6, 7}));  // the caller too: the user said where
  plan = machine.plan({.threads = 1, .cpus = {5, 6}, .allowed = range(0, 16)});
  EXPECT_EQ(plan.workers[0].cpus, (std::vector<int>{5}));
  const auto none = plan_threads(machine.read(range(0, 4)), {.cpus = {12, 13}, .allowed = range(0, 3)});
  ASSERT_FALSE(none.has_value());
  EXPECT_NE(none.error().message.find("none of the processors 12-13 can be used: this process may run on 0-2"), std::string::npos);
}

TEST(Topology, QuotasOfBothKindsOfGroups) {
  Machine machine;
  machine.sockets(1, 8, 1);
  machine.put("/proc/self/cgroup", "3:cpu,cpuacct:/old/inner\n0::/pod/box");
  EXPECT_EQ(machine.read(range(0, 8)).quota, 0);
  machine.put("/sys/fs/cgroup/pod/box/cpu.max", "max 100000");
  machine.put("/sys/fs/cgroup/pod/cpu.max", "350000 100000");
  EXPECT_DOUBLE_EQ(machine.read(range(0, 8)).quota, 3.5);
  const ThreadPlan plan = machine.plan({.cpus = {}, .allowed = range(0, 8)});
  EXPECT_EQ(plan.threads, 3);
  EXPECT_FALSE(plan.pinned);
  EXPECT_NE(plan.reason.find("3.50 processors"), std::string::npos) << plan.reason;
  machine.put("/sys/fs/cgroup/cpu,cpuacct/old/cpu.cfs_quota_us", "50000");
  machine.put("/sys/fs/cgroup/cpu,cpuacct/old/cpu.cfs_period_us", "100000");
  EXPECT_DOUBLE_EQ(machine.read(range(0, 8)).quota, 0.5);
  EXPECT_EQ(machine.plan({.cpus = {}, .allowed = range(0, 8)}).threads, 1);
  EXPECT_EQ(machine.plan({.threads = 5, .cpus = {}, .allowed = range(0, 8)}).threads, 5);  // the user knows
  machine.put("/sys/fs/cgroup/cpu,cpuacct/old/cpu.cfs_quota_us", "-1");
  machine.put("/sys/fs/cgroup/pod/cpu.max", "nonsense");
  EXPECT_EQ(machine.read(range(0, 8)).quota, 0);
}

TEST(Topology, WherePlacesAreAlikeTheSystemPlaces) {
  Machine machine;
  machine.sockets(1, 4, 2);
  const ThreadPlan plan = machine.plan({.cpus = {}, .allowed = range(0, 8)});
  EXPECT_EQ(plan.threads, 4);
  EXPECT_FALSE(plan.pinned);
  EXPECT_NE(plan.reason.find("alike"), std::string::npos) << plan.reason;
  expect_own_places(machine.plan({.cpus = {}, .numa = Numa::kDistribute, .allowed = range(0, 8)}));
}

TEST(Topology, SlowCoresAreLeftOut) {
  Machine machine;  // two fast cores with siblings, four slow ones
  machine.put("/sys/devices/system/cpu/online", "0-7");
  for (int cpu = 0; cpu < 4; ++cpu) machine.processor(cpu, cpu < 2 ? "0-1" : "2-3", 0);
  for (int cpu = 4; cpu < 8; ++cpu) machine.processor(cpu, std::to_string(cpu), 0);
  machine.put("/sys/devices/cpu_atom/cpus", "4-7");
  ThreadPlan plan = machine.plan({.cpus = {}, .allowed = range(0, 8)});
  EXPECT_EQ(plan.threads, 2);
  EXPECT_TRUE(plan.pinned);
  EXPECT_EQ(plan.workers[1].cpus, (std::vector<int>{2, 3}));
  EXPECT_NE(plan.reason.find("4 of 6 cores are slow"), std::string::npos) << plan.reason;
  plan = machine.plan({.cpus = {}, .allowed = {5, 6}});  // nothing else is allowed
  EXPECT_EQ(plan.threads, 2);
  plan = machine.plan({.threads = 6, .cpus = {}, .allowed = range(0, 8)});
  EXPECT_TRUE(plan.pinned);
  expect_own_places(plan);

  Machine other;  // of the kind that tells capacities
  other.put("/sys/devices/system/cpu/online", "0-3");
  for (int cpu = 0; cpu < 4; ++cpu) other.put("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpu_capacity", cpu < 2 ? "446" : "1024");
  EXPECT_EQ(other.plan({.cpus = {}, .allowed = range(0, 4)}).workers[1].cpus, (std::vector<int>{3}));
}

TEST(Topology, ASystemThatTellsNothing) {
  Machine machine;
  const ThreadPlan plan = machine.plan({.cpus = {}, .allowed = {2, 3, 4}});
  EXPECT_EQ(plan.threads, 3);
  EXPECT_EQ(plan.nodes, 1);
  machine.put("/sys/devices/system/cpu/online", "garbage");
  machine.put("/sys/devices/system/node/online", "0-");
  EXPECT_EQ(machine.read({2, 3, 4}).processors.size(), 3u);
}

TEST(Topology, ThisMachineHasAPlan) {
  EXPECT_FALSE(allowed_processors().empty());
  EXPECT_GE(system_plan().threads, 1);
  EXPECT_LE(system_plan().threads, static_cast<int>(allowed_processors().size()));
}

TEST(ThreadPool, RunsWhereThePlanWants) {
  const int last = allowed_processors().back();
  ThreadWishes wishes{.threads = 2, .cpus = {allowed_processors().front()}, .allowed = allowed_processors()};
  if (last != wishes.cpus.front()) wishes.cpus.push_back(last);
  const ThreadPlan plan = plan_threads(system_topology(), wishes).value();
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  {
    ThreadPool pool(plan);
    if (!plan.pinned || pool.pinned() < 2) GTEST_SKIP() << "this system lets no thread be pinned, or has one processor";
    std::atomic<int> meeting{0}, wrong{0};
    pool.for_each(2, [&](int64_t, int worker) {
      ++meeting;
      while (meeting.load() < 2) std::this_thread::yield();
      const std::vector<int>& mine = plan.workers[static_cast<size_t>(worker)].cpus;
      if (std::find(mine.begin(), mine.end(), sched_getcpu()) == mine.end()) ++wrong;
    });
    EXPECT_EQ(wrong.load(), 0);
  }
  ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(ThreadPool, ARefusedPlaceIsNoError) {
  ThreadPlan plan{.threads = 2, .workers = {{.cpus = {8000}}, {.cpus = {8001}}}, .pinned = true, .reason = ""};  // no such processors
  ThreadPool pool(plan);
  EXPECT_EQ(pool.pinned(), 0);
  std::atomic<int> sum{0};
  pool.for_each(10, [&](int64_t, int) { ++sum; });
  EXPECT_EQ(sum.load(), 10);
}

TEST(Pages, TellTheirNodeAndGoToOne) {
  std::vector<char> memory(3 * 4096, 1);
  void* const page = memory.data() + 4096;
  const auto nodes = page_nodes({&page, 1});
  if (!nodes) GTEST_SKIP() << nodes.error().message;
  ASSERT_EQ(nodes->size(), 1u);
  if (nodes->front() < 0) GTEST_SKIP() << "the system knows no node of this page";
  EXPECT_TRUE(move_pages_to({&page, 1}, nodes->front()));
  EXPECT_EQ(memory[4096], 1);
}

}  // namespace
}  // namespace lathe::base
