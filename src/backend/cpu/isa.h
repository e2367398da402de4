#pragma once
// Choice of the instruction-set level and the kernels that it brings. The levels themselves: cpu_device.h.

#include <string>
#include <vector>

#include "backend/cpu/cpu_device.h"

namespace lathe::backend {

/// The forced level, else that of the environment (null or empty: unset), else the best. Errors: invalid_argument (lists the available ones).
Result<IsaLevel> choose_isa(const std::string& forced, const char* environment);

/// Variants of this level, then of the lower ones.
std::vector<ops::Variant> isa_table(IsaLevel level);

}  // namespace lathe::backend
