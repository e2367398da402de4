#pragma once
// The vision tower and merger (spec glm5_next §3.3): patches in, embedding rows out.

#include <vector>

#include "backend/dispatch.h"
#include "models/arena.h"
#include "models/glm5_next_config.h"
#include "models/glm5_next_sites.h"
#include "models/glm5_next_weights_device.h"
#include "models/model.h"
#include "ops/basic.h"
#include "ops/op.h"

namespace lathe::models {

class Glm5NextVision {
 public:
  /// Weights and dispatch outlive it. `downsample`: Glm5NextDeviceWeights::downsample, the convolution as a matrix.
  Glm5NextVision(const VisionConfig& config, const VisionWeights& weights, const View& downsample, ops::Compute compute, backend::Dispatch& dispatch);

  /// A dry pass over the smallest picture, between begin_plan() and end_plan().
  Result<void> plan();
  /// Errors: invalid_argument (sizes that do not fit the patches or the merge), resource_exhausted.
  Result<ImageRows> encode(const ImageInput& image);

 private:
  struct BlockSites {
    backend::OpSite norm1 = op_site("vision.norm1");
    backend::OpSite qkv = op_site("vision.qkv");
    backend::OpSite rope = op_site("vision.rope");
    backend::OpSite attend = op_site("vision.attend");
    backend::OpSite proj = op_site("vision.proj");
    backend::OpSite add_attend = op_site("vision.add_attend");
    backend::OpSite norm2 = op_site("vision.norm2");
    backend::OpSite gate_up = op_site("vision.gate_up");
    backend::OpSite down = op_site("vision.down");
    backend::OpSite add_mlp = op_site("vision.add_mlp");
  };
  struct Sites {
    backend::OpSite patch = op_site("vision.patch");
    backend::OpSite post_norm = op_site("vision.post_norm");
    backend::OpSite downsample = op_site("vision.downsample");
    backend::OpSite merge = op_site("vision.merge");
    backend::OpSite merge_norm = op_site("vision.merge_norm");
    backend::OpSite gelu = op_site("vision.gelu");
    backend::OpSite gate_up = op_site("vision.merger_gate_up");
    backend::OpSite down = op_site("vision.merger_down");
  };
  /// The integers of a picture on the device.
  struct Places {
    View positions;      ///< i32 [T, 2]
    View segment_begin;  ///< i32 [t + 1]
  };

  Result<void> check(const ImageInput& image) const;
  Result<Places> place(const ImageInput& image, MetaPack& meta, Upload upload);
  void run(Arena& arena, const Places& places, const View& patches, const View& rows);
  void block(Arena& arena, size_t index, const Places& places, const View& z);
  void merge(Arena& arena, const View& z, const View& rows);
  /// part.y = x Wᵀ + bias.
  void linear(backend::OpSite& site, const View& x, const ops::MatmulPart& part);

  const VisionConfig& config_;
  const VisionWeights& weights_;
  MatrixView downsample_;
  ops::Compute compute_;
  backend::Dispatch& dispatch_;
  Sites sites_;
  std::vector<BlockSites> blocks_;
};

}  // namespace lathe::models
