#include "weights/shards.h"

#include <fmt/format.h>

#include "base/file.h"
#include "config/json.h"

namespace lathe::weights {

using config::Json;

std::string shard_name(size_t index, size_t count) { return fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count); }

Result<void> write_shard_index(const std::string& folder, std::span<const std::span<const TensorEntry>> shards) {
  Json::Object map;
  uint64_t bytes = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const TensorEntry& entry : shards[i]) {
      bytes += stored_bytes(entry);
      map.emplace_back(entry.name, shard_name(i, shards.size()));
    }
  }
  const Json index = Json::Object{{"metadata", Json::Object{{"total_size", static_cast<int64_t>(bytes)}}}, {"weight_map", std::move(map)}};
  return base::write_file(fmt::format("{}/{}", folder, kShardIndex), index.dump({.indent = 1}));
}

}  // namespace lathe::weights
