// Goal: the façade keeps order and exact integers, refuses what is not strict JSON, and writes what it read.
#include "config/json.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace lathe::config {
namespace {

TEST(Json, RoundTrip) {
  const std::string text = R"({"z":[1,-2,9223372036854775807,1.5,true,null],"a":{"k":"\u00e9\ud83d\ude00\n\"\\"}})";
  const auto json = parse_json(text);
  ASSERT_TRUE(json.has_value()) << json.error().message;
  EXPECT_EQ(json->as_object()[0].first, "z");
  EXPECT_EQ(json->find("z")->as_array()[2].as_int(), INT64_MAX);
  EXPECT_EQ(json->find("a")->find("k")->as_string(), "é😀\n\"\\");
  EXPECT_EQ(parse_json(json->dump()).value(), *json);
  EXPECT_EQ(json->find("a")->dump({.ensure_ascii = true}), R"({"k":"\u00e9\ud83d\ude00\n\"\\"})");
  EXPECT_EQ(parse_json("[1,{}]").value().dump({.indent = 1}), "[\n 1,\n {}\n]");
  EXPECT_EQ(Json(1.0).dump(), "1.0");
}

TEST(Json, DoublesAreRoundedRight) {
  for (const char* text : {"1e23", "9007199254740993.0", "0.1", "123456789012345678901234567890", "2.2250738585072011e-308", "4.9e-324",
                           "1.7976931348623157e308", "-1e-400"}) {
    EXPECT_EQ(parse_json(text).value().as_double(), std::strtod(text, nullptr)) << text;
  }
  const std::string digits = std::string(100, '1') + "0";
  EXPECT_EQ(parse_json("[" + digits + ",1]").value().as_array()[0].as_double(), std::strtod(digits.c_str(), nullptr));
}

TEST(Json, Errors) {
  for (const char* bad : {"", "{", "[1,]", "{\"a\":1,\"a\":2}", "[1] x", "nan", "\"\xff\"", "{'a':1}", "01", "9e308", "-1e999"}) {
    const auto json = parse_json(bad);
    ASSERT_FALSE(json.has_value()) << bad;
    EXPECT_EQ(json.error().code, Code::kInvalidArgument);
  }
  EXPECT_NE(parse_json("{\"a\":1,\n\"a\":2}").error().message.find("duplicate key 'a'"), std::string::npos);
  EXPECT_FALSE(parse_json(std::string(100, '[') + std::string(100, ']')).has_value());
  EXPECT_NE(parse_json("[1,\n 2,\n x]").error().message.find("line 3"), std::string::npos);
}

TEST(Json, AccessorsCheckTheKind) {
  const Json array = Json::Array{1, "two"};
  EXPECT_DEATH((void)array.as_object(), "an array, not an object");
  EXPECT_DEATH((void)array.as_array()[0].as_string(), "an integer, not a string");
  EXPECT_DEATH((void)array.as_array()[1].as_double(), "a string, not a number");
  EXPECT_DEATH((void)Json().as_bool(), "null, not a boolean");
  EXPECT_DEATH((void)Json(1.5).as_int(), "a number, not an integer");
}

}  // namespace
}  // namespace lathe::config
