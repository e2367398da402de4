#pragma once
// The reference: one slow and obvious function per op, portable C++. It defines what the contracts in ops/ mean.
//
// Numerics  Sums, dot products and functions are taken in double and rounded once where the contract stores a float. Between leaves and experts the canonical
//           tree adds floats (tensor/shard.h), as the contracts say.
// Threads   context.pool spreads rows, heads or experts; null: the calling thread does it all. Scratch is not used.

#include <span>

#include "ops/kernel.h"

namespace lathe::kernels::ref {

/// Every op exactly once, variant "ref", any legal problem, with its counting twin.
std::span<const ops::Variant> reference_variants();

/// That of one op.
const ops::Variant& reference_of(ops::OpId op);

/// Runs an op's reference on host memory.
void run_reference(ops::OpId op, const void* params, const ops::LaunchContext& context);

}  // namespace lathe::kernels::ref
