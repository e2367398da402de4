// Goal: a folder has its name when it is whole; unfinished work goes on, and is never mixed with another's.
#include "weights/work_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "base/file.h"

namespace lathe::weights {
namespace {

namespace fs = std::filesystem;

class WorkFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(base_);
    fs::create_directories(base_);
  }
  void TearDown() override { fs::remove_all(base_); }

  /// The message of an open that must fail.
  std::string refused(const std::string& work, Code code) const {
    const auto folder = WorkFolder::open(path_, work);
    EXPECT_FALSE(folder.has_value());
    if (folder) return "";
    EXPECT_EQ(folder.error().code, code) << folder.error().message;
    return folder.error().message;
  }

  const std::string base_ = testing::TempDir() + "lathe_work_folder_" + std::to_string(::getpid());
  const std::string path_ = base_ + "/out";
};

TEST_F(WorkFolderTest, GoesOnWhereItWasStopped) {
  {
    const auto folder = WorkFolder::open(path_ + "/", "a, 1");
    ASSERT_TRUE(folder.has_value()) << folder.error().message;
    ASSERT_TRUE(base::write_file(folder->folder() + "/whole", "x").has_value());
    ASSERT_TRUE(base::write_file(folder->folder() + "/half.part123", "x").has_value());
    ASSERT_TRUE(base::write_file(folder->folder() + "/a.partly", "x").has_value());
  }
  EXPECT_FALSE(base::file_exists(path_));
  auto folder = WorkFolder::open(path_, "a, 1");
  ASSERT_TRUE(folder.has_value()) << folder.error().message;
  EXPECT_TRUE(folder->has("whole"));
  EXPECT_TRUE(folder->has("a.partly"));
  EXPECT_FALSE(folder->has("half.part123"));
  ASSERT_TRUE(folder->finish().has_value());
  EXPECT_TRUE(base::file_exists(path_ + "/whole"));
  EXPECT_EQ(std::distance(fs::directory_iterator(path_), {}), 2);
  EXPECT_FALSE(base::file_exists(path_ + ".part"));
}

/// Files of this process end after some bytes, as on a full disk.
class ShortFiles {
 public:
  explicit ShortFiles(rlim_t bytes) {
    old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit less{.rlim_cur = bytes, .rlim_max = old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &less);
  }
  ~ShortFiles() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }
  ShortFiles(const ShortFiles&) = delete;
  ShortFiles& operator=(const ShortFiles&) = delete;

 private:
  rlimit old_{};
  void (*old_handler_)(int) = nullptr;
};

TEST_F(WorkFolderTest, ADescriptionHalfWrittenIsNone) {
  {
    const ShortFiles full(3);
    refused("a long description", Code::kUnavailable);
  }
  EXPECT_FALSE(base::file_exists(path_ + ".part")) << "nothing was made";
  // What a process leaves that was killed while it wrote.
  ASSERT_TRUE(fs::create_directory(path_ + ".part"));
  ASSERT_TRUE(base::write_file(path_ + ".part/work.txt.part123", "a lo").has_value());
  auto folder = WorkFolder::open(path_, "another one");
  ASSERT_TRUE(folder.has_value()) << folder.error().message;
  ASSERT_TRUE(folder->finish().has_value());
  EXPECT_TRUE(fs::is_empty(path_));
}

TEST_F(WorkFolderTest, RefusesOtherWork) {
  {
    const auto first = WorkFolder::open(path_, "a, 1");
    ASSERT_TRUE(first.has_value());
    ASSERT_TRUE(base::write_file(first->folder() + "/file", "x").has_value());
  }
  const std::string message = refused("a, 2", Code::kAlreadyExists);
  for (const char* part : {"out.part", "a, 1", "a, 2"}) EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST_F(WorkFolderTest, RefusesASecondProcess) {
  const auto first = WorkFolder::open(path_, "a");
  ASSERT_TRUE(first.has_value());
  EXPECT_NE(refused("a", Code::kFailedPrecondition).find("another process"), std::string::npos);
}

TEST_F(WorkFolderTest, ReplacesNothing) {
  ASSERT_TRUE(base::write_file(path_, "x").has_value());
  EXPECT_NE(refused("a", Code::kAlreadyExists).find(path_), std::string::npos);
  fs::remove(path_);
  fs::create_directory(path_);
  {
    auto folder = WorkFolder::open(path_, "a");  // an empty folder is no loss
    ASSERT_TRUE(folder.has_value()) << folder.error().message;
    ASSERT_TRUE(base::write_file(path_ + "/late", "x").has_value());
    EXPECT_EQ(folder->finish().error().code, Code::kAlreadyExists);
  }
  refused("a", Code::kAlreadyExists);
}

TEST_F(WorkFolderTest, NoPlaceForIt) {
  EXPECT_EQ(WorkFolder::open(base_ + "/none/out", "a").error().code, Code::kUnavailable);
  ASSERT_TRUE(base::write_file(path_ + ".part", "x").has_value());
  EXPECT_NE(refused("a", Code::kUnavailable).find("out.part"), std::string::npos);
}

}  // namespace
}  // namespace lathe::weights
