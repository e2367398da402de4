#pragma once
// What `inspect` tells, before it is printed.

#include "config/json.h"
#include "engine/engine.h"

namespace lathe::apps {

/// Every section of `inspect --json`; cache_bytes is what the store of an engine with these options and one sequence reserves, by family and as `total`.
/// No cache is reserved. batch: sequences that decode together, for bytes per step. Errors: as describe_model, load_model and make_cpu_device.
Result<config::Json> inspect_facts(const engine::EngineOptions& options, int64_t batch);

}  // namespace lathe::apps
