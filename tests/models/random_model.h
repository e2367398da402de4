#pragma once
// Test support: small checkpoints with random weights for any configuration, written to a temporary folder.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lathe::models::golden {

struct RandomModel {
  std::map<std::string, int64_t> sizes;  ///< config keys that differ from the small default
  std::vector<std::string> layers = {"linear_attention", "deepseek_sparse_attention", "linear_attention"};
  std::vector<std::string> mlps = {"dense", "sparse", "sparse"};
  std::vector<std::string> indexers = {"full", "full", "full"};
  bool softplus_gate = false;  ///< linear_lower_bound null
  bool normalise_topk = true;
  bool tail = true;  ///< index_kpool_always_select_tail
  bool fp8 = false;  ///< matrices that may be E4M3 are
  bool f16 = false;  ///< everything that the release has in BF16 is F16
  uint32_t seed = 1;
};

/// Owner of the folder.
class RandomCheckpoint {
 public:
  explicit RandomCheckpoint(const RandomModel& model);
  ~RandomCheckpoint();
  RandomCheckpoint(const RandomCheckpoint&) = delete;
  RandomCheckpoint& operator=(const RandomCheckpoint&) = delete;
  const std::string& directory() const { return directory_; }

 private:
  std::string directory_;
};

}  // namespace lathe::models::golden
