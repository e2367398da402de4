// Goal: a file that grows piece by piece has its name only when it is whole, and the old one stays until then.
#include "base/output_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>

#include "base/file.h"

namespace lathe::base {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

class OutputFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  int64_t entries() const { return std::distance(fs::directory_iterator(folder_), {}); }

  const std::string folder_ = testing::TempDir() + "lathe_output_file_" + std::to_string(::getpid());
  const std::string path_ = folder_ + "/file";
};

TEST_F(OutputFileTest, HasItsNameWhenItIsWhole) {
  ASSERT_TRUE(write_file(path_, "old").has_value());
  auto file = OutputFile::create(path_, 6);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  ASSERT_TRUE(file->write_at(3, bytes_of("def")).has_value());
  ASSERT_TRUE(file->write_at(0, bytes_of("abc")).has_value());
  EXPECT_EQ(read_file(path_, 9).value(), "old");
  ASSERT_TRUE(file->commit().has_value());
  EXPECT_EQ(read_file(path_, 9).value(), "abcdef");
  EXPECT_EQ(entries(), 1);
}

TEST_F(OutputFileTest, LeavesNothingWithoutCommit) {
  {
    auto file = OutputFile::create(path_, 6);
    ASSERT_TRUE(file.has_value()) << file.error().message;
    const OutputFile moved = std::move(*file);
    ASSERT_TRUE(moved.write_at(0, bytes_of("abc")).has_value());
    EXPECT_EQ(entries(), 1);
  }
  EXPECT_EQ(entries(), 0);
}

TEST_F(OutputFileTest, TooLargeForTheDisk) {
  const uint64_t too_large = uint64_t{1} << 60;
  const auto space = check_disk_space(path_ + "/deeper/still", too_large);
  ASSERT_FALSE(space.has_value());
  EXPECT_EQ(space.error().code, Code::kResourceExhausted);
  EXPECT_NE(space.error().message.find("1152921504606846976"), std::string::npos) << space.error().message;
  EXPECT_TRUE(check_disk_space(path_, 1).has_value());
  EXPECT_EQ(OutputFile::create(path_, too_large).error().code, Code::kResourceExhausted);
  EXPECT_EQ(entries(), 0);
}

TEST_F(OutputFileTest, PlacesThatCannotBeWritten) {
  EXPECT_EQ(OutputFile::create(folder_ + "/none/file", 1).error().code, Code::kUnavailable);
  EXPECT_EQ(OutputFile::create("/dev/null", 1).error().code, Code::kFailedPrecondition);
  EXPECT_EQ(OutputFile::create(folder_, 1).error().code, Code::kFailedPrecondition);
}

}  // namespace
}  // namespace lathe::base
