#pragma once
// The greatest of many floats.

#include <cstdint>
#include <span>

namespace lathe::tensor {

/// Position of the first of the greatest values, NaN left out; −1 where there is no other. Sixteen running maxima: a branch per value, as in the standard
/// library's, costs a step of 16 sequences 5 % of its time.
int64_t argmax(std::span<const float> values);

}  // namespace lathe::tensor
