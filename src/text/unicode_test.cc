#include "text/unicode.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "text/split_regex.h"
#include "text/utf8.h"

namespace lathe::text {
namespace {

std::string utf8(std::u32string_view codes) {
  std::string out;
  for (const char32_t code : codes) append_utf8(out, code);
  return out;
}

TEST(Utf8, StepsFollowTheTableOfWellFormedSequences) {
  const auto step = [](std::string_view text) {
    const Utf8Step found = utf8_step(text, 0);
    return std::pair(found.kind, found.length);
  };
  EXPECT_EQ(step("a"), std::pair(Utf8::kValid, size_t{1}));
  EXPECT_EQ(step("\xC3\xA9"), std::pair(Utf8::kValid, size_t{2}));
  EXPECT_EQ(step("\xF0\x9F\x98\x80"), std::pair(Utf8::kValid, size_t{4}));
  EXPECT_EQ(step("\x80"), std::pair(Utf8::kInvalid, size_t{1}));
  EXPECT_EQ(step("\xC0\x80"), std::pair(Utf8::kInvalid, size_t{1})) << "overlong";
  EXPECT_EQ(step("\xE0\x80\x80"), std::pair(Utf8::kInvalid, size_t{1})) << "overlong";
  EXPECT_EQ(step("\xED\xA0\x80"), std::pair(Utf8::kInvalid, size_t{1})) << "surrogate";
  EXPECT_EQ(step("\xF4\x90\x80\x80"), std::pair(Utf8::kInvalid, size_t{1})) << "above U+10FFFF";
  EXPECT_EQ(step("\xF5"), std::pair(Utf8::kInvalid, size_t{1}));
  EXPECT_EQ(step("\xE2\x82"), std::pair(Utf8::kTruncated, size_t{2}));
  EXPECT_EQ(step("\xF0\x9F\x98x"), std::pair(Utf8::kInvalid, size_t{3}));
}

TEST(Utf8, ReplacesMaximalSubparts) {
  // The example of the Unicode standard, table 3-8.
  EXPECT_EQ(replace_invalid_utf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"), "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
  EXPECT_EQ(replace_invalid_utf8("\xC3"), "\uFFFD");
  EXPECT_FALSE(is_valid_utf8("a\xC3"));
  EXPECT_TRUE(is_valid_utf8("a\u00E9\U0001F600"));
}

TEST(Utf8, EncodesAndDecodesEveryCodePoint) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    append_utf8(text, code);
    const Decoded decoded = decode_utf8(text, 0);
    ASSERT_EQ(decoded.code, code);
    ASSERT_EQ(decoded.length, text.size());
    ASSERT_EQ(decode_utf8_before("x" + text, text.size() + 1).code, code);
    ASSERT_TRUE(is_valid_utf8(text));
  }
}

TEST(Unicode, KnowsCategoriesAndFlags) {
  EXPECT_EQ(properties('a').category(), kLl);
  EXPECT_EQ(properties(0x4F60).category(), kLo);
  EXPECT_EQ(properties(0xE000).category(), kCo);
  EXPECT_EQ(properties(0xFFFFD).category(), kCo);
  EXPECT_EQ(properties(0xFFFFE).category(), kCn);
  EXPECT_EQ(properties(0x10FFFF).category(), kCn);
  EXPECT_EQ(properties(0xE0001).category(), kCf);
  EXPECT_EQ(properties(0xE0100).category(), kMn);
  EXPECT_EQ(properties(0xE01F0).category(), kCn);
  EXPECT_EQ(properties(0x40000).category(), kCn);
  EXPECT_EQ(properties(0x1C89).category(), kLu) << "new in 16.0";
  EXPECT_TRUE(properties(0x85).white_space());
  EXPECT_FALSE(properties(0x180E).white_space());
  EXPECT_TRUE(properties('_').word());
  EXPECT_TRUE(properties(0x200D).word());
  EXPECT_FALSE(properties('-').word());
}

TEST(Unicode, Lowers) {
  std::string out;
  for (const char32_t code : U"AzÀ\u0130\u03A3\U00010400!") {
    if (code != 0) append_lower(out, code);
  }
  EXPECT_EQ(out, utf8(U"azài\u0307\u03C3\U00010428!"));
}

struct NormalCase {
  std::u32string_view source, nfc, nfd, nfkc, nfkd;
};

TEST(Unicode, NormalizesPublishedExamples) {
  // Unicode Standard Annex 15 (figures 3 to 6), and Hangul.
  const NormalCase cases[] = {
      {U"\u212B", U"\u00C5", U"A\u030A", U"\u00C5", U"A\u030A"},
      {U"\u2126", U"\u03A9", U"\u03A9", U"\u03A9", U"\u03A9"},
      {U"\u1E0B\u0323", U"\u1E0D\u0307", U"d\u0323\u0307", U"\u1E0D\u0307", U"d\u0323\u0307"},
      {U"q\u0307\u0323", U"q\u0323\u0307", U"q\u0323\u0307", U"q\u0323\u0307", U"q\u0323\u0307"},
      {U"\uFB01", U"\uFB01", U"\uFB01", U"fi", U"fi"},
      {U"2\u2075", U"2\u2075", U"2\u2075", U"25", U"25"},
      {U"\u1E9B\u0323", U"\u1E9B\u0323", U"\u017F\u0323\u0307", U"\u1E69", U"s\u0323\u0307"},
      {U"\u0958", U"\u0915\u093C", U"\u0915\u093C", U"\u0915\u093C", U"\u0915\u093C"},  // excluded from composition
      {U"\uD55C\u1100\u1161\u11A8", U"\uD55C\uAC01", U"\u1112\u1161\u11AB\u1100\u1161\u11A8", U"\uD55C\uAC01",
       U"\u1112\u1161\u11AB\u1100\u1161\u11A8"},
      {U"\u09C7\u09BE", U"\u09CB", U"\u09C7\u09BE", U"\u09CB", U"\u09C7\u09BE"},  // starters that compose
      {U"a\u0315\u0300\u05AE\u0300b", U"\u00E0\u05AE\u0300\u0315b", U"a\u05AE\u0300\u0300\u0315b", U"\u00E0\u05AE\u0300\u0315b",
       U"a\u05AE\u0300\u0300\u0315b"},
      {U"\u0301x", U"\u0301x", U"\u0301x", U"\u0301x", U"\u0301x"},
      {U"\U000113C2\U000113C5", U"\U000113C5\U000113C2", U"\U000113C2\U000113C2\U000113C2", U"\U000113C5\U000113C2",
       U"\U000113C2\U000113C2\U000113C2"},
  };
  for (const NormalCase& c : cases) {
    SCOPED_TRACE(utf8(c.source));
    EXPECT_EQ(normalize(utf8(c.source), Form::kNfd), utf8(c.nfd));
    EXPECT_EQ(normalize(utf8(c.source), Form::kNfkc), utf8(c.nfkc));
    EXPECT_EQ(normalize(utf8(c.source), Form::kNfkd), utf8(c.nfkd));
    EXPECT_EQ(normalize(utf8(c.source), Form::kNfc), utf8(c.nfc));
  }
}

TEST(Unicode, NormalFormsAgreeWithEachOther) {
  std::mt19937 random(11);
  std::vector<char32_t> pool = {'a', 'e', 's', 0x1100, 0x1161, 0x11A8, 0xAC00, 0x9C7, 0x9BE, 0x1025, 0x102E};
  for (const Decomposition& entry : kCanonicalDecompositions) pool.push_back(entry.code);
  for (const CombiningRange& range : kCombiningRanges) pool.insert(pool.end(), {range.first, range.last});
  for (int round = 0; round < 20'000; ++round) {
    std::u32string codes;
    for (size_t n = 1 + random() % 8; n > 0; --n) codes.push_back(pool[random() % pool.size()]);
    const std::string text = utf8(codes);
    const std::string nfc = normalize(text, Form::kNfc);
    const std::string nfd = normalize(text, Form::kNfd);
    ASSERT_EQ(normalize(nfc, Form::kNfc), nfc) << text;
    ASSERT_EQ(normalize(nfd, Form::kNfd), nfd) << text;
    ASSERT_EQ(normalize(nfd, Form::kNfc), nfc) << text;
    ASSERT_EQ(normalize(nfc, Form::kNfd), nfd) << text;
    ASSERT_EQ(normalize(normalize(text, Form::kNfkc), Form::kNfkd), normalize(text, Form::kNfkd)) << text;
  }
}

TEST(Unicode, LongRunsOfMarksStayFast) {
  std::string text = "e";
  for (int i = 0; i < 300'000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0323";
  EXPECT_EQ(normalize(text, Form::kNfc).size(), text.size() - 1 - 2 + 3);  // e and the first dot below become U+1EB9
}

/// All code points that the translated pattern matches, by PCRE2 with its own, older tables.
std::vector<bool> matched(const std::string& pattern) {
  std::string text;
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code < 0xD800 || code >= 0xE000) append_utf8(text, code);
  }
  std::vector<bool> out(0x110000);
  auto regex = Regex::compile(pattern);
  EXPECT_TRUE(regex) << regex.error().message;
  if (!regex) return out;
  Regex::Matcher matcher(*regex);
  for (auto match = matcher.find(text, 0); match && *match; match = matcher.find(text, (*match)->end)) {
    for (size_t at = (*match)->begin; at < (*match)->end;) {
      const Decoded decoded = decode_utf8(text, at);
      out[decoded.code] = true;
      at += decoded.length;
    }
  }
  return out;
}

template <class Predicate>
void expect_same_set(const std::string& pattern, Predicate wanted) {
  const std::vector<bool> found = matched(pattern);
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    ASSERT_EQ(found[code], wanted(code)) << pattern << " U+" << std::hex << static_cast<uint32_t>(code);
  }
}

TEST(Unicode, PropertiesOfPatternsAreThoseOfTheTables) {
  const std::pair<const char*, CategoryMask> categories[] = {
      {"L", kLetterMask},    {"N", kNumberMask}, {"M", kMarkMask},  {"P", kPunctuationMask}, {"S", kSymbolMask},
      {"Z", kSeparatorMask}, {"Lu", 1u << kLu},  {"Ll", 1u << kLl}, {"Lm", 1u << kLm},       {"Lo", 1u << kLo},
      {"Nd", 1u << kNd},     {"Mn", 1u << kMn},  {"So", 1u << kSo}, {"Cf", 1u << kCf},       {"Uppercase_Letter", 1u << kLu},
      {"Mc", 1u << kMc},     {"Po", 1u << kPo},  {"Sc", 1u << kSc}, {"Sk", 1u << kSk},       {"Sm", 1u << kSm},
      {"Nl", 1u << kNl},     {"No", 1u << kNo},  {"Pc", 1u << kPc}, {"Lt", 1u << kLt},
  };
  for (const auto& [name, mask] : categories) {
    const CategoryMask bits = mask;
    expect_same_set("\\p{" + std::string(name) + "}+", [&](char32_t code) { return properties(code).in(bits); });
  }
  expect_same_set("[^\\p{L}]+", [](char32_t code) { return !properties(code).in(kLetterMask); });
  expect_same_set("\\P{L}+", [](char32_t code) { return !properties(code).in(kLetterMask); });
  expect_same_set("[\\P{L}x]+", [](char32_t code) { return !properties(code).in(kLetterMask) || code == 'x'; });
  expect_same_set("\\s+", [](char32_t code) { return properties(code).white_space(); });
  expect_same_set("[\\S]+", [](char32_t code) { return !properties(code).white_space(); });
}

}  // namespace
}  // namespace lathe::text
