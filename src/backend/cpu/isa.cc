// Instruction-set levels: what this machine has and this build holds.

#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/isa.h"
#include "kernels/cpu/cpu_variants.h"

namespace lathe::backend {
namespace {

namespace cpu = kernels::cpu;

std::span<const ops::Variant> no_variants() { return {}; }
bool always() { return true; }
bool never() { return false; }

struct Level {
  IsaLevel level;
  const char* name;
  bool (*available)();
  std::span<const ops::Variant> (*variants)();
};

constexpr std::array<Level, 6> kLevels = {{
    {IsaLevel::kScalar, "scalar", always, cpu::scalar_variants},
    {IsaLevel::kAvx2, "avx2", cpu::has_avx2, cpu::avx2_variants},
    {IsaLevel::kAvx512, "avx512", cpu::has_avx512, cpu::avx512_variants},
    {IsaLevel::kAvx512Vnni, "avx512_vnni", cpu::has_avx512vnni, cpu::avx512vnni_variants},
    {IsaLevel::kAvx512Bf16, "avx512_bf16", cpu::has_avx512bf16, cpu::avx512bf16_variants},
    {IsaLevel::kAmx, "amx", never, no_variants},  // no kernel in this build
}};

const Level& level_of(IsaLevel level) { return kLevels[static_cast<size_t>(level)]; }

}  // namespace

const char* isa_name(IsaLevel level) { return level_of(level).name; }

std::vector<IsaLevel> available_isa_levels() {
  std::vector<IsaLevel> levels;
  for (const Level& entry : kLevels) {
    if (!entry.available()) break;  // a level includes those before it
    levels.push_back(entry.level);
  }
  return levels;
}

IsaLevel detect_isa() { return available_isa_levels().back(); }

Result<IsaLevel> choose_isa(const std::string& forced, const char* environment) {
  const bool by_environment = forced.empty() && environment != nullptr && *environment != '\0';
  const std::string wanted = by_environment ? environment : forced;
  if (wanted.empty()) return detect_isa();
  std::vector<const char*> names;
  for (const IsaLevel level : available_isa_levels()) {
    if (wanted == isa_name(level)) return level;
    names.push_back(isa_name(level));
  }
  bool known = false;
  for (const Level& entry : kLevels) known = known || wanted == entry.name;
  return err(Code::kInvalidArgument, "instruction set '{}'{} is {}; available: {}", wanted, by_environment ? " of LATHE_ISA" : "",
             known ? "not available on this machine and build" : "unknown", fmt::join(names, ", "));
}

std::vector<ops::Variant> isa_table(IsaLevel level) {
  std::vector<ops::Variant> table;
  for (int at = static_cast<int>(level); at >= 0; --at) {
    const auto variants = kLevels[static_cast<size_t>(at)].variants();
    table.insert(table.end(), variants.begin(), variants.end());
  }
  return table;
}

}  // namespace lathe::backend
