// Goal: reads and maps say what is wrong with a path; writes replace whole files.
#include "base/file.h"

#include <gtest/gtest.h>

namespace lathe::base {
namespace {

TEST(File, RoundTripAndErrors) {
  const std::string path = testing::TempDir() + "lathe_file_test";
  ASSERT_TRUE(write_file(path, "hello").has_value());
  EXPECT_EQ(read_file(path, 5).value(), "hello");
  EXPECT_EQ(read_file(path, 4).error().code, Code::kInvalidArgument);
  EXPECT_EQ(read_file(path + ".none", 4).error().code, Code::kNotFound);
  EXPECT_EQ(read_file(testing::TempDir(), 4).error().code, Code::kInvalidArgument);
  auto mapped = MappedFile::open(path);
  ASSERT_TRUE(mapped.has_value());
  EXPECT_EQ(mapped->bytes().size(), 5u);
  MappedFile moved = std::move(*mapped);
  EXPECT_EQ(static_cast<char>(moved.bytes()[4]), 'o');
  EXPECT_FALSE(read_file("/proc/self/status", 1 << 20).value().empty());  // says that it has 0 bytes
  ASSERT_TRUE(check_writable(path).has_value());
  EXPECT_FALSE(check_writable(testing::TempDir() + "none/file").has_value());
  EXPECT_EQ(check_writable("/dev/null").error().code, Code::kInvalidArgument);
  EXPECT_EQ(write_file("/dev/null", "x").error().code, Code::kInvalidArgument);
  ASSERT_TRUE(write_file(path, "").has_value());
  EXPECT_EQ(MappedFile::open(path).value().bytes().size(), 0u);
}

}  // namespace
}  // namespace lathe::base
