// Replay decoding at the level 'avx2'.
#define LATHE_ISA avx2
#define LATHE_SIMD_AVX2 1
#include "kernels/cpu/replay_isa.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/replay.inl"

namespace lathe::kernels::cpu {

constexpr ReplayIsa kReplayAvx2 = avx2::replay_level();

}  // namespace lathe::kernels::cpu
