#include "cache/family.h"

#include <fmt/format.h>

namespace lathe::cache {

int64_t Family::unit_bytes() const {
  int64_t bytes = 0;
  for (const Plane& plane : planes) bytes += plane.row_bytes() * plane.rows_per_unit;
  return bytes;
}

int64_t Family::snapshot_unit_bytes() const {
  int64_t bytes = 0;
  for (const Plane& plane : planes) bytes += plane.row_bytes() * (candidates ? 1 : plane.rows_per_unit);
  return bytes;
}

std::string Family::layout_id() const {
  std::string id =
      fmt::format("{}@{}/{}:{}[{},{})", name, layout_version, tokens_per_unit, tensor::shard_kind_name(shard.kind), shard.begin, shard.end);
  for (const Plane& plane : planes) {
    id += fmt::format("|{}:{}x{}", plane.name, tensor::dtype_name(plane.dtype), plane.elements);
    if (!candidates) id += fmt::format("x{}", plane.rows_per_unit);
  }
  return id;
}

}  // namespace lathe::cache
