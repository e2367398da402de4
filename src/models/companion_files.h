#pragma once
// What lies in a model's folder beside config and weights: tokenizer, template, defaults, licences.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace lathe::models {

struct CompanionFile {
  std::string path;      ///< where it is
  std::string relative;  ///< to the folder
  uint64_t bytes = 0;
};

/// All of them, in ascending order, those of folders inside as well. Left out are config.json, weights and their index, descriptions of quantisation, and
/// hidden files. Errors: unavailable.
Result<std::vector<CompanionFile>> companion_files(const std::string& model);

/// Copies them into `folder`, over what is there. Errors: those of MappedFile and OutputFile.
Result<void> copy_companions(const std::vector<CompanionFile>& files, const std::string& folder);

}  // namespace lathe::models
