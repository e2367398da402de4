// Goal: reads and maps say what is wrong with a path; writes replace whole files.
#include "base/file.h"

#include <gtest/gtest.h>

namespace lathe::base {
namespace {

TEST(File, RoundTripAndErrors) {
  const std::string path = testing::TempDir() + "lathe_file_test";
  ASSERT_TRUE(write_file(path, "hello").has_value());
  EXPECT_EQ(read_file(path, 5).value(), "hello");
  EXPECT_EQ(read_file(path, 4).error().code, Code::kResourceExhausted);
  EXPECT_EQ(read_file(path + ".none", 4).error().code, Code::kNotFound);
  EXPECT_EQ(read_file(testing::TempDir(), 4).error().code, Code::kFailedPrecondition);
  auto mapped = MappedFile::open(path);
  ASSERT_TRUE(mapped.has_value());
  EXPECT_EQ(mapped->bytes().size(), 5u);
  MappedFile moved = std::move(*mapped);
  EXPECT_EQ(static_cast<char>(moved.bytes()[4]), 'o');
  EXPECT_FALSE(read_file("/proc/self/status", 1 << 20).value().empty());  // says that it has 0 bytes
  ASSERT_TRUE(check_writable(path).has_value());
  EXPECT_FALSE(check_writable(testing::TempDir() + "none/file").has_value());
  EXPECT_EQ(check_writable("/dev/null").error().code, Code::kFailedPrecondition);
  EXPECT_EQ(write_file("/dev/null", "x").error().code, Code::kFailedPrecondition);
  ASSERT_TRUE(write_file(path, "").has_value());
  EXPECT_EQ(MappedFile::open(path).value().bytes().size(), 0u);
}

TEST(File, PathsWithAZeroByteAreNotCut) {
  const std::string path = testing::TempDir() + "lathe_file_zero";
  ASSERT_TRUE(write_file(path, "hello").has_value());
  const std::string longer = path + std::string("\0x", 2);
  for (const Error& error :
       {read_file(longer, 5).error(), MappedFile::open(longer).error(), write_file(longer, "").error(), check_writable(longer).error()}) {
    EXPECT_EQ(error.code, Code::kInvalidArgument);
    EXPECT_NE(error.message.find("zero\\x00x' has a zero byte"), std::string::npos) << error.message;
  }
  EXPECT_FALSE(file_exists(longer));
  EXPECT_FALSE(is_directory(testing::TempDir() + std::string("\0x", 2)));
  EXPECT_EQ(read_file(path, 5).value(), "hello");
}

TEST(File, SameFile) {
  const std::string path = testing::TempDir() + "lathe_file_same";
  ASSERT_TRUE(write_file(path, "a").has_value());
  ASSERT_TRUE(write_file(path + "2", "a").has_value());
  EXPECT_TRUE(same_file(path, testing::TempDir() + "./lathe_file_same"));
  EXPECT_FALSE(same_file(path, path + "2"));
  EXPECT_FALSE(same_file(path + ".none", path + ".none"));
}

TEST(File, WrongContentsAreNoWrongArgument) {
  EXPECT_EQ(file_content(Result<int>(err(Code::kInvalidArgument, "line 1"))).error().code, Code::kDataLoss);
  EXPECT_EQ(file_content(Result<int>(err(Code::kNotFound, "x"))).error().code, Code::kNotFound);
  EXPECT_EQ(file_content(Result<int>(7)).value(), 7);
}

}  // namespace
}  // namespace lathe::base
