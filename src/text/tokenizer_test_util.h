#pragma once
// Small tokenizer files for tests.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/bpe_bytes.h"
#include "text/tokenizer.h"

namespace lathe::text::testing {

/// A tokenizer.json with one token per byte (the id is the byte), a token per merge and added tokens. Members can be changed before use.
struct TokenizerFile {
  config::Json::Object vocab;
  config::Json::Array merges;
  config::Json::Array added;
  config::Json pre_tokenizer = parse(R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true})");
  config::Json normalizer;
  bool ignore_merges = false;

  static config::Json parse(std::string_view text) {
    auto json = config::parse_json(text);
    EXPECT_TRUE(json) << json.error().message;
    return json ? *json : config::Json();
  }

  TokenizerFile() {
    for (int byte = 0; byte < 256; ++byte) vocab.emplace_back(to_byte_level(std::string(1, static_cast<char>(byte))), byte);
  }
  int next_id() const { return static_cast<int>(vocab.size()); }

  /// Adds the token of two tokens, given as bytes, and its merge; returns its id.
  int merge(std::string_view left, std::string_view right) {
    const int id = token(std::string(left) + std::string(right));
    merges.emplace_back(to_byte_level(left) + " " + to_byte_level(right));
    return id;
  }
  int token(std::string_view bytes) {
    vocab.emplace_back(to_byte_level(bytes), next_id());
    return next_id() - 1;
  }
  void add(std::string_view content, int id, std::string_view flags = R"("special": true, "normalized": false)") {
    std::string text = R"({"id": )" + std::to_string(id) + R"(, "content": )";
    config::append_json_string(text, content);
    added.push_back(parse(text + ", " + std::string(flags) + "}"));
  }

  config::Json json() const {
    config::Json model{config::Json::Object{{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}, {"ignore_merges", ignore_merges}}};
    return config::Json::Object{{"added_tokens", added}, {"normalizer", normalizer}, {"pre_tokenizer", pre_tokenizer}, {"model", std::move(model)}};
  }
  Result<std::unique_ptr<Tokenizer>> try_load() const { return Tokenizer::from_json(json()); }
  std::unique_ptr<Tokenizer> load() const {
    auto tokenizer = try_load();
    EXPECT_TRUE(tokenizer) << tokenizer.error().message;
    return tokenizer ? std::move(*tokenizer) : nullptr;
  }
  /// The message of the error that loading ends in.
  std::string error() const {
    const auto tokenizer = try_load();
    return tokenizer ? "no error" : tokenizer.error().message;
  }
};

/// The tokens as text, joined by '|'.
inline std::string joined(const Tokenizer& tokenizer, const Result<std::vector<TokenId>>& ids) {
  if (!ids) return ids.error().message;
  std::string out;
  for (const TokenId id : *ids) out += (out.empty() ? "" : "|") + std::string(tokenizer.bytes(id));
  return out;
}

}  // namespace lathe::text::testing
