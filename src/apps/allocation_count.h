#pragma once
// Counts allocations of the whole program, for `bench model`. Linking this replaces operator new: one relaxed increment more for each call.

#include <cstdint>

namespace lathe::apps {

/// Calls of operator new since the program started, all threads; −1 under sanitizers, which have an operator new of their own.
int64_t allocation_count();

}  // namespace lathe::apps
