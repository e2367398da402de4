#include "evaluate/pictures.h"

#include <gtest/gtest.h>

namespace lathe::evaluate {
namespace {

constexpr TokenId kP = 9;

TEST(Pictures, PlaceholdersGrowToTheRows) {
  std::vector<TokenId> ids = {1, kP, 2, kP, kP, 3};
  const std::vector<int64_t> rows = {2, 3, 1};
  ASSERT_TRUE(expand_placeholders(ids, kP, rows));
  EXPECT_EQ(ids, (std::vector<TokenId>{1, kP, kP, 2, kP, kP, kP, kP, 3}));
  EXPECT_EQ(picture_places(ids, kP, rows).value(), (std::vector<int64_t>{1, 4, 7}));
}

TEST(Pictures, CountsMustMatch) {
  std::vector<TokenId> ids = {1, kP, 2};
  const std::vector<int64_t> two = {1, 1}, none;
  EXPECT_NE(expand_placeholders(ids, kP, two).error().message.find("2 pictures were given, the prompt has places for 1"), std::string::npos);
  EXPECT_FALSE(expand_placeholders(ids, kP, none));
  EXPECT_FALSE(expand_placeholders(ids, -1, two));
  EXPECT_EQ(ids, (std::vector<TokenId>{1, kP, 2}));
  // Too few placeholders in a run, none at all, and some left over.
  EXPECT_NE(picture_places(ids, kP, std::vector<int64_t>{2}).error().message.find("picture 0 has 2 rows"), std::string::npos);
  EXPECT_NE(picture_places(ids, kP, two).error().message.find("picture 1 has 1 rows"), std::string::npos);
  EXPECT_NE(picture_places(ids, kP, none).error().message.find("1 placeholders of id 9 more"), std::string::npos);
  EXPECT_TRUE(picture_places(std::vector<TokenId>{1, 2}, kP, none).value().empty());
  EXPECT_TRUE(picture_places(std::vector<TokenId>{-1, 2}, -1, none).value().empty());
}

}  // namespace
}  // namespace lathe::evaluate
