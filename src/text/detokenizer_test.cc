#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "text/tokenizer_test_util.h"
#include "text/utf8.h"

namespace lathe::text {
namespace {

using testing::TokenizerFile;

TEST(Detokenizer, WaitsForWholeCharacters) {
  const auto tokenizer = TokenizerFile().load();
  Detokenizer stream(*tokenizer);
  EXPECT_EQ(stream.push('a'), "a");
  EXPECT_EQ(stream.push(0xF0), "");
  EXPECT_EQ(stream.push(0x9F), "");
  EXPECT_EQ(stream.push(0x98), "");
  EXPECT_EQ(stream.pending(), 3u);
  EXPECT_EQ(stream.push(0x80), "\U0001F600");
  EXPECT_EQ(stream.flush(), "");
}

TEST(Detokenizer, BytesThatBecomeNothingAreReplaced) {
  const auto tokenizer = TokenizerFile().load();
  Detokenizer stream(*tokenizer);
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.push(0x82), "");
  EXPECT_EQ(stream.push('x'), "\uFFFDx");
  EXPECT_EQ(stream.push(0x80), "\uFFFD");
  EXPECT_EQ(stream.push(0xC3), "");
  EXPECT_EQ(stream.flush(), "\uFFFD");
  EXPECT_EQ(stream.push('y'), "y") << "usable again";
}

TEST(Detokenizer, SkippedTokensDoNotBreakACharacter) {
  TokenizerFile file;
  file.add("<s>", 300);
  const auto tokenizer = file.load();
  const auto all = [](Detokenizer stream) {
    std::string text;
    for (const TokenId id : {0xC3, 300, 0xA9}) text += stream.push(id);
    return text + stream.flush();
  };
  EXPECT_EQ(all(Detokenizer(*tokenizer, {.skip_special = true})), "\u00E9");
  EXPECT_EQ(all(Detokenizer(*tokenizer)), "\uFFFD<s>\uFFFD");
}

TEST(Detokenizer, PiecesAreValidAndTogetherAreDecode) {
  TokenizerFile file;
  file.token("\xC3");
  file.token("\xA9\xE4");
  file.token("\xBD\xA0\xF0\x9F");
  file.token("\x98\x80");
  file.add("<s>", 300);
  const auto tokenizer = file.load();
  std::mt19937 random(17);
  for (int round = 0; round < 5000; ++round) {
    std::vector<TokenId> ids;
    std::string bytes;
    for (size_t n = random() % 20; n > 0; --n) {
      const TokenId id = random() % 2 == 0 ? static_cast<TokenId>(256 + random() % 4) : static_cast<TokenId>(random() % 310);
      ids.push_back(id);
      bytes += tokenizer->bytes(id);
    }
    Detokenizer stream(*tokenizer);
    std::string text;
    for (const TokenId id : ids) {
      const std::string piece = stream.push(id);
      ASSERT_TRUE(is_valid_utf8(piece));
      ASSERT_LE(stream.pending(), 3u);
      text += piece;
    }
    text += stream.flush();
    ASSERT_EQ(text, replace_invalid_utf8(bytes));
    ASSERT_EQ(text, tokenizer->decode(ids));
  }
}

}  // namespace
}  // namespace lathe::text
