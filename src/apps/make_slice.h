#pragma once
// The verb `bench make-slice`: a checkpoint with random weights and real dimensions.

#include <cstdint>
#include <string>

#include "base/result.h"

namespace lathe::apps {

struct MakeSliceOptions {
  std::string out;     ///< folder to make
  std::string config;  ///< --config: where the dimensions come from; empty: the published model
  std::string weights = "fp8";
  int64_t layers = 4;
  int64_t dense_layers = -1;
  int64_t experts = 32;
  int64_t vocabulary = 0;
  int64_t seed = 1;
  int64_t threads = 0;  ///< 0: as many as the machine has
  bool no_draft = false;
  bool no_vision = false;
  bool check = false;  ///< say how large it would be
  bool json = false;
};
Result<int> make_slice_verb(const MakeSliceOptions& options);

}  // namespace lathe::apps
