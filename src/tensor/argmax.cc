#include "tensor/argmax.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace lathe::tensor {
namespace {

constexpr size_t kLanes = 16;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

/// The greatest value; −∞ if all are NaN or there are none.
float greatest(std::span<const float> values) {
  constexpr float kLeast = -std::numeric_limits<float>::infinity();
  Lanes most = kLeast - Lanes{};
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    Lanes next;
    std::memcpy(&next, values.data() + i, sizeof next);
    most = next > most ? next : most;  // false for NaN
  }
  float out = kLeast;
  for (size_t lane = 0; lane < kLanes; ++lane) out = std::max(out, most[lane]);
  for (; i < values.size(); ++i) out = values[i] > out ? values[i] : out;
  return out;
}

}  // namespace

int64_t argmax(std::span<const float> values) {
  const auto at = std::find(values.begin(), values.end(), greatest(values));
  return at == values.end() ? -1 : at - values.begin();
}

}  // namespace lathe::tensor
