#pragma once
// The generated tables behind unicode.h (tools/gen_unicode.mjs). Include unicode.h instead.

#include <cstdint>
#include <span>

namespace lathe::text {

/// Two-stage table of blocks of 64 code points: the code points below 0x32400, then 0xE0000 … 0xE01FF. All others are unassigned or private.
extern const uint16_t kPropertyIndex[];
extern const uint16_t kPropertyBlocks[];

struct Decomposition {
  char32_t code;
  uint16_t offset;  ///< into kDecompositionPool
  uint16_t length;
};
extern const char32_t kDecompositionPool[];
extern const std::span<const Decomposition> kCanonicalDecompositions;   ///< full, by code, without Hangul syllables
extern const std::span<const Decomposition> kCompatibleDecompositions;  ///< full, by code, only where they differ from the canonical ones

struct Composition {
  char32_t first;
  char32_t second;
  char32_t composed;
};
extern const std::span<const Composition> kCompositions;  ///< primary composites by (first, second), without Hangul

struct CombiningRange {
  char32_t first;
  char32_t last;
  uint8_t rank;  ///< order of the canonical combining class, from 1
};
extern const std::span<const CombiningRange> kCombiningRanges;

struct CaseMapping {
  char32_t code;
  char32_t mapped;
};
extern const std::span<const CaseMapping> kLowerMappings;

}  // namespace lathe::text
