#pragma once
// The CPU as a device: host memory, a worker pool, and the kernels of the chosen instruction set.

#include <memory>
#include <string>
#include <vector>

#include "backend/device.h"
#include "base/topology.h"

namespace lathe::backend {

/// Instruction-set levels, lowest first. A level includes those before it.
enum class IsaLevel : uint8_t { kScalar, kAvx2, kAvx512, kAvx512Vnni, kAvx512Bf16, kAmx };
const char* isa_name(IsaLevel level);
/// Best level that this machine has and this binary was built with.
IsaLevel detect_isa();
/// Levels from scalar to the detected one.
std::vector<IsaLevel> available_isa_levels();

struct CpuOptions {
  int threads = 0;             ///< 0: chosen for this machine (thread_choice.h)
  std::string isa;             ///< "", or a level name: forced (also by LATHE_ISA); a level that the machine lacks is an error
  bool reference = false;      ///< kernels/ref only
  int64_t scratch_max = 0;     ///< most bytes of scratch that a launch gets at once; 0: what the machine has
  std::vector<int> cpus = {};  ///< processors to run on; empty: all that this process may use
  base::Numa numa = base::Numa::kAuto;
};
/// The level that make_cpu_device takes the kernels of. Errors: invalid_argument (unknown or not available: lists the available ones).
Result<IsaLevel> chosen_isa(const CpuOptions& options);
/// Table: kernels of the level, then of the lower levels, then kernels/ref. Memory is mapped lazily; a request beyond the machine's memory is an error.
/// Errors: invalid_argument (negative threads; processors that this process may not use; instruction set unknown or not available: lists the available ones),
/// resource_exhausted (the system starts fewer threads).
Result<std::unique_ptr<Device>> make_cpu_device(const CpuOptions& options);

/// kernels/ref as a table (host memory).
std::span<const ops::Variant> reference_table();

}  // namespace lathe::backend
