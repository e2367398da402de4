#include "weights/work_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/file.h"

namespace lathe::weights {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWorkFile = "work.txt";
constexpr const char* kLockFile = "work.lock";  // of its own: the work file is replaced as a whole, and a lock goes with the replaced one
constexpr size_t kWorkBytes = 64u << 10;

/// The path without slashes at its end, where a name is put behind it.
std::string trimmed(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

Result<void> check_free(const std::string& path) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) return {};
  if (fs::is_directory(path, error) && fs::is_empty(path, error)) return {};
  return err(Code::kAlreadyExists, "'{}' is there already: expected a new place or an empty folder", path);
}

/// Half a file of a run that was killed: file.part123.
void remove_halves(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string extension = entry->path().extension().string();
    const bool half = extension.starts_with(".part") && extension.find_first_not_of("0123456789", 5) == std::string::npos;
    std::error_code ignored;
    if (half) fs::remove(entry->path(), ignored);
  }
}

/// Only what says what is being made: a run that ended before its first file leaves nothing.
bool holds_nothing(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name != kWorkFile && name != kLockFile) return false;
  }
  return !error;
}

/// Holds the file until its descriptor is closed. −1: somebody else does.
Result<int> lock_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return err(Code::kUnavailable, "cannot create '{}': {}", path, std::strerror(errno));
  struct flock whole{};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(fd, F_OFD_SETLK, &whole) == 0 || (errno != EAGAIN && errno != EACCES)) return fd;  // a file system without locks has none
  ::close(fd);
  return -1;
}

}  // namespace

Result<WorkFolder> WorkFolder::open(const std::string& path, const std::string& work) {
  WorkFolder out;
  out.path_ = trimmed(path);
  out.folder_ = out.path_ + ".part";
  LATHE_TRY_VOID(check_free(out.path_));
  std::error_code error;
  fs::create_directory(out.folder_, error);
  if (!base::is_directory(out.folder_))
    return err(Code::kUnavailable, "cannot create the folder '{}': {}", out.folder_, error ? error.message() : "there is a file of that name");
  LATHE_TRY(out.lock_, lock_file(out.folder_ + "/" + kLockFile));
  if (out.lock_ < 0) return err(Code::kFailedPrecondition, "another process works in '{}'", out.folder_);
  const std::string file = out.folder_ + "/" + kWorkFile;
  std::string before;
  if (base::file_exists(file)) {
    LATHE_TRY(before, base::read_file(file, kWorkBytes));
  }
  if (!before.empty() && before != work) {
    return err(Code::kAlreadyExists, "'{}' is unfinished work of another kind ({}): expected ({}), or remove it", out.folder_, before, work);
  }
  remove_halves(out.folder_);
  if (before.empty()) LATHE_TRY_VOID(base::write_file(file, work));
  return out;
}

WorkFolder::WorkFolder(WorkFolder&& other) noexcept
    : path_(std::move(other.path_)), folder_(std::move(other.folder_)), lock_(std::exchange(other.lock_, -1)) {}

WorkFolder::~WorkFolder() {
  if (lock_ < 0) return;
  if (holds_nothing(folder_)) {
    std::error_code error;
    fs::remove_all(folder_, error);
  }
  ::close(lock_);
}

bool WorkFolder::has(const std::string& file) const { return base::file_exists(folder_ + "/" + file); }

Result<void> WorkFolder::finish() {
  LATHE_TRY_VOID(check_free(path_));
  std::error_code error;
  fs::rename(folder_, path_, error);
  if (error) return err(Code::kUnavailable, "cannot rename '{}' to '{}': {}", folder_, path_, error.message());
  for (const char* const own : {kWorkFile, kLockFile}) fs::remove(path_ + "/" + own, error);
  return {};
}

}  // namespace lathe::weights
