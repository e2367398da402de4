#pragma once
// Puts views of host memory where a device can read them: in place if it sees host memory, else into slabs of device memory.

#include <cstdint>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "tensor/view.h"

namespace lathe::models {

class WeightPlacer {
 public:
  explicit WeightPlacer(backend::Device& device) : device_(device) {}

  /// A matrix slice with its scales, as stored. Absent stays absent.
  Result<void> matrix(MatrixView& matrix);
  /// A small vector or array: f32 or bf16 as stored, anything else widened to f32. Contiguous afterwards.
  Result<void> vector(View& view);
  /// An owned copy on the device, contiguous: for arrays that were made on the host.
  Result<View> copy(const View& host);

  int64_t bytes() const { return bytes_; }
  int64_t uploaded_bytes() const { return uploaded_bytes_; }
  std::vector<backend::Buffer> take_memory() { return std::move(slabs_); }

 private:
  /// Copies rows of [rows, cols] (any row stride) into fresh device memory.
  Result<View> upload(const View& host);
  Result<void*> allocate(int64_t bytes);

  backend::Device& device_;
  std::vector<backend::Buffer> slabs_;
  int64_t slab_used_ = 0;
  int64_t bytes_ = 0;
  int64_t uploaded_bytes_ = 0;
};

}  // namespace lathe::models
