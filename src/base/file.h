#pragma once
// Files: whole reads with a limit, and read-only memory maps.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lathe::base {

// A path with a zero byte, which a system call would cut there, is an invalid_argument of every function here (false for those that say bool).

/// The whole file as bytes. Errors: not_found, failed_precondition (not a regular file), resource_exhausted (larger than `bytes_max`), unavailable.
Result<std::string> read_file(const std::string& path, size_t bytes_max);

/// What a reader of files returns: wrong contents are no wrong argument of the caller, so invalid_argument becomes data_loss; the rest stays.
template <class T>
Result<T> file_content(Result<T> result) {
  if (!result && result.error().code == Code::kInvalidArgument) result.error().code = Code::kDataLoss;
  return result;
}

/// Writes through a temporary file and a rename, so that a reader sees the old or the new content, never half of it.
Result<void> write_file(const std::string& path, std::string_view bytes);

/// Whether write_file would find a folder that it may write to; leaves nothing behind. Errors: unavailable with the reason, failed_precondition (a device, a pipe).
Result<void> check_writable(const std::string& path);

bool file_exists(const std::string& path);
bool is_directory(const std::string& path);
/// Whether both paths lead to one existing file, links followed.
bool same_file(const std::string& a, const std::string& b);

/// A read-only mapping of a whole file; movable owner.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace lathe::base
