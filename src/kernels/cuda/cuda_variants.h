#pragma once
// The kernels of NVIDIA devices as a table. Views point into device memory; LaunchContext::stream is a cudaStream_t and LaunchContext::scratch gives device memory.
//
// Numerics  Statistics of norms and gates in double, everything else in f32 unless the op's compute says BF16. An output's order of additions depends on sizes of
//           the model alone, never on tokens, sequences or other rows.
// Errors    kernels report nothing; the device asks CUDA after each launch.

#include <span>

#include "ops/kernel.h"

namespace lathe::kernels::cuda {

/// In order of preference. Every op but mla_expanded and kernels for sizes beyond the limits in args.h, which fall back.
std::span<const ops::Variant> cuda_variants();

}  // namespace lathe::kernels::cuda
