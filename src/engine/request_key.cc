#include "engine/request_key.h"

namespace lathe::engine {

uint64_t request_key(std::span<const TokenId> prompt, uint64_t seed) {
  // FNV-1a by whole numbers; who uses the key mixes it further.
  constexpr uint64_t kStart = 0xcbf29ce484222325ull, kFactor = 0x100000001b3ull;
  uint64_t key = (kStart ^ seed) * kFactor;
  for (const TokenId token : prompt) key = (key ^ static_cast<uint64_t>(token)) * kFactor;
  return key;
}

}  // namespace lathe::engine
