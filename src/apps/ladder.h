#pragma once
// The verb `bench ladder`: what each technique gives, alone and all together.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/settings.h"

namespace lathe::apps {

struct LadderVerbOptions {
  std::vector<std::string> rungs;  ///< NAME=FLAGS; empty: the rungs of the presets
  std::string prompts = "512";
  std::string batches = "1,4,16";
  int64_t decode_context = 512;
  int64_t rounds = 5;
  int64_t seed = 1;
  int64_t rows = 2;    ///< held-out rows for the accuracy
  std::string sets;    ///< folder; empty: the built-in model's
  std::string memory;  ///< bytes; empty: what is available
  bool json = false;
};
Result<int> ladder_verb(const config::Settings& settings, const LadderVerbOptions& options);

}  // namespace lathe::apps
