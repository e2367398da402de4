#pragma once
// Test support: counts calls of operator new in programs that ask. Linking this replaces operator new and delete.

#include <cstdint>

namespace lathe::backend {

/// Calls of operator new, all threads, since the program started. Builds with LATHE_DCHECKS validate every op call, which allocates.
int64_t allocation_count();

}  // namespace lathe::backend
