#pragma once
// Strong ids: a SequenceId cannot be passed where a SlotId is meant.

#include <cstdint>
#include <functional>

namespace lathe::base {

template <class Tag>
struct Id {
  int32_t value = -1;
  friend bool operator==(Id, Id) = default;
  friend auto operator<=>(Id, Id) = default;
  bool valid() const { return value >= 0; }
};

}  // namespace lathe::base

namespace lathe {
using TokenId = int32_t;  ///< index into the vocabulary; plain, because arrays of it are uploaded to devices
using SequenceId = base::Id<struct SequenceTag>;
using SlotId = base::Id<struct SlotTag>;
using BlockId = base::Id<struct BlockTag>;
}  // namespace lathe

template <class Tag>
struct std::hash<lathe::base::Id<Tag>> {
  size_t operator()(lathe::base::Id<Tag> id) const { return std::hash<int32_t>()(id.value); }
};
