// Replay decoding at the level 'avx512'.
#define LATHE_ISA avx512
#define LATHE_SIMD_AVX512 1
#include "kernels/cpu/replay_isa.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/replay.inl"

namespace lathe::kernels::cpu {

constexpr ReplayIsa kReplayAvx512 = avx512::replay_level();

}  // namespace lathe::kernels::cpu
