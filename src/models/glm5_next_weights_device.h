#pragma once
// The weights that one rank's forward pass reads: its slices of the bound checkpoint, in device memory.

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "models/glm5_next_plan.h"
#include "models/glm5_next_tensors.h"
#include "ops/op.h"

namespace lathe::models {

/// Arrays of a layer that are derived from its tensors, and the list form of its experts.
struct LayerDerived {
  View conv;                               ///< f32 [taps, 3 · local heads · K]: q, k and v channels of the local heads
  std::vector<MatrixView> gate, up, down;  ///< one per local expert
  ops::MatrixStack gate_stack() const { return {gate.data(), static_cast<int32_t>(gate.size())}; }
  ops::MatrixStack up_stack() const { return {up.data(), static_cast<int32_t>(up.size())}; }
  ops::MatrixStack down_stack() const { return {down.data(), static_cast<int32_t>(down.size())}; }
};

/// Owner of what had to be copied. `bound` holds the rank's slices with the names of glm5_next_tensors.h; on a host-visible device they point into the
/// checkpoint, which must then outlive this object.
struct Glm5NextDeviceWeights {
  Glm5NextWeights bound;
  std::vector<LayerDerived> layers;  ///< [layers], and one more for the draft layer if there is one
  View downsample;                   ///< [out, merge · merge · hidden], columns (row, column, channel): rows of the tower one after the other
  std::vector<backend::Buffer> memory;
  int64_t bytes = 0;  ///< of this rank, as stored
  int64_t uploaded_bytes = 0;
};

/// Errors: resource_exhausted (device memory).
Result<Glm5NextDeviceWeights> place_weights(const Glm5NextConfig& config, const Glm5NextShards& shards, Glm5NextWeights host,
                                            backend::Device& device);

}  // namespace lathe::models
