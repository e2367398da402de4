// Goal: errors carry code, message and context through the TRY macros.
#include "base/result.h"

#include <gtest/gtest.h>

namespace lathe::base {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return err(Code::kInvalidArgument, "value {} is odd", value);
  return value / 2;
}
Result<int> quarter(int value) {
  LATHE_TRY(const int h, half(value));
  LATHE_TRY(const int q, half(h));
  return q;
}
Result<void> check(int value) {
  LATHE_TRY_VOID(half(value));
  return {};
}

TEST(Result, TryPassesValuesAndErrors) {
  EXPECT_EQ(quarter(8).value(), 2);
  ASSERT_FALSE(quarter(6).has_value());
  EXPECT_EQ(quarter(6).error().message, "value 3 is odd");
  EXPECT_EQ(quarter(6).error().code, Code::kInvalidArgument);
  EXPECT_FALSE(check(3).has_value());
  EXPECT_TRUE(check(4).has_value());
}

TEST(Result, ContextAndExitCodes) {
  EXPECT_EQ(half(1).error().with_context("reading x").message, "reading x: value 1 is odd");
  EXPECT_EQ(exit_code(Code::kInvalidArgument), 2);
  EXPECT_EQ(exit_code(Code::kDataLoss), 1);
  EXPECT_EQ(code_name(Code::kDataLoss), "data_loss");
}

// What a file or peer put into a message cannot start a second line or reach the terminal as a control sequence.
TEST(Result, MessagesAreOneLine) {
  const std::string hostile("a\nb\r\t\x1b[31m\x7f\0z", 13);
  const Result<int> failed = err(Code::kInvalidArgument, "key '{}' is unknown", hostile);
  EXPECT_EQ(failed.error().message, "key 'a\\nb\\r\\t\\x1b[31m\\x7f\\x00z' is unknown");
  EXPECT_EQ(failed.error().with_context("x\ny").message.substr(0, 6), "x\\ny: ");
  EXPECT_EQ(one_line("Füchse 狐"), "Füchse 狐");
}

}  // namespace
}  // namespace lathe::base
