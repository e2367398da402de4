// Broken tokenizer files: each error names the thing, its value and what was expected.

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "text/tokenizer_test_util.h"

namespace lathe::text {
namespace {

using testing::TokenizerFile;

void expect_part(const std::string& message, std::string_view part) { EXPECT_NE(message.find(part), std::string::npos) << message; }

TEST(TokenizerLoad, VocabularyErrors) {
  TokenizerFile file;
  file.vocab.emplace_back("twin", 65);
  expect_part(file.error(), "tokens 'A' and 'twin' of the vocabulary share the id 65");
  file.vocab.back() = {"far", 50'000'000};
  expect_part(file.error(), "token 'far': id 50000000 is out of range");
  file.vocab.back() = {"below", -1};
  expect_part(file.error(), "token 'below': id -1 is out of range");
  file.vocab.back() = {"half", 1.5};
  expect_part(file.error(), "token 'half': its id must be an integer, but is a number");
  file.vocab.pop_back();
  file.vocab.erase(file.vocab.begin() + ' ');
  expect_part(file.error(), "no token for byte 0x20");
}

TEST(TokenizerLoad, RareBytesMayBeMissing) {
  TokenizerFile file;
  file.vocab.erase(file.vocab.begin() + 0xFF);
  EXPECT_EQ(file.error(), "no error");
}

TEST(TokenizerLoad, MergeErrors) {
  TokenizerFile file;
  file.merges = {"x y"};
  expect_part(file.error(), "merge 0 of 'x' and 'y': token 'xy' is not in the vocabulary");
  file.merges = {"x zz"};
  expect_part(file.error(), "token 'zz' is not in the vocabulary");
  file.merges = {"xy"};
  expect_part(file.error(), "merge 0: \"xy\" is neither");
  file.merges.assign(1, config::Json(config::Json::Array{"x", "y", "z"}));
  expect_part(file.error(), "merge 0: [\"x\",\"y\",\"z\"] is neither");
  file.merges = {7};
  expect_part(file.error(), "merge 0: 7 is neither");
  file.merges.clear();
  file.merge("x", "y");
  file.merges.push_back(file.merges.back());
  expect_part(file.error(), "merge 1: \"x y\" is listed twice");
}

TEST(TokenizerLoad, AddedTokenErrors) {
  const auto error_of = [](auto change) {
    TokenizerFile file;
    change(file);
    return file.error();
  };
  expect_part(error_of([](TokenizerFile& f) { f.add("<s>", 65); }), "added token '<s>' has the id 65 of the vocabulary token 'A'");
  expect_part(error_of([](TokenizerFile& f) { f.add("A", 300); }), "added token 'A' has the id 300, but the vocabulary gives it 65");
  expect_part(error_of([](TokenizerFile& f) { f.add("<s>", 300), f.add("<t>", 300); }),
              "added token '<t>' has the id 300 of another added token, '<s>'");
  expect_part(error_of([](TokenizerFile& f) { f.add("<s>", 300), f.add("<s>", 301); }), "added token '<s>' is listed twice, with ids 300 and 301");
  expect_part(error_of([](TokenizerFile& f) { f.add("", 300); }), "added token '' has 0 bytes");
  expect_part(error_of([](TokenizerFile& f) { f.add(std::string(2000, 'x'), 300); }), "has 2000 bytes");
  expect_part(error_of([](TokenizerFile& f) { f.add("<s>", -4); }), "token '<s>': id -4 is out of range");
  expect_part(error_of([](TokenizerFile& f) { f.add("<s>", 300, R"("lstrip": "yes")"); }),
              "added token '<s>': 'lstrip' must be a boolean, but is a string");
  EXPECT_EQ(error_of([](TokenizerFile& f) { f.add("A", 65); }), "no error") << "an added token may be a token of the vocabulary";
}

TEST(TokenizerLoad, UnknownPartsAreNamed) {
  TokenizerFile file;
  file.normalizer = TokenizerFile::parse(R"({"type": "Nmt"})");
  expect_part(file.error(), "normalizer 'Nmt' is not supported");
  file.normalizer = TokenizerFile::parse(R"({"type": "Replace", "pattern": 3, "content": ""})");
  expect_part(file.error(), "normalizer Replace: 'pattern' must be");
  file.normalizer = {};
  file.pre_tokenizer = TokenizerFile::parse(R"({"type": "Metaspace"})");
  expect_part(file.error(), "pre_tokenizer 'Metaspace' is not supported");
  file.pre_tokenizer = TokenizerFile::parse(R"({})");
  expect_part(file.error(), "pre_tokenizer: 'type' must be a string, but is missing");
}

TEST(TokenizerLoad, ModelErrors) {
  const auto error_of = [](std::string_view key, config::Json value) {
    config::Json file = TokenizerFile().json();
    config::Json model = *file.find("model");
    model.set(key, std::move(value));
    file.set("model", std::move(model));
    const auto tokenizer = Tokenizer::from_json(file);
    return tokenizer ? "no error" : tokenizer.error().message;
  };
  expect_part(error_of("type", "Unigram"), "model type 'Unigram' is not supported");
  expect_part(error_of("vocab", 5), "model: 'vocab' must be an object, but is an integer");
  expect_part(error_of("merges", nullptr), "model: 'merges' must be an array, but is null");
  expect_part(error_of("dropout", 0.1), "'dropout' is 0.1");
  expect_part(error_of("end_of_word_suffix", "</w>"), "'end_of_word_suffix' is \"</w>\"");
  EXPECT_EQ(error_of("continuing_subword_prefix", ""), "no error");
  EXPECT_EQ(error_of("dropout", nullptr), "no error");
}

TEST(TokenizerLoad, DecoderErrors) {
  config::Json file = TokenizerFile().json();
  file.set("decoder", TokenizerFile::parse(R"({"type": "Metaspace"})"));
  const auto tokenizer = Tokenizer::from_json(file);
  ASSERT_FALSE(tokenizer);
  expect_part(tokenizer.error().message, "decoder 'Metaspace' is not supported");
  file.set("decoder", TokenizerFile::parse(R"({"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "Fuse"}]})"));
  EXPECT_TRUE(Tokenizer::from_json(file));
}

TEST(TokenizerLoad, FilesAreNamed) {
  const auto missing = Tokenizer::load("no/such/tokenizer.json");
  ASSERT_FALSE(missing);
  expect_part(missing.error().message, "no/such/tokenizer.json");
  EXPECT_FALSE(Tokenizer::from_text("{"));
  EXPECT_FALSE(Tokenizer::from_text("[]"));
  EXPECT_FALSE(Tokenizer::from_text("{\"model\": 3}"));
}

TEST(TokenizerLoad, DamagedFilesNeverCrash) {
  TokenizerFile file;
  file.merge("a", "b");
  file.add("<s>", 300);
  file.normalizer = TokenizerFile::parse(R"({"type": "NFC"})");
  const std::string text = file.json().dump();
  std::mt19937 random(8);
  int loaded = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = text;
    for (size_t n = 1 + random() % 3; n > 0; --n) {
      const size_t at = random() % damaged.size();
      switch (random() % 3) {
        case 0: damaged[at] = static_cast<char>(random() % 256); break;
        case 1: damaged.erase(at, random() % 20); break;
        default: damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 20)); break;
      }
    }
    const auto tokenizer = Tokenizer::from_text(damaged);
    if (!tokenizer) continue;
    ++loaded;
    const auto ids = (*tokenizer)->encode("ab<s> \xFF e\u0301");
    if (ids) (void)(*tokenizer)->decode(*ids);
  }
  EXPECT_GT(loaded, 0);
}

}  // namespace
}  // namespace lathe::text
