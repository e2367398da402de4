#pragma once
// What a request is known by in the caches, whatever slot it has and whoever runs beside it.

#include <cstdint>
#include <span>

#include "base/ids.h"

namespace lathe::engine {

/// A hash of the prompt and the seed: the same request has the same key in every batch and after every restart, others hardly ever.
/// Replay staggers by it when sequences write their states (models/replay.h).
uint64_t request_key(std::span<const TokenId> prompt, uint64_t seed);

}  // namespace lathe::engine
