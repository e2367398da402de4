#pragma once
// What the dispatch point costs while nobody watches.

#include "base/result.h"

namespace lathe::evaluate {

/// Nanoseconds of one call through the dispatch point at a planned site, with neither observer nor recorder, on a device and kernel that do nothing:
/// the branch, the look at the site and the two jumps. A model pays it once for every call. Median of several samples.
Result<double> dispatch_call_ns();

}  // namespace lathe::evaluate
