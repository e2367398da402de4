#pragma once
// Where files are written: shared by what writes them at once and what writes them piece by piece.

#include <string>

#include "base/result.h"

namespace lathe::base {

/// The path with links followed: writing goes through a rename, which would put a plain file in the place of a device, a pipe or a link.
/// Errors: invalid_argument (a zero byte), failed_precondition (not a regular file), unavailable.
Result<std::string> file_to_replace(const std::string& path);

}  // namespace lathe::base
