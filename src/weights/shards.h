#pragma once
// Checkpoints of several files: their names and the index that lists what is where.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "weights/safetensors.h"

namespace lathe::weights {

/// "model-00002-of-00007.safetensors"; index counts from 0.
std::string shard_name(size_t index, size_t count);

inline constexpr const char* kShardIndex = "model.safetensors.index.json";

/// Writes kShardIndex into `folder`: the tensors of each shard in turn. Errors: those of write_file.
Result<void> write_shard_index(const std::string& folder, std::span<const std::span<const TensorEntry>> shards);

}  // namespace lathe::weights
