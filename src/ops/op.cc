#include "ops/op.h"

#include <bit>

namespace lathe::ops {

std::string_view counter_name(Counter counter) {
  switch (counter) {
    case Counter::kBytesRead: return "bytes_read";
    case Counter::kBytesWritten: return "bytes_written";
    case Counter::kFlops: return "flops";
    case Counter::kRowsNormalised: return "rows_normalised";
    case Counter::kExponentials: return "exponentials";
    case Counter::kDivisions: return "divisions";
    case Counter::kWeightBytes: return "weight_bytes";
    case Counter::kCount: break;
  }
  return "?";
}

std::optional<int64_t> MatrixStack::uniform_stride() const {
  if (count <= 1) return 0;
  const auto address = [&](int32_t item) { return std::bit_cast<intptr_t>(items[item].values.data); };
  const auto size = static_cast<intptr_t>(tensor::dtype_bytes(items[0].values.dtype));
  const intptr_t step = address(1) - address(0);
  if (step % size != 0) return std::nullopt;
  for (int32_t item = 2; item < count; ++item) {
    if (address(item) - address(item - 1) != step) return std::nullopt;
  }
  return static_cast<int64_t>(step / size);
}

}  // namespace lathe::ops
