#pragma once
// A large file that is written piece by piece and gets its name at the end.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace lathe::base {

/// Room for new files where `path` lies or will lie. Errors: resource_exhausted with both numbers, if it is less than `bytes`. Where the system does not
/// say how much there is, there is enough.
Result<void> check_disk_space(const std::string& path, uint64_t bytes);

/// Grows under a temporary name beside its place; without commit() nothing is left of it.
///
/// Threads  write_at may be called from many at once, for ranges that do not overlap; the rest by one owner.
class OutputFile {
 public:
  /// Takes `bytes` of the disk at once, so that a full one is known before the work begins; they read as zero until they are written.
  /// Errors: those of file_to_replace; unavailable (cannot create); resource_exhausted (no room).
  static Result<OutputFile> create(const std::string& path, uint64_t bytes);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  Result<void> write_at(uint64_t offset, std::span<const std::byte> bytes) const;
  /// The file is on the disk and has its name, whatever stood there before. Errors: unavailable; then nothing has changed.
  Result<void> commit();
  const std::string& path() const { return path_; }

 private:
  OutputFile() = default;

  std::string path_;
  std::string temporary_;
  int fd_ = -1;
};

}  // namespace lathe::base
