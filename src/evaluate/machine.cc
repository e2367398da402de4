#include "evaluate/machine.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cctype>
#include <fstream>

#include "backend/cpu/cpu_device.h"
#include "base/file.h"
#include "base/topology.h"

namespace lathe::evaluate {
namespace {

/// The rest of the first line that begins with `key`, without the separator.
std::string field(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t at = line.find_first_not_of(" \t:", key.size());
    return at == std::string::npos ? "" : line.substr(at);
  }
  return "";
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int64_t kibibytes(const std::string& key) {
  int64_t value = 0;
  for (const char c : field("/proc/meminfo", key)) {
    if (std::isdigit(static_cast<unsigned char>(c)) == 0) break;
    value = value * 10 + (c - '0');
  }
  return value * 1024;
}

std::string caches() {
  std::string out;
  for (int i = 0; i < 8; ++i) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", i);
    const std::string type = first_line(folder + "type");
    if (type.empty() || type == "Instruction") continue;
    out += fmt::format("{}L{}{} {}", out.empty() ? "" : ", ", first_line(folder + "level"), type == "Data" ? "d" : "", first_line(folder + "size"));
  }
  return out;
}

/// Lower case, and one '-' for everything that is neither letter nor digit.
std::string slug(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!out.empty() && out.back() != '-') {
      out += '-';
    }
  }
  while (!out.empty() && out.back() == '-') out.pop_back();
  return out;
}

std::string binary_hash() {
  const auto file = base::MappedFile::open("/proc/self/exe");
  if (!file) return "";
  uint64_t hash = 0xCBF29CE484222325ull;
  for (const std::byte b : file->bytes()) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001B3ull;
  return fmt::format("fnv1a64:{:016x}", hash);
}

std::string source_commit() {
  const std::string git = LATHE_SOURCE_DIR "/.git/";
  std::string head = first_line(git + "HEAD");
  if (!head.starts_with("ref: ")) return head;
  const std::string name = head.substr(5);
  if (std::string commit = first_line(git + name); !commit.empty()) return commit;
  std::ifstream packed(git + "packed-refs");
  for (std::string line; std::getline(packed, line);) {
    if (line.ends_with(" " + name)) return line.substr(0, line.find(' '));
  }
  return "";
}

}  // namespace

MachineFacts machine_facts() {
  MachineFacts facts;
  facts.cpu = field("/proc/cpuinfo", "model name");
  facts.processors = static_cast<int>(base::allowed_processors().size());
  facts.id = slug(fmt::format("{} f{}m{} {}cpu", facts.cpu.empty() ? "unknown" : facts.cpu, field("/proc/cpuinfo", "cpu family"),
                              field("/proc/cpuinfo", "model\t"), facts.processors));
  utsname system{};
  if (::uname(&system) == 0) facts.kernel = fmt::format("{} {} {}", system.sysname, system.release, system.machine);
  facts.governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  facts.caches = caches();
  facts.isa = backend::isa_name(backend::detect_isa());
  facts.binary = binary_hash();
  facts.commit = source_commit();
  facts.memory_bytes = kibibytes("MemTotal");
  facts.available_bytes = kibibytes("MemAvailable");
  return facts;
}

MachineLoad machine_load() {
  MachineLoad load;
  std::ifstream("/proc/loadavg") >> load.load1 >> load.load5 >> load.load15;
  std::ifstream stat("/proc/stat");
  std::string name;
  stat >> name;
  for (int i = 0; i < 8; ++i) stat >> load.steal_ticks;  // user nice system idle iowait irq softirq steal
  return load;
}

config::Json machine_json(const MachineFacts& facts, const MachineLoad& begin, const MachineLoad& end) {
  const auto load = [](const MachineLoad& l) { return config::Json(config::Json::Array{l.load1, l.load5, l.load15}); };
  return config::Json::Object{{"id", facts.id},
                              {"cpu", facts.cpu},
                              {"processors", facts.processors},
                              {"isa", facts.isa},
                              {"caches", facts.caches},
                              {"memory_bytes", facts.memory_bytes},
                              {"kernel", facts.kernel},
                              {"governor", facts.governor},
                              {"binary", facts.binary},
                              {"commit", facts.commit},
                              {"load_begin", load(begin)},
                              {"load_end", load(end)},
                              {"steal_ticks", end.steal_ticks - begin.steal_ticks}};
}

}  // namespace lathe::evaluate
