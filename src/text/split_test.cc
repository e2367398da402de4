#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "config/json.h"
#include "text/pretokenizer.h"
#include "text/unicode.h"

namespace lathe::text {
namespace {

std::vector<std::string> by_scanner(Scanner scanner, std::string_view text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = scan_piece(scanner, text, at);
    if (end <= at || end > text.size()) {
      ADD_FAILURE() << "piece [" << at << ", " << end << ") of " << text.size();
      return out;
    }
    out.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

std::vector<std::string> by_regex(Regex::Matcher& matcher, std::string_view text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const auto match = matcher.find(text, at);
    if (!match || !*match || (*match)->begin != at) {
      ADD_FAILURE() << "no match at " << at;
      return out;
    }
    at = (*match)->end;
    out.emplace_back(text.substr((*match)->begin, at - (*match)->begin));
  }
  return out;
}

std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> kParts = {
      " ",      "  ",     "\n", "\r", "\r\n", "\t",     "\v",      "\u00A0", "\u0085", "\u2028",     "\u3000", "\u180E", "a",      "B",
      "s",      "S",      "'",  "'s", "'LL",  "'re",    "'\u017F", "'V",     "e",      "l",          "\u212A", "1",      "23",     "\u00B2",
      "\u0664", "\u2167", ".",  "!",  "_",    "\u00E9", "e\u0301", "\u0301", "\u4F60", "\U0001F600", "\u200D", "\uFFFD", "\u0378", "\uE000"};
  std::string text;
  for (size_t n = 1 + random() % 24; n > 0; --n) {
    if (random() % 8 == 0) {
      // Any code point that is no surrogate.
      const char32_t code = static_cast<char32_t>(random() % 0x110000);
      append_utf8(text, code >= 0xD800 && code < 0xE000 ? U' ' : code);
    } else {
      text += kParts[random() % kParts.size()];
    }
  }
  return text;
}

TEST(SplitScanner, EqualsTheRegularExpression) {
  std::mt19937 random(2024);
  for (const std::string_view pattern : {kGpt2Pattern, kLlama3Pattern, kQwen2Pattern}) {
    const Scanner scanner = scanner_for(pattern);
    ASSERT_NE(scanner, Scanner::kNone);
    auto regex = Regex::compile(pattern);
    ASSERT_TRUE(regex) << regex.error().message;
    Regex::Matcher matcher(*regex);
    for (int round = 0; round < 60'000; ++round) {
      const std::string text = random_text(random);
      ASSERT_EQ(by_scanner(scanner, text), by_regex(matcher, text)) << "pattern " << pattern << "\ntext " << config::Json(text).dump();
    }
  }
}

TEST(SplitScanner, OtherSpellingsHaveNone) {
  EXPECT_EQ(scanner_for(std::string(kLlama3Pattern) + " "), Scanner::kNone);
  EXPECT_EQ(scanner_for(""), Scanner::kNone);
}

TEST(SplitScanner, KnownPieces) {
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(by_scanner(Scanner::kLlama3, "It's 12345 days\n\n  x"), (Pieces{"It", "'s", " ", "123", "45", " days", "\n\n", " ", " x"}));
  EXPECT_EQ(by_scanner(Scanner::kQwen2, "a 12"), (Pieces{"a", " ", "1", "2"}));
  EXPECT_EQ(by_scanner(Scanner::kGpt2, "I'LL we'll 12 !!"), (Pieces{"I", "'", "LL", " we", "'ll", " 12", " !!"}));
}

std::string error_of(std::string_view pattern) {
  const auto regex = Regex::compile(pattern);
  return regex ? "no error" : regex.error().message;
}

TEST(SplitRegex, RefusesWhatPcre2WouldReadOtherwise) {
  EXPECT_NE(error_of("[a-z&&[b]&&[c]]").find("intersection of two simple classes"), std::string::npos) << error_of("[a-z&&[b]&&[c]]");
  EXPECT_NE(error_of("[a[bc]]").find("class inside a class"), std::string::npos);
  EXPECT_NE(error_of("a{1,3}+").find("'{1,3}+'"), std::string::npos);
  EXPECT_NE(error_of("\\h").find("'\\h'"), std::string::npos);
  EXPECT_NE(error_of("\\p{Nonsense}").find("'Nonsense'"), std::string::npos);
  EXPECT_NE(error_of("a(?i)b").find("start of the pattern"), std::string::npos);
  EXPECT_NE(error_of("(?x: a)").find("(?x:"), std::string::npos);
  EXPECT_NE(error_of("[a").find("unfinished class"), std::string::npos);
  EXPECT_NE(error_of("(a").find("parenthes"), std::string::npos) << error_of("(a");
  EXPECT_NE(error_of("a\\").find("backslash"), std::string::npos);
}

TEST(SplitRegex, ClassIntersectionIsALookAhead) {
  auto regex = Regex::compile("[\\p{L}&&[^\\p{Han}]]+");
  ASSERT_TRUE(regex) << regex.error().message;
  Regex::Matcher matcher(*regex);
  const std::string text = "\u4F60ab&\u4F60";
  const auto match = matcher.find(text, 0);
  ASSERT_TRUE(match && *match);
  EXPECT_EQ(text.substr((*match)->begin, (*match)->end - (*match)->begin), "ab");
}

TEST(SplitRegex, EndlessBacktrackingIsAnError) {
  auto regex = Regex::compile("(?:a+)+\\z");
  ASSERT_TRUE(regex);
  Regex::Matcher matcher(*regex);
  const auto match = matcher.find(std::string(200, 'a') + "c", 0);
  ASSERT_FALSE(match);
  EXPECT_EQ(match.error().code, Code::kResourceExhausted);
}

std::vector<std::string> pieces(std::string_view json, std::string_view text) {
  const auto parsed = config::parse_json(json);
  EXPECT_TRUE(parsed);
  auto pretokenizer = Pretokenizer::from_json(*parsed);
  if (!pretokenizer) return {pretokenizer.error().message};
  Pretokenizer::Scratch scratch;
  std::vector<std::string> out;
  const auto done = pretokenizer->split(text, scratch, [&](std::string_view piece) { out.emplace_back(piece); });
  if (!done) out.push_back(done.error().message);
  return out;
}

std::string split_json(const std::string& behavior, const std::string& invert) {
  return R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "[-+]"}, "behavior": ")" + behavior + R"(", "invert": )" +
         invert + R"(}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})";
}

TEST(Pretokenizer, Behaviours) {
  using Pieces = std::vector<std::string>;
  constexpr std::string_view kText = "-a-+bc+-";
  EXPECT_EQ(pieces(split_json("Isolated", "false"), kText), (Pieces{"-", "a", "-", "+", "bc", "+", "-"}));
  EXPECT_EQ(pieces(split_json("Removed", "false"), kText), (Pieces{"a", "bc"}));
  EXPECT_EQ(pieces(split_json("Removed", "true"), kText), (Pieces{"-", "-", "+", "+", "-"}));
  EXPECT_EQ(pieces(split_json("MergedWithPrevious", "false"), kText), (Pieces{"-", "a-", "+", "bc+", "-"}));
  EXPECT_EQ(pieces(split_json("MergedWithNext", "false"), kText), (Pieces{"-a", "-", "+bc", "+", "-"}));
  EXPECT_EQ(pieces(split_json("Contiguous", "false"), kText), (Pieces{"-", "a", "-+", "bc", "+-"}));
}

TEST(Pretokenizer, StepsAfterByteLevelSeeItsCharacters) {
  // As in Falcon: a space is the letter U+0120 there, so it stays with what precedes the digits.
  const std::string json =
      R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}, {"type": "Digits", "individual_digits": false}]})";
  EXPECT_EQ(pieces(json, "a \u00E9 12"), (std::vector<std::string>{"a \u00E9 ", "12"}));
}

TEST(Pretokenizer, NamesWhatItDoesNotKnow) {
  EXPECT_NE(pieces(R"({"type": "Metaspace"})", "a")[0].find("'Metaspace'"), std::string::npos);
  EXPECT_NE(pieces(R"({"type": "Whitespace"})", "a")[0].find("0 ByteLevel steps"), std::string::npos);
  EXPECT_NE(pieces(split_json("Sideways", "false"), "a")[0].find("'Sideways'"), std::string::npos);
  EXPECT_NE(pieces(split_json("Isolated", "7"), "a")[0].find("'invert' must be a boolean"), std::string::npos);
}

}  // namespace
}  // namespace lathe::text
