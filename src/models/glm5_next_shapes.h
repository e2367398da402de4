#pragma once
// The weights that a config announces, as shapes without values: for totals, and for planning kernels when there is only a config.

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "models/glm5_next_tensors.h"

namespace lathe::models {

/// Views of the right shapes and dtypes. Plain tensors have config.dtype, those that both releases store as F32 are F32 (all of them if config.dtype is
/// F32), and where quantization_config announces fp8 the matrices that the FP8 release stores so (TensorSpec::fp8_in_release) are E4M3, except those on
/// its exclusion list: its entries match a module or a whole subtree, with and without `language_model.`, and can only take matrices out. Where it
/// announces INT8, every matrix that can be INT8 (TensorSpec::int8_allowed) but those listed, or what a ModelSlim description says. All views begin at `data` (null: nobody reads them).
Glm5NextWeights weights_from_config(const Glm5NextConfig& config, void* data = nullptr);

/// Zero bytes for such views, as many as the largest tensor has; physical pages only where somebody reads.
class ZeroBytes {
 public:
  ZeroBytes() = default;
  /// Errors: resource_exhausted.
  static Result<ZeroBytes> for_config(const Glm5NextConfig& config);
  void* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
};

}  // namespace lathe::models
