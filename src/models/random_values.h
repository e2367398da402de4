#pragma once
// Normally distributed tensor values that depend on a key and their place alone, for checkpoints with random weights.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace lathe::models {

/// What the values of one tensor are drawn from.
struct RandomTensor {
  uint64_t key = 0;  ///< random_key() of its name
  DType dtype = DType::kBF16;
  float centre = 0;
  float width = 1;      ///< standard deviation; of f8_e4m3 the scales give it
  bool scales = false;  ///< of an f8_e4m3 tensor with this width: between 3/4 and 5/4 of what they would be if all were the same
};

/// A key for a tensor of a checkpoint with this seed.
uint64_t random_key(uint64_t seed, std::string_view name);

/// Draws by looking quantiles of the normal distribution up: every eight bytes of a tensor come from one 64-bit word, a hash of the key and of their place.
/// The widest value is 3.7 standard deviations from the centre (2.9 of f8_e4m3, where it is 448), so nothing overflows.
///
/// Threads  immutable after construction
class RandomValues {
 public:
  RandomValues();
  /// Bytes [begin, begin + out.size()) of the tensor; begin is a multiple of 8. Dtypes: f32, bf16, f8_e4m3.
  void fill(const RandomTensor& tensor, uint64_t begin, std::span<std::byte> out) const;

 private:
  std::vector<float> normal_;  ///< [4096] ascending quantiles of N(0, 1)
  std::vector<uint8_t> fp8_;   ///< [256] codes of the same, the widest at ±448
  float fp8_width_ = 1;        ///< standard deviation of the codes' values
};

}  // namespace lathe::models
