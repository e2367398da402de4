#pragma once
// Faults on purpose, in builds with LATHE_PLANTED_FAULTS only: the self-test must find each of them. $LATHE_PLANT names the fault:
// pool_tail, dropped_pool, swapped_expert (kernels, here) or stale_slot (the engine's cache).

#include <vector>

#include "ops/kernel.h"

namespace lathe::backend {

/// Whether $LATHE_PLANT is `name`.
bool planted(const char* name);
/// `table` with the wrong kernels in front.
std::vector<ops::Variant> with_planted_faults(std::vector<ops::Variant> table);

}  // namespace lathe::backend
