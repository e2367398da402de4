#pragma once
// What the roof files of the instruction-set levels offer to roofs.h: loops that do one thing as fast as a core can. Plain C types.

#include <cstdint>

namespace lathe::kernels::cpu {

/// Arithmetic in registers. `rounds` rounds of independent operations; the value returned depends on all of them.
struct RoofLoop {
  float (*run)(int64_t rounds) = nullptr;  ///< null: the level has no such instruction
  int64_t operations = 0;                  ///< of one round; a multiply-add is 2
};

/// One core's share of a roof.
struct RoofIsa {
  const char* name = "";
  /// Reads `bytes` (a multiple of kRoofStep); the value depends on every byte.
  uint32_t (*read)(const void* from, int64_t bytes) = nullptr;
  /// Copies `bytes` (a multiple of kRoofStep) with plain stores, as kernels write.
  void (*copy)(void* to, const void* from, int64_t bytes) = nullptr;
  RoofLoop multiply_add;  ///< f32
};

constexpr int64_t kRoofStep = 512;

extern const RoofIsa kRoofScalar, kRoofAvx2, kRoofAvx512;
extern const RoofLoop kRoofBf16Pairs, kRoofInt8;

}  // namespace lathe::kernels::cpu
