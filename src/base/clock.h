#pragma once
// Time as the system sees it. Policies take a time point as an argument and never read a clock.

#include <chrono>
#include <cstdint>

namespace lathe::base {

/// Nanoseconds of the monotonic clock; comparable within one process.
inline int64_t now_ns() { return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace lathe::base
