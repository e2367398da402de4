#pragma once
// Files: whole reads with a limit, and read-only memory maps.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lathe::base {

/// The whole file as bytes. Errors: not_found, invalid_argument (not a regular file, larger than `bytes_max`), unavailable (read failed).
Result<std::string> read_file(const std::string& path, size_t bytes_max);

/// Writes through a temporary file and a rename, so that a reader sees the old or the new content, never half of it.
Result<void> write_file(const std::string& path, std::string_view bytes);

/// Whether write_file would find a folder that it may write to; leaves nothing behind. Errors: unavailable with the reason.
Result<void> check_writable(const std::string& path);

bool file_exists(const std::string& path);
bool is_directory(const std::string& path);

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
