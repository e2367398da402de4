#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/file_place.h"

namespace lathe::base {
namespace {

/// Closes a descriptor at scope end.
struct FileDescriptor {
  int fd = -1;
  ~FileDescriptor() {
    if (fd >= 0) ::close(fd);
  }
};

bool has_zero_byte(const std::string& path) { return path.find('\0') != std::string::npos; }

Result<void> check_path(const std::string& path) {
  if (has_zero_byte(path)) return err(Code::kInvalidArgument, "the path '{}' has a zero byte in it", path);
  return {};
}

Result<size_t> open_regular(const std::string& path, FileDescriptor& out) {
  LATHE_TRY_VOID(check_path(path));
  out.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe without a writer must not be waited for
  if (out.fd < 0) {
    return err(errno == ENOENT ? Code::kNotFound : Code::kUnavailable, "cannot open '{}': {}", path, std::strerror(errno));
  }
  struct stat info{};
  if (::fstat(out.fd, &info) != 0) return err(Code::kUnavailable, "cannot stat '{}': {}", path, std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return err(Code::kFailedPrecondition, "'{}' is not a regular file", path);
  return static_cast<size_t>(info.st_size);
}

}  // namespace

Result<std::string> read_file(const std::string& path, size_t bytes_max) {
  FileDescriptor file;
  LATHE_TRY(const size_t size, open_regular(path, file));
  if (size > bytes_max) return err(Code::kResourceExhausted, "'{}' has {} bytes, the limit is {}", path, size, bytes_max);
  // Some systems' files (/proc, cgroups) say 0 and have content all the same: the end of the file decides.
  std::string content(std::max<size_t>(size, 4096), '\0');
  size_t done = 0;
  for (;;) {
    const ssize_t got = ::read(file.fd, content.data() + done, content.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return err(Code::kUnavailable, "cannot read '{}': {}", path, std::strerror(errno));
    if (got == 0) break;
    done += static_cast<size_t>(got);
    if (done > bytes_max) return err(Code::kResourceExhausted, "'{}' has more than {} bytes, the limit", path, bytes_max);
    if (done == content.size()) content.resize(done * 2);
  }
  if (done < size) return err(Code::kDataLoss, "'{}' ended after {} of {} bytes", path, done, size);
  content.resize(done);
  return content;
}

Result<std::string> file_to_replace(const std::string& path) {
  LATHE_TRY_VOID(check_path(path));
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return path;
  if (!S_ISREG(info.st_mode)) return err(Code::kFailedPrecondition, "'{}' is not a regular file, expected a file to write", path);
  char* const real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr) return err(Code::kUnavailable, "cannot resolve '{}': {}", path, std::strerror(errno));
  std::string resolved(real);
  std::free(real);
  return resolved;
}

Result<void> write_file(const std::string& given, std::string_view bytes) {
  LATHE_TRY(const std::string path, file_to_replace(given));
  const std::string temporary = path + ".part" + std::to_string(::getpid());
  FileDescriptor file;
  file.fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file.fd < 0) return err(Code::kUnavailable, "cannot create '{}': {}", temporary, std::strerror(errno));
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t put = ::write(file.fd, bytes.data() + done, bytes.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      const int cause = errno;
      ::unlink(temporary.c_str());
      return err(Code::kUnavailable, "cannot write '{}': {}", path, std::strerror(cause));
    }
    done += static_cast<size_t>(put);
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int cause = errno;
    ::unlink(temporary.c_str());
    return err(Code::kUnavailable, "cannot rename to '{}': {}", path, std::strerror(cause));
  }
  return {};
}

Result<void> check_writable(const std::string& given) {
  LATHE_TRY(const std::string path, file_to_replace(given));
  const std::string temporary = path + ".part" + std::to_string(::getpid());
  FileDescriptor file;
  file.fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (file.fd < 0) return err(Code::kUnavailable, "cannot create '{}': {}", path, std::strerror(errno));
  ::unlink(temporary.c_str());
  return {};
}

bool file_exists(const std::string& path) {
  struct stat info{};
  return !has_zero_byte(path) && ::stat(path.c_str(), &info) == 0;
}

bool is_directory(const std::string& path) {
  struct stat info{};
  return !has_zero_byte(path) && ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool same_file(const std::string& a, const std::string& b) {
  struct stat of_a{};
  struct stat of_b{};
  if (has_zero_byte(a) || has_zero_byte(b) || ::stat(a.c_str(), &of_a) != 0 || ::stat(b.c_str(), &of_b) != 0) return false;
  return of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  FileDescriptor file;
  LATHE_TRY(const size_t size, open_regular(path, file));
  MappedFile mapped;
  mapped.path_ = path;
  mapped.size_ = size;
  if (size == 0) return mapped;
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (address == MAP_FAILED) return err(Code::kUnavailable, "cannot map '{}': {}", path, std::strerror(errno));
  mapped.data_ = static_cast<const std::byte*>(address);
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace lathe::base
