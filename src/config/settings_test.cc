#include "config/settings_json.h"

#include <gtest/gtest.h>

namespace lathe::config {
namespace {

SettingRegistry registry() {
  SettingRegistry out;
  out.declare({.name = "engine.threads",
               .type = SettingType::kInt,
               .unit = "threads",
               .default_value = int64_t{4},
               .min = 1,
               .max = 64,
               .choices = {},
               .cost = SettingCost::kRestart,
               .help = "Worker threads.",
               .aliases = {"t"}});
  out.declare({"engine.cache_bytes", SettingType::kInt, "bytes", int64_t{1} << 30, 0, {}, {}, SettingCost::kReload, "Memory for caches.", {}});
  out.declare({"sampling.temperature", SettingType::kNumber, "", 1.0, 0, 100, {}, SettingCost::kHot, "Sampling temperature.", {}});
  out.declare({"engine.dtype", SettingType::kChoice, "", std::string("fast"), {}, {}, {"fast", "float32"}, SettingCost::kReload, "Precision.", {}});
  out.declare({"engine.fallback", SettingType::kBool, "", true, {}, {}, {}, SettingCost::kReload, "Allow fallbacks.", {}});
  SettingSpec share{"sampling.top-p", SettingType::kNumber, "", 1.0, 0, 1, {}, SettingCost::kHot, "Sum of probability.", {}};
  share.min_end = RangeEnd::kOpen;
  share.also = -1;
  out.declare(std::move(share));
  SettingSpec least{"sampling.min-p", SettingType::kNumber, "", 0.0, 0, 1, {}, SettingCost::kHot, "Share of the best.", {}};
  least.max_end = RangeEnd::kOpen;
  out.declare(std::move(least));
  out.reserve_environment("LATHE_TEST_DATA");
  return out;
}

void expect_parts(const Result<void>& result, std::initializer_list<std::string_view> parts) {
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Code::kInvalidArgument);
  const std::string& message = result.error().message;
  for (const std::string_view part : parts) EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
}

TEST(Settings, LaterOriginsWinWhateverTheOrder) {
  const SettingRegistry declared = registry();
  Settings settings(declared);
  EXPECT_EQ(settings.get_int("engine.threads"), 4);
  EXPECT_EQ(settings.origin("engine.threads"), SettingOrigin::kDefault);
  ASSERT_TRUE(settings.apply_flag("engine.threads", "8").has_value());
  const char* const variables[] = {"LATHE_ENGINE_THREADS=6", "LATHE_SAMPLING_TEMPERATURE=0.5", "HOME=/x", "LATHE_TEST_DATA=../shared"};
  ASSERT_TRUE(settings.apply_environment(variables).has_value());
  ASSERT_TRUE(
      apply_settings(settings, *parse_json(R"({"engine":{"threads":2,"fallback":false},"sampling.temperature":0.25})"), "s.json").has_value());
  EXPECT_EQ(settings.get_int("engine.threads"), 8);
  EXPECT_EQ(settings.place("engine.threads"), "flag --engine.threads");
  EXPECT_EQ(settings.get_number("sampling.temperature"), 0.5);
  EXPECT_EQ(settings.place("sampling.temperature"), "environment LATHE_SAMPLING_TEMPERATURE");
  EXPECT_FALSE(settings.get_bool("engine.fallback"));
  EXPECT_EQ(settings.place("engine.fallback"), "file s.json");
  EXPECT_EQ(settings.get_string("engine.dtype"), "fast");
  EXPECT_EQ(*settings_json(settings).find("engine.threads"), *parse_json(R"({"value":8,"origin":"flag","place":"flag --engine.threads"})"));
}

TEST(Settings, WrongValuesAndUnknownNamesAreErrors) {
  const SettingRegistry declared = registry();
  Settings settings(declared);
  expect_parts(settings.apply_flag("sampling.temperature", "-1"), {"--sampling.temperature", "-1", "from 0 to 100"});
  expect_parts(settings.apply_flag("sampling.temperature", "nan"), {"nan"});
  expect_parts(settings.apply_flag("engine.threads", "4x"), {"'4x'", "an integer from 1 to 64 (threads)"});
  expect_parts(settings.apply_flag("engine.threads", ""), {"''"});
  expect_parts(settings.apply_flag("engine.dtype", "bf8"), {"'bf8'", "fast, float32"});
  expect_parts(settings.apply_flag("engine.fallback", "maybe"), {"'maybe'", "true or false"});
  expect_parts(settings.apply_flag("engine.none", "1"), {"engine.none"});
  const char* const unknown[] = {"LATHE_ENGINE_THREDS=6"};
  expect_parts(settings.apply_environment(unknown), {"LATHE_ENGINE_THREDS"});
  expect_parts(apply_settings(settings, *parse_json(R"({"engine":{"threds":2}})"), "s.json"), {"s.json", "engine.threds"});
  expect_parts(apply_settings(settings, *parse_json(R"({"nonsense":{}})"), "s.json"), {"s.json", "nonsense"});
  expect_parts(apply_settings(settings, *parse_json(R"({"engine":{"nonsense":{}}})"), "s.json"), {"s.json", "engine.nonsense"});
  expect_parts(apply_settings(settings, *parse_json(R"({"engine":7})"), "s.json"), {"s.json", "engine is 7", "an object"});
  EXPECT_TRUE(apply_settings(settings, *parse_json(R"({"engine":{}})"), "s.json").has_value());
  expect_parts(apply_settings(settings, *parse_json(R"({"engine":{"threads":"2"}})"), "s.json"), {"s.json", "engine.threads", "\"2\""});
  expect_parts(apply_settings(settings, *parse_json(R"({"engine":{"threads":2.5}})"), "s.json"), {"2.5"});
  expect_parts(apply_settings(settings, *parse_json("[]"), "s.json"), {"s.json", "an array"});
}

TEST(Settings, RangesMayBeOpenOrHaveOneMoreValue) {
  const SettingRegistry declared = registry();
  Settings settings(declared);
  for (const char* good : {"1", "0.5", "1e-300", "-1"}) EXPECT_TRUE(settings.apply_flag("sampling.top-p", good).has_value()) << good;
  for (const char* bad : {"0", "-0", "1.0000001", "-0.5", "nan", "inf"}) {
    expect_parts(settings.apply_flag("sampling.top-p", bad), {"expected -1 or a number of more than 0 and at most 1"});
  }
  for (const char* good : {"0", "-0", "0.999999"}) EXPECT_TRUE(settings.apply_flag("sampling.min-p", good).has_value()) << good;
  for (const char* bad : {"1", "-1e-9"}) expect_parts(settings.apply_flag("sampling.min-p", bad), {"a number from 0 to less than 1"});
  const Json schema = settings_schema(declared);
  const Json::Array& list = schema.find("settings")->as_array();
  EXPECT_EQ(*list[5].find("min_excluded"), Json(true));
  EXPECT_EQ(list[5].find("max_excluded"), nullptr);
  EXPECT_EQ(*list[5].find("also"), Json(-1.0));
  EXPECT_EQ(*list[6].find("max_excluded"), Json(true));
}

TEST(Settings, LimitsOfIntegersAreIntegers) {
  SettingRegistry declared;
  declared.declare({"seed", SettingType::kInt, "", int64_t{0}, 0, 9.2e18, {}, SettingCost::kHot, "Seed.", {}});
  Settings settings(declared);
  EXPECT_TRUE(settings.apply_flag("seed", "9200000000000000000").has_value());
  expect_parts(settings.apply_flag("seed", "9200000000000000001"), {"from 0 to 9200000000000000000"});
}

TEST(Settings, EmptyVariablesAreUnset) {
  const SettingRegistry declared = registry();
  Settings settings(declared);
  const char* const variables[] = {"LATHE_ENGINE_THREADS=", "LATHE_ENGINE_DTYPE="};
  ASSERT_TRUE(settings.apply_environment(variables).has_value());
  EXPECT_EQ(settings.origin("engine.threads"), SettingOrigin::kDefault);
}

TEST(Settings, SizesTakeSuffixes) {
  const SettingRegistry declared = registry();
  Settings settings(declared);
  ASSERT_TRUE(settings.apply_flag("engine.cache_bytes", "3G").has_value());
  EXPECT_EQ(settings.get_int("engine.cache_bytes"), int64_t{3} << 30);
  ASSERT_TRUE(settings.apply_flag("engine.cache_bytes", "12").has_value());
  EXPECT_EQ(settings.get_int("engine.cache_bytes"), 12);
  expect_parts(settings.apply_flag("engine.cache_bytes", "99999999999T"), {"99999999999T"});
  expect_parts(settings.apply_flag("engine.threads", "1K"), {"'1K'"});
}

TEST(Settings, SchemaListsEverything) {
  const Json schema = settings_schema(registry());
  ASSERT_EQ(schema.find("settings")->as_array().size(), 7u);
  const Json& first = schema.find("settings")->as_array()[0];
  EXPECT_EQ(first, *parse_json(R"({"name":"engine.threads","type":"int","unit":"threads","default":4,"min":1,"max":64,"cost":"restart",
    "help":"Worker threads.","flag":"--engine.threads","environment":"LATHE_ENGINE_THREADS","aliases":["t"]})"));
  EXPECT_EQ(registry().find("engine.cache_bytes")->environment(), "LATHE_ENGINE_CACHE_BYTES");
  EXPECT_EQ(registry().find("engine.cache_bytes")->flag(), "--engine.cache-bytes");
}

TEST(SettingsDeathTest, WrongDeclarations) {
  const auto twice = [] {
    SettingRegistry declared = registry();
    declared.declare({"engine.fallback", SettingType::kBool, "", true, {}, {}, {}, SettingCost::kHot, "Again.", {}});
  };
  EXPECT_DEATH(twice(), "twice");
  const auto out_of_range = [] {
    SettingRegistry declared;
    declared.declare({"x", SettingType::kInt, "", int64_t{0}, 1, 2, {}, SettingCost::kHot, "Zero.", {}});
  };
  EXPECT_DEATH(out_of_range(), "x is 0");
}

}  // namespace
}  // namespace lathe::config
