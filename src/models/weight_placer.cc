#include "models/weight_placer.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace lathe::models {
namespace {

constexpr int64_t kSlabBytes = int64_t{32} << 20;
constexpr int64_t kAlignBytes = 64;

int64_t element_bytes(const View& view) { return static_cast<int64_t>(tensor::dtype_bytes(view.dtype)); }

}  // namespace

Result<void*> WeightPlacer::allocate(int64_t bytes) {
  const int64_t wanted = (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
  if (slabs_.empty() || slab_used_ + wanted > slabs_.back().bytes()) {
    auto slab = backend::Buffer::create(device_, std::max(kSlabBytes, wanted));
    if (!slab) return base::forward_error(slab, "weights");
    slabs_.push_back(std::move(*slab));
    slab_used_ = 0;
  }
  void* const memory = static_cast<char*>(slabs_.back().data()) + slab_used_;
  slab_used_ += wanted;
  return memory;
}

Result<View> WeightPlacer::upload(const View& host) {
  View out = host;
  int64_t stride = 1;
  for (int axis = host.rank - 1; axis >= 0; --axis) {
    out.stride[static_cast<size_t>(axis)] = stride;
    stride *= host.dim(axis);
  }
  const int64_t bytes = host.elements() * element_bytes(host);
  LATHE_TRY(out.data, allocate(bytes));
  uploaded_bytes_ += bytes;
  if (bytes == 0) return out;
  if (host.contiguous()) {
    device_.copy_to_device(out.data, host.data, bytes);
    return out;
  }
  LATHE_CHECK(host.rank == 2, "strided upload of {}", tensor::describe(host));
  std::vector<std::byte> packed(static_cast<size_t>(bytes));
  const auto row_bytes = static_cast<size_t>(host.dim(1) * element_bytes(host));
  for (int64_t row = 0; row < host.dim(0); ++row) {
    std::memcpy(packed.data() + static_cast<size_t>(row) * row_bytes, static_cast<const char*>(host.data) + row * host.step(0) * element_bytes(host),
                row_bytes);
  }
  device_.copy_to_device(out.data, packed.data(), bytes);
  return out;
}

Result<void> WeightPlacer::matrix(MatrixView& matrix) {
  if (!matrix.present()) return {};
  bytes_ += matrix.bytes();
  if (device_.host_visible()) {
    const View& rows = matrix.values;
    // From the first row to the last one: a slice by columns has other ranks' values in between.
    if (rows.elements() > 0) {
      device_.settle(rows.data, ((rows.dim(0) - 1) * rows.step(0) + rows.dim(rows.rank - 1)) * element_bytes(rows));
    }
    return {};
  }
  LATHE_TRY(matrix.values, upload(matrix.values));
  if (matrix.scaled()) {
    LATHE_TRY(matrix.scales, upload(matrix.scales));
  }
  return {};
}

Result<void> WeightPlacer::vector(View& view) {
  if (!view.present()) return {};
  bytes_ += view.elements() * element_bytes(view);
  if (view.dtype != DType::kF32 && view.dtype != DType::kBF16) {
    LATHE_CHECK(view.contiguous(), "strided {}", tensor::describe(view));
    std::vector<float> wide(static_cast<size_t>(view.elements()));
    for (size_t i = 0; i < wide.size(); ++i) wide[i] = tensor::load_as_float(view.dtype, view.data, static_cast<int64_t>(i));
    View host = view;
    host.dtype = DType::kF32;
    host.data = wide.data();
    LATHE_TRY(view, copy(host));
    return {};
  }
  if (device_.host_visible()) return {};
  LATHE_TRY(view, upload(view));
  return {};
}

Result<View> WeightPlacer::copy(const View& host) { return upload(host); }

}  // namespace lathe::models
