#include "kernels/cpu/roofs.h"

#include "kernels/cpu/cpu_variants.h"

namespace lathe::kernels::cpu {

RoofLoops roof_loops() {
  RoofLoops loops;
  loops.isa = has_avx512() ? &kRoofAvx512 : has_avx2() ? &kRoofAvx2 : &kRoofScalar;
  if (has_avx512bf16()) loops.bf16 = kRoofBf16Pairs;
  if (has_avx512vnni()) loops.int8 = kRoofInt8;
  return loops;
}

}  // namespace lathe::kernels::cpu
