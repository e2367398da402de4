// Replay decoding at the level 'scalar'.
#define LATHE_ISA scalar
#define LATHE_SIMD_SCALAR 1
#include "kernels/cpu/replay_isa.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/replay.inl"

namespace lathe::kernels::cpu {

constexpr ReplayIsa kReplayScalar = scalar::replay_level();

}  // namespace lathe::kernels::cpu
