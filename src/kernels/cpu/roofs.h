#pragma once
// The loops that measure what this processor can do at best, whatever level the kernels were told to use: the floor does not sink with a forced level.

#include "kernels/cpu/roof_isa.h"

namespace lathe::kernels::cpu {

struct RoofLoops {
  const RoofIsa* isa = nullptr;  ///< best level of this processor
  RoofLoop bf16;                 ///< dot products of BF16 pairs; absent: run is null
  RoofLoop int8;                 ///< dot products of bytes; absent: run is null
};
RoofLoops roof_loops();

}  // namespace lathe::kernels::cpu
