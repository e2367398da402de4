#pragma once
// The CPU kernels as lists of named variants, one list per instruction-set level. A backend puts the lists of all levels that the machine has into its
// table, highest first, and kernels/ref behind them: an op without a kernel at any level is served by the reference.

#include <span>

#include "ops/kernel.h"

namespace lathe::kernels::cpu {

/// Baseline x86-64 (SSE2).
std::span<const ops::Variant> scalar_variants();
/// AVX2, FMA, F16C.
std::span<const ops::Variant> avx2_variants();
/// AVX-512 F, BW, DQ, VL.
std::span<const ops::Variant> avx512_variants();
/// With VNNI: products of INT8 codes.
std::span<const ops::Variant> avx512vnni_variants();
/// With BF16 and VBMI (every processor with AVX-512 BF16 but Cooper Lake has VBMI): dot products of BF16 pairs, FP8 by byte tables.
std::span<const ops::Variant> avx512bf16_variants();

/// Whether this processor and its operating system run the kernels of the list of that name.
bool has_avx2();
bool has_avx512();
bool has_avx512vnni();
bool has_avx512bf16();

}  // namespace lathe::kernels::cpu
