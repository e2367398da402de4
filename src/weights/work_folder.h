#pragma once
// A folder that is made file by file and gets its name when it is whole. What was done before an interruption is kept.

#include <string>

#include "base/result.h"

namespace lathe::weights {

/// Works in `path`.part, which only one process may hold at a time. Without finish() that folder stays, for the
/// next run to go on, if there is a file in it.
class WorkFolder {
 public:
  /// Makes the folder, or takes up one that an earlier run with the same `work` left. `work` says on one line what is being made, with every value that
  /// the files depend on. Files that were half written are removed.
  /// Errors: already_exists (`path` is there and no empty folder, or the work in it is another), failed_precondition (another process works on it),
  /// unavailable.
  static Result<WorkFolder> open(const std::string& path, const std::string& work);
  WorkFolder(WorkFolder&& other) noexcept;
  WorkFolder& operator=(WorkFolder&&) = delete;
  ~WorkFolder();

  /// Where files go, under their final names.
  const std::string& folder() const { return folder_; }
  bool has(const std::string& file) const;
  /// Gives the folder its name. Errors: unavailable.
  Result<void> finish();

 private:
  WorkFolder() = default;

  std::string path_;
  std::string folder_;
  int lock_ = -1;
};

}  // namespace lathe::weights
