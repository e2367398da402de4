#include "base/topology.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>

#include "base/limits.h"

namespace lathe::base {
namespace {

/// First line of a system's file; absent if there is none. (Such files say they had 4096 bytes: base::read_file would take them as cut off.)
std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> number_in(const std::string& path) {
  const auto line = first_line(path);
  return line ? number(*line) : std::nullopt;
}

/// Empty if there is no such list.
std::vector<int> list_in(const std::string& path) {
  const auto line = first_line(path);
  return line ? parse_cpu_list(*line).value_or(std::vector<int>()) : std::vector<int>();
}

/// The directory and those above it, down to `top`: "/a/b" gives top/a/b, top/a, top.
std::vector<std::string> upwards(const std::string& top, std::string path) {
  std::vector<std::string> out;
  while (path.size() > 1) {
    out.push_back(top + path);
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  out.push_back(top);
  return out;
}

/// Quota of "cpu.max" ("150000 100000", or "max …"); 0: none.
double quota_of_group(const std::string& directory) {
  const auto line = first_line(directory + "/cpu.max");
  if (!line) return 0;
  const size_t space = line->find(' ');
  if (space == std::string::npos) return 0;
  const auto quota = number(std::string_view(*line).substr(0, space)), period = number(std::string_view(*line).substr(space + 1));
  return quota && period && *quota > 0 && *period > 0 ? static_cast<double>(*quota) / static_cast<double>(*period) : 0;
}

/// The same of the older kind of control group.
double quota_of_old_group(const std::string& directory) {
  const auto quota = number_in(directory + "/cpu.cfs_quota_us"), period = number_in(directory + "/cpu.cfs_period_us");
  return quota && period && *quota > 0 && *period > 0 ? static_cast<double>(*quota) / static_cast<double>(*period) : 0;
}

/// Least of this process's groups and those above them: each of them limits it.
double read_quota(const std::string& root) {
  double least = 0;
  const auto take = [&](double quota) {
    if (quota > 0 && (least == 0 || quota < least)) least = quota;
  };
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // id:controllers:path
    const size_t first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string controllers = ",";
    controllers.append(line, first + 1, second - first - 1).append(",");
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      for (const std::string& directory : upwards(root + "/sys/fs/cgroup", path)) take(quota_of_group(directory));
    } else if (controllers.find(",cpu,") != std::string::npos) {
      const std::string name = controllers.substr(1, controllers.size() - 2);
      for (const std::string& mount : {std::string("cpu"), name}) {
        std::string top = root;
        top.append("/sys/fs/cgroup/").append(mount);
        for (const std::string& directory : upwards(top, path)) take(quota_of_old_group(directory));
      }
    }
  }
  return least;
}

/// Slow cores: those that the system lists as such, or whose capacity is clearly below the largest one.
void mark_efficient(const std::string& root, std::vector<Processor>& processors) {
  const std::vector<int> atoms = list_in(root + "/sys/devices/cpu_atom/cpus");
  std::vector<int64_t> capacity;
  for (const Processor& p : processors) {
    capacity.push_back(number_in(root + "/sys/devices/system/cpu/cpu" + std::to_string(p.cpu) + "/cpu_capacity").value_or(0));
  }
  const int64_t most = capacity.empty() ? 0 : *std::max_element(capacity.begin(), capacity.end());
  for (size_t i = 0; i < processors.size(); ++i) {
    const bool listed = std::binary_search(atoms.begin(), atoms.end(), processors[i].cpu);
    processors[i].efficient = listed || (capacity[i] > 0 && capacity[i] * 5 < most * 4);
  }
  // A machine of nothing but slow cores has no fast ones to prefer.
  if (std::all_of(processors.begin(), processors.end(), [](const Processor& p) { return p.efficient; })) {
    for (Processor& p : processors) p.efficient = false;
  }
}

}  // namespace

Result<std::vector<int>> parse_cpu_list(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  std::vector<int> out;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const size_t dash = part.find('-');
    const auto first = number(part.substr(0, dash)), last = dash == std::string_view::npos ? first : number(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kLimits.processors) {
      return err(Code::kInvalidArgument, "'{}' is no list of processors, expected numbers below {} and ranges, as 0-3,8", text, kLimits.processors);
    }
    for (int64_t cpu = *first; cpu <= *last; ++cpu) out.push_back(static_cast<int>(cpu));
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

Result<std::vector<int>> parse_cpu_mask(std::string_view text) {
  std::string_view digits = text;
  if (digits.starts_with("0x") || digits.starts_with("0X")) digits.remove_prefix(2);
  std::vector<int> out;
  bool good = !digits.empty() && static_cast<int64_t>(digits.size()) * 4 <= kLimits.processors;
  for (size_t i = 0; good && i < digits.size(); ++i) {
    int value = 0;
    const char* const digit = digits.data() + digits.size() - 1 - i;
    good = std::from_chars(digit, digit + 1, value, 16).ptr == digit + 1;
    for (int bit = 0; bit < 4; ++bit) {
      if ((value >> bit & 1) != 0) out.push_back(static_cast<int>(i) * 4 + bit);
    }
  }
  if (good && !out.empty()) return out;
  return err(Code::kInvalidArgument, "'{}' is no mask of processors, expected hexadecimal digits with a bit for each of at most {} processors", text,
             kLimits.processors);
}

std::string cpu_list_text(std::span<const int> cpus) {
  std::string out;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    if (!out.empty()) out += ',';
    out += std::to_string(cpus[i]);
    if (end - i > 1) out += '-' + std::to_string(cpus[end - 1]);
    i = end;
  }
  return out;
}

Topology read_topology(const std::string& root, std::span<const int> allowed) {
  const std::string system = root + "/sys/devices/system/";
  Topology out;
  std::vector<int> online = list_in(system + "cpu/online");
  const auto usable = [&](int cpu) { return std::find(allowed.begin(), allowed.end(), cpu) != allowed.end(); };
  if (std::none_of(online.begin(), online.end(), usable)) online.assign(allowed.begin(), allowed.end());
  std::map<int, int> nodes;
  for (const int node : list_in(system + "node/online")) {
    for (const int cpu : list_in(system + "node/node" + std::to_string(node) + "/cpulist")) nodes[cpu] = node;
  }
  for (const int cpu : online) {
    const std::string folder = system + "cpu/cpu" + std::to_string(cpu) + "/topology/";
    std::vector<int> siblings = list_in(folder + "core_cpus_list");
    if (siblings.empty()) siblings = list_in(folder + "thread_siblings_list");
    Processor p{.cpu = cpu, .core = siblings.empty() ? cpu : siblings.front()};
    p.package = static_cast<int>(std::max<int64_t>(0, number_in(folder + "physical_package_id").value_or(0)));
    if (const auto found = nodes.find(cpu); found != nodes.end()) p.node = found->second;
    out.processors.push_back(p);
  }
  mark_efficient(root, out.processors);
  out.quota = read_quota(root);
  return out;
}

const std::vector<int>& allowed_processors() {
  static const std::vector<int> kAllowed = [] {
    std::vector<int> out;
    // The set must be as large as the kernel's own, which may have more than the usual 1024 bits.
    const int most = static_cast<int>(kLimits.processors);
    const size_t bytes = CPU_ALLOC_SIZE(most);
    cpu_set_t* const set = CPU_ALLOC(most);
    if (set != nullptr && sched_getaffinity(0, bytes, set) == 0) {
      for (int cpu = 0; cpu < most; ++cpu) {
        if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set)) out.push_back(cpu);
      }
    }
    CPU_FREE(set);
    if (out.empty()) {  // not told: as many as the system says are there
      for (int cpu = 0; cpu < std::clamp<int64_t>(sysconf(_SC_NPROCESSORS_ONLN), 1, most); ++cpu) out.push_back(cpu);
    }
    return out;
  }();
  return kAllowed;
}

const Topology& system_topology() {
  static const Topology kTopology = read_topology("", allowed_processors());
  return kTopology;
}

Result<std::vector<int>> page_nodes(std::span<void* const> pages) {
  std::vector<int> nodes(pages.size(), -1);
  const long rc = syscall(SYS_move_pages, 0, pages.size(), pages.data(), nullptr, nodes.data(), 0);
  if (rc != 0) return err(Code::kUnavailable, "the system does not tell where memory lies: {}", std::strerror(errno));
  return nodes;
}

bool move_pages_to(std::span<void* const> pages, int node) {
  constexpr int kMove = 2;  // MPOL_MF_MOVE: pages of this process only
  const std::vector<int> wanted(pages.size(), node);
  std::vector<int> status(pages.size());
  return syscall(SYS_move_pages, 0, pages.size(), pages.data(), wanted.data(), status.data(), kMove) >= 0;
}

}  // namespace lathe::base
