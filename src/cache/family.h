#pragma once
// What a cache family is: rows of described planes per token, pool or sequence. Snapshots, transport and tiers move described rows; only the family's
// own kernels know what the bytes mean.

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shard.h"

namespace lathe::cache {

/// What one unit of a family belongs to.
enum class Unit : uint8_t { kToken, kPool, kSequence };

/// One array of a family: values, scales, a ring of recent rows, a cumulative decay, a cursor.
struct Plane {
  std::string name;
  DType dtype = DType::kF32;
  int64_t elements = 0;       ///< per row
  int64_t rows_per_unit = 1;  ///< ring length or number of candidate states for sequence families; 1 for tokens and pools

  int64_t row_bytes() const { return elements * static_cast<int64_t>(tensor::dtype_bytes(dtype)); }
};

/// A family of one layer kind. Rows with scales: all planes together are one unit.
struct Family {
  std::string name;  ///< "kda.state", "kda.conv", "mla.latent", "index.keys", "index.tail", "draft.…"
  Unit unit = Unit::kToken;
  int64_t tokens_per_unit = 1;  ///< kpool for pools
  std::vector<Plane> planes;
  bool candidates = false;  ///< rows_per_unit candidate states, of which a sequence's cursor names the current one; the others hold no history
  bool trails = false;      ///< its state stands at the sequence's mark, not at its length: what lies between is in other planes of the family
  tensor::Shard shard;      ///< what of the whole family this rank holds
  int32_t owner = -1;       ///< rank that keeps this layer under Layer Split; −1: every rank
  uint32_t layout_version = 1;

  /// Bytes of one unit with everything that a running sequence needs.
  int64_t unit_bytes() const;
  /// Bytes of one unit in a snapshot: one state instead of all candidates.
  int64_t snapshot_unit_bytes() const;
  /// Identity of the layout: two stores may exchange rows only if these are equal.
  std::string layout_id() const;
};

/// A family as it occurs in a model.
struct LayerFamily {
  int32_t layer = 0;
  Family family;
};

}  // namespace lathe::cache
