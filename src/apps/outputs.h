#pragma once
// An output never replaces what it is computed from: asked before anything is written.

#include <span>
#include <string>

#include "base/result.h"

namespace lathe::apps {

/// A file of the command line and the flag that names it.
struct NamedFile {
  const char* flag;
  std::string path;  ///< empty: not given; "-" for an input: standard input
};

/// What a run reads, apart from what it loads with the program.
struct RunInputs {
  std::string model;  ///< folder, or a config alone
  std::span<const NamedFile> files;
};

/// Refuses an output that is one of the inputs, by name, through links or as another name of the same file; that lies in the folder of the model; or that
/// cannot be written. Nothing is left behind. Errors: invalid_argument naming both; those of base::check_writable.
Result<void> check_output(const NamedFile& output, const RunInputs& inputs);

/// The same of a folder that is to be made, or that is empty: whether it may be written is told by who makes it.
Result<void> check_new_folder(const NamedFile& output, const RunInputs& inputs);

}  // namespace lathe::apps
