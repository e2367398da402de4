#include "base/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/file_place.h"

namespace lathe::base {

Result<void> check_disk_space(const std::string& path, uint64_t bytes) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path place = fs::absolute(path, error);
  while (!error && !fs::exists(place, error) && place.has_relative_path()) place = place.parent_path();
  const fs::space_info space = fs::space(place, error);
  if (error || space.available >= bytes) return {};
  return err(Code::kResourceExhausted, "'{}' needs {} bytes of disk, there are {}", path, bytes, space.available);
}

Result<OutputFile> OutputFile::create(const std::string& path, uint64_t bytes) {
  OutputFile file;
  LATHE_TRY(file.path_, file_to_replace(path));
  const std::string temporary = file.path_ + ".part" + std::to_string(::getpid());
  file.fd_ = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file.fd_ < 0) return err(Code::kUnavailable, "cannot create '{}': {}", temporary, std::strerror(errno));
  file.temporary_ = temporary;
  if (bytes == 0 || ::fallocate(file.fd_, 0, 0, static_cast<off_t>(bytes)) == 0) return file;
  if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)
    return err(Code::kResourceExhausted, "cannot write '{}': {}", file.path_, std::strerror(errno));
  // A file system that cannot reserve: a full disk is found when it is full.
  if (::ftruncate(file.fd_, static_cast<off_t>(bytes)) != 0)
    return err(Code::kUnavailable, "cannot make '{}' {} bytes long: {}", temporary, bytes, std::strerror(errno));
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, {})), fd_(std::exchange(other.fd_, -1)) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Result<void> OutputFile::write_at(uint64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return err(Code::kUnavailable, "cannot write '{}': {}", path_, std::strerror(errno));
    offset += static_cast<uint64_t>(put);
    bytes = bytes.subspan(static_cast<size_t>(put));
  }
  return {};
}

Result<void> OutputFile::commit() {
  if (::fdatasync(fd_) != 0) return err(Code::kUnavailable, "cannot write '{}': {}", path_, std::strerror(errno));
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return err(Code::kUnavailable, "cannot rename to '{}': {}", path_, std::strerror(errno));
  temporary_.clear();
  return {};
}

}  // namespace lathe::base
