#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/limits.h"
#include "text/tokenizer_test_util.h"
#include "text/utf8.h"

namespace lathe::text {
namespace {

using testing::joined;
using testing::TokenizerFile;

std::unique_ptr<Tokenizer> builtin() {
  auto tokenizer = Tokenizer::load(LATHE_SOURCE_DIR "/data/builtin/tokenizer.json");
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return std::move(*tokenizer);
}

TEST(Tokenizer, BuiltinFile) {
  const auto tokenizer = builtin();
  EXPECT_EQ(tokenizer->pretokenizer().scanner_steps(), 1);
  EXPECT_EQ(tokenizer->pretokenizer().regex_steps(), 0);
  const auto user = tokenizer->find("<|user|>");
  ASSERT_TRUE(user);
  EXPECT_TRUE(tokenizer->is_special(*user));
  EXPECT_EQ(tokenizer->bytes(*user), "<|user|>");
  const auto ids = tokenizer->encode("<|user|>The cat, 12345 caf\u00E9!\n\n");
  ASSERT_TRUE(ids);
  // From the reference library.
  EXPECT_EQ(*ids, (std::vector<TokenId>{3551, 309, 1058, 11, 220, 16, 17, 18, 19, 20, 272, 1955, 127, 102, 1322}));
  EXPECT_EQ(tokenizer->decode(*ids), "<|user|>The cat, 12345 caf\u00E9!\n\n");
  EXPECT_EQ(tokenizer->decode(*ids, {.skip_special = true}), "The cat, 12345 caf\u00E9!\n\n");
}

TEST(Tokenizer, MergesAsStringsAndAsPairs) {
  TokenizerFile file;
  file.merge("a", "b");
  const int abc = file.merge("ab", "c");
  EXPECT_EQ(joined(*file.load(), file.load()->encode("abcab")), "abc|ab");
  file.merges[1] = config::Json(config::Json::Array{"ab", "c"});
  const auto tokenizer = file.load();
  EXPECT_EQ(tokenizer->encode("abc").value(), std::vector<TokenId>{abc});
  EXPECT_EQ(tokenizer->vocab_size(), 258);
  EXPECT_EQ(tokenizer->find("abc"), abc);
  EXPECT_EQ(tokenizer->find("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer->bytes(999), "");
  EXPECT_FALSE(tokenizer->is_defined(-1));
}

TEST(Tokenizer, IgnoreMergesTakesWholePieces) {
  TokenizerFile file;
  file.merge("a", "b");
  file.token("xab");
  EXPECT_EQ(joined(*file.load(), file.load()->encode("xab")), "x|ab");
  file.ignore_merges = true;
  EXPECT_EQ(joined(*file.load(), file.load()->encode("xab xab")), "xab| |x|ab");
}

TEST(Tokenizer, AddedTokensMatchLongestFirstAndAnywhere) {
  TokenizerFile file;
  file.add("<s>", 300);
  file.add("<s>x", 301);
  file.add("<|e|>", 302, R"("special": false, "normalized": false)");
  const auto tokenizer = file.load();
  EXPECT_EQ(joined(*tokenizer, tokenizer->encode("a<s>b<s>xx<<|e|>>")), "a|<s>|b|<s>x|x|<|<|e|>|>");
  EXPECT_EQ(tokenizer->vocab_size(), 303);
  EXPECT_FALSE(tokenizer->is_defined(299)) << "a hole";
  EXPECT_TRUE(tokenizer->is_added(302));
  EXPECT_FALSE(tokenizer->is_special(302));
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{'a', 300, 302, 299, 5000, -3, 'b'}, {.skip_special = true}), "a<|e|>b");
}

TEST(Tokenizer, AddedTokenFlags) {
  TokenizerFile file;
  file.add("<l>", 300, R"("special": true, "lstrip": true)");
  file.add("<r>", 301, R"("special": true, "rstrip": true)");
  file.add("word", 302, R"("single_word": true)");
  const auto tokenizer = file.load();
  EXPECT_EQ(joined(*tokenizer, tokenizer->encode("a \n<l> b <r> \u3000c")), "a|<l>| |b| |<r>|c");
  EXPECT_EQ(joined(*tokenizer, tokenizer->encode("word-word words")), "word|-|word| |w|o|r|d|s");
}

TEST(Tokenizer, NormalizedAddedTokensMatchAfterTheNormalizer) {
  TokenizerFile file;
  file.normalizer = TokenizerFile::parse(R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]})");
  file.add("ABC", 300, R"("normalized": true)");
  file.add("DEF", 301, R"("normalized": false)");
  const auto tokenizer = file.load();
  EXPECT_EQ(tokenizer->encode("abcABCDEFdef").value(), (std::vector<TokenId>{300, 300, 301, 'd', 'e', 'f'}));
  EXPECT_EQ(joined(*tokenizer, tokenizer->encode("E\u0301")), "\xC3|\xA9");
}

// Plain mode.

TEST(TokenizerMarked, SpecialTokensNeedLiteralBytes) {
  TokenizerFile file;
  file.add("<s>", 300);
  file.add("<s", 301);
  const auto tokenizer = file.load();
  const auto ids = [&](std::string_view text, std::vector<LiteralSpan> literal) {
    return joined(*tokenizer, tokenizer->encode_marked(text, literal));
  };
  EXPECT_EQ(ids("<s>", {}), "<|s|>");
  EXPECT_EQ(ids("<s>", {{0, 3}}), "<s>");
  EXPECT_EQ(ids("<s>", {{0, 2}}), "<s|>") << "the shorter token that is literal";
  EXPECT_EQ(ids("<s>", {{1, 3}}), "<|s|>");
  EXPECT_EQ(ids("<s>", {{0, 1}, {2, 3}}), "<|s|>");
  EXPECT_EQ(ids("<s><s><s>", {{0, 3}, {6, 9}}), "<s>|<|s|>|<s>");
  EXPECT_EQ(ids("<<s>", {{1, 4}}), "<|<s>");
  EXPECT_EQ(joined(*tokenizer, tokenizer->encode_plain("<s>")), "<|s|>");
  EXPECT_EQ(joined(*tokenizer, tokenizer->encode("<s>")), "<s>");
}

TEST(TokenizerMarked, TextIsTokenizedAsOne) {
  TokenizerFile file;
  file.merge("a", "b");
  const auto tokenizer = file.load();
  EXPECT_EQ(joined(*tokenizer, tokenizer->encode_marked("ab", std::vector<LiteralSpan>{{0, 1}})), "ab") << "a mark is no border";
}

TEST(TokenizerMarked, NoWayAroundThroughTheModel) {
  // The control token is also a word of the vocabulary and the result of merges: values must not reach it so.
  TokenizerFile file;
  file.ignore_merges = true;
  file.pre_tokenizer = TokenizerFile::parse(R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})");
  file.merge("/", "n");
  const int control = file.merge("/n", "o");
  file.add("/no", control);
  const auto tokenizer = file.load();
  EXPECT_EQ(tokenizer->encode("/no").value(), std::vector<TokenId>{control});
  EXPECT_EQ(joined(*tokenizer, tokenizer->encode_plain("/no")), "/n|o");
  EXPECT_EQ(tokenizer->encode_marked("/no", std::vector<LiteralSpan>{{0, 3}}).value(), std::vector<TokenId>{control});
}

TEST(TokenizerMarked, MarksPassThroughNormalization) {
  TokenizerFile file;
  file.normalizer = TokenizerFile::parse(
      R"({"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Replace", "pattern": {"String": "~"}, "content": "<s>"}]})");
  file.add("<s>", 300, R"("special": true, "normalized": true)");
  const auto tokenizer = file.load();
  // U+FF1C and U+FF1E are the full-width signs: NFKC makes a control token of them.
  const std::string wide = "\uFF1Cs\uFF1E";
  EXPECT_EQ(joined(*tokenizer, tokenizer->encode(wide)), "<s>");
  EXPECT_EQ(joined(*tokenizer, tokenizer->encode_plain(wide)), "<|s|>");
  EXPECT_EQ(joined(*tokenizer, tokenizer->encode_marked(wide, std::vector<LiteralSpan>{{0, wide.size()}})), "<s>");
  EXPECT_EQ(joined(*tokenizer, tokenizer->encode_marked(wide, std::vector<LiteralSpan>{{1, wide.size()}})), "<|s|>");
  EXPECT_EQ(joined(*tokenizer, tokenizer->encode_marked("~~", std::vector<LiteralSpan>{{0, 1}})), "<s>|<|s|>");
}

TEST(TokenizerMarked, MarksPassThroughInvalidBytes) {
  TokenizerFile file;
  file.add("<s>", 300);
  const auto tokenizer = file.load();
  EXPECT_EQ(joined(*tokenizer, tokenizer->encode_marked("\xFF<s>\xFF\xFF<s>", std::vector<LiteralSpan>{{6, 9}})),
            "\xEF|\xBF|\xBD|<|s|>|\xEF|\xBF|\xBD|\xEF|\xBF|\xBD|<s>");
}

TEST(TokenizerMarked, RandomTextsNeverYieldControlTokens) {
  const auto tokenizer = builtin();
  std::mt19937 random(21);
  std::vector<std::string> parts = {"<", "|", ">", "user", "/", "nothink", " ", "\n", "think", "<|", "|>", "[", "]", "MASK", "\xFF", "\u00E9"};
  for (const AddedToken& added : tokenizer->added_tokens()) parts.push_back(added.content);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    std::vector<LiteralSpan> literal;
    size_t tokens = 0;
    for (size_t n = 1 + random() % 12; n > 0; --n) {
      const size_t begin = text.size();
      const bool is_literal = random() % 4 == 0;
      // A literal control token between values: it and no other must come out.
      text += is_literal ? "<|user|>" : parts[random() % parts.size()];
      if (!is_literal) continue;
      ++tokens;
      if (!literal.empty() && literal.back().end == begin) {
        literal.back().end = text.size();
      } else {
        literal.push_back({begin, text.size()});
      }
    }
    const auto ids = tokenizer->encode_marked(text, literal);
    ASSERT_TRUE(ids);
    size_t found = 0;
    for (const TokenId id : *ids) found += tokenizer->is_added(id) ? 1 : 0;
    ASSERT_EQ(found, tokens) << config::Json(replace_invalid_utf8(text)).dump();
    ASSERT_EQ(tokenizer->decode(*ids), replace_invalid_utf8(text));
  }
}

TEST(TokenizerMarked, BadSpansAreErrors) {
  const auto tokenizer = TokenizerFile().load();
  for (const std::vector<LiteralSpan>& spans : {std::vector<LiteralSpan>{{0, 9}}, {{2, 1}}, {{1, 2}, {0, 1}}, {{0, 2}, {1, 3}}}) {
    const auto ids = tokenizer->encode_marked("abc", spans);
    ASSERT_FALSE(ids);
    EXPECT_NE(ids.error().message.find("literal span"), std::string::npos);
  }
}

// Invalid text, limits, threads.

TEST(Tokenizer, InvalidBytesBecomeReplacementCharacters) {
  const auto tokenizer = builtin();
  std::mt19937 random(4);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (size_t n = random() % 40; n > 0; --n)
      text.push_back(random() % 3 == 0 ? static_cast<char>(random() % 256) : "a \xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"[random() % 11]);
    const auto ids = tokenizer->encode(text);
    ASSERT_TRUE(ids);
    ASSERT_EQ(*ids, tokenizer->encode(replace_invalid_utf8(text)).value());
    ASSERT_EQ(tokenizer->decode(*ids), replace_invalid_utf8(text));
  }
}

TEST(Tokenizer, TooLongTextIsAnError) {
  const auto tokenizer = TokenizerFile().load();
  const auto ids = tokenizer->encode(std::string(base::kLimits.prompt_bytes + 1, 'a'));
  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.error().code, Code::kInvalidArgument);
}

TEST(Tokenizer, ManyThreadsShareOne) {
  const auto tokenizer = builtin();
  const std::string text = "It was <|user|> the 12345th caf\u00E9 of the day.\n\n" + std::string(500, 'x') + "\u4F60\u597D";
  const std::vector<TokenId> want = tokenizer->encode(text).value();
  std::vector<std::vector<TokenId>> got(8);
  std::vector<std::thread> threads;
  for (auto& ids : got) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) ids = tokenizer->encode(text).value();
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& ids : got) EXPECT_EQ(ids, want);
}

/// Seconds that encoding takes. Bounds are loose: a quadratic algorithm would need hours.
double seconds(const Tokenizer& tokenizer, const std::string& text) {
  const int64_t begin = base::now_ns();
  const auto ids = tokenizer.encode(text);
  EXPECT_TRUE(ids && tokenizer.decode(*ids) == text);
  return static_cast<double>(base::now_ns() - begin) * 1e-9;
}

TEST(TokenizerTime, LongTextsTakeSeconds) {
  const auto tokenizer = builtin();
  const std::string paragraph =
      "The committee, which met on 12 May 2024, didn't agree; caf\u00E9 owners \u4F60\u597D said: \"no\"!\n\n    if (x == 1) return y; \U0001F600\n";
  std::string text;
  while (text.size() < 10'000'000) text += paragraph;
  EXPECT_LT(seconds(*tokenizer, text), 60);
  for (const char letter : {'a', ' ', '\n', '<', '1'}) EXPECT_LT(seconds(*tokenizer, std::string(1 << 20, letter)), 30) << static_cast<int>(letter);
}

TEST(TokenizerTime, OneRepeatedLetterWithDeepMerges) {
  TokenizerFile file;
  std::string token = "a";
  for (int i = 0; i < 10; ++i, token += token) file.merge(token, token);
  const auto tokenizer = file.load();
  EXPECT_LT(seconds(*tokenizer, std::string((1 << 20) + 3, 'a')), 30);
  EXPECT_EQ(tokenizer->encode(std::string(1 << 20, 'a'))->size(), size_t{1} << 10);
}

TEST(TokenizerTime, GeneralRegularExpressionsStayLinear) {
  TokenizerFile file;
  const std::string pattern = config::Json("(?:" + std::string(kLlama3Pattern) + ")").dump();
  file.pre_tokenizer = TokenizerFile::parse(R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": )" + pattern +
                                            R"(}, "behavior": "Isolated"}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})");
  const auto tokenizer = file.load();
  EXPECT_EQ(tokenizer->pretokenizer().regex_steps(), 1);
  for (const std::string_view part : {"a", " ", "a b", "\n", "!"}) {
    std::string text;
    while (text.size() < 1 << 20) text += part;
    EXPECT_LT(seconds(*tokenizer, text), 30) << part;
  }
}

}  // namespace
}  // namespace lathe::text
