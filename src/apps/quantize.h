#pragma once
// The verb `quantize`: a checkpoint in another weight format.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace lathe::apps {

struct QuantizeVerbOptions {
  std::string model;  ///< IN
  std::string out;    ///< OUT, a folder to make
  std::string weights = "int8";
  std::string activations = "none";  ///< --act
  std::vector<std::string> keep;
  std::string calibrate;  ///< text file; empty: not calibrated
  int64_t threads = 0;    ///< 0: as many as the machine has
  std::string settings_file;
  bool json = false;
};
/// What --help says about the choice of matrices.
extern const char* const kQuantizeHelp;

Result<int> quantize_verb(const QuantizeVerbOptions& options);

}  // namespace lathe::apps
