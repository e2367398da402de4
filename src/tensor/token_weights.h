#pragma once
// e^x of logits as integers, which is what sampling adds and compares (spec parallel §3.1): the same bits on every machine and in any order of sums.

#include <cstdint>
#include <span>

namespace lathe::tensor {

/// Weight of the most likely token; sums over 2^19 ids stay below 2^63.
inline constexpr double kTokenWeightOne = 0x1p44;

/// e^x for x ≤ 0: a polynomial of degree 9 in double by single IEEE operations, rounded to float once; 1 for 0, and 0 below −80. NaN gives 0.
float token_exp(float x);

/// out[i] = rint(token_exp(x[i] − most) · 2^44); x[i] ≤ most or −∞. As long as x.
void token_weights(std::span<const float> x, float most, std::span<uint64_t> out);
/// Sum of those.
uint64_t token_weight_sum(std::span<const float> x, float most);

}  // namespace lathe::tensor
