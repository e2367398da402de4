#pragma once
// Byte-level BPE tokenizers in the tokenizer.json form of the Hugging Face library: text to token ids and back.
//
// Equality  encode() gives the ids of the reference library (tokenizers 0.22) without its post-processor: no token is added in front or behind.
//           "truncation", "padding" and "post_processor" of the file are ignored. Unicode 16.0 everywhere, as there.
// Text      UTF-8. Invalid bytes are replaced by U+FFFD before anything else (rule in utf8.h), so decode(encode(x)) is that text, for a tokenizer
//           without a normalizer.
// Time      Linear in the text (n log n inside one piece of the pre-tokenizer).
// Threads   Immutable after loading; all const functions may run at the same time.
// Source    The file form is described by the library's documentation; behaviour was compared with the library (tests/oracle).

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "config/json.h"
#include "text/bpe.h"
#include "text/marked_text.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_added.h"

namespace lathe::text {

struct DecodeOptions {
  bool skip_special = false;  ///< leave out tokens that the file marks as special
};

class Tokenizer {
 public:
  /// Reads tokenizer.json. Errors: not_found; invalid_argument or unimplemented, naming file, member, token and numbers.
  static Result<std::unique_ptr<Tokenizer>> load(const std::string& path);
  /// The same from the text of such a file.
  static Result<std::unique_ptr<Tokenizer>> from_text(std::string_view json_text);
  static Result<std::unique_ptr<Tokenizer>> from_json(const config::Json& file);

  /// Ids of the text; added tokens match anywhere ("special" mode). For prompts that their author wrote token by token, never for text of users.
  /// Errors: invalid_argument if the text is longer than Limits::prompt_bytes; resource_exhausted if a regular expression of the file gives up.
  Result<std::vector<TokenId>> encode(std::string_view text) const;

  /// Ids of a text whose bytes outside `literal` are values ("plain" mode). The text is tokenised as one; an added token comes out only where all
  /// its bytes are literal, so values never become control tokens, not even through the merges or whole-piece rule of the file.
  /// (The token of a single byte is the exception: that byte has no other.) `literal` is ascending and disjoint. Errors: those of encode, and
  /// invalid_argument for spans that are not.
  Result<std::vector<TokenId>> encode_marked(std::string_view text, std::span<const LiteralSpan> literal) const;
  Result<std::vector<TokenId>> encode_marked(const MarkedText& text) const { return encode_marked(text.text, text.literal); }
  /// encode_marked without any literal byte.
  Result<std::vector<TokenId>> encode_plain(std::string_view text) const { return encode_marked(text, {}); }

  /// Text of the ids, valid UTF-8 by the rule of utf8.h. Ids outside the vocabulary give nothing. Detokenizer does this token by token.
  std::string decode(std::span<const TokenId> ids, const DecodeOptions& options = {}) const;

  /// Largest id of the file plus one. A model may have more rows; they are padding.
  int32_t vocab_size() const { return static_cast<int32_t>(tokens_.size()); }
  /// Whether the file defines the id.
  bool is_defined(TokenId id) const { return contains(id) && tokens_[static_cast<size_t>(id)].kind != Kind::kHole; }
  /// Whether the file lists the id in added_tokens.
  bool is_added(TokenId id) const { return contains(id) && tokens_[static_cast<size_t>(id)].kind >= Kind::kAdded; }
  /// Whether that entry is marked special.
  bool is_special(TokenId id) const { return contains(id) && tokens_[static_cast<size_t>(id)].kind == Kind::kSpecial; }
  /// Bytes of a token (they need not be whole characters); empty if the id is not defined. Valid as long as the tokenizer.
  std::string_view bytes(TokenId id) const { return contains(id) ? std::string_view(tokens_[static_cast<size_t>(id)].bytes) : std::string_view(); }
  /// The added token with this content, else the token with these bytes.
  std::optional<TokenId> find(std::string_view bytes) const;
  /// The entries of added_tokens by id.
  const std::vector<AddedToken>& added_tokens() const { return added_; }
  const Pretokenizer& pretokenizer() const { return pretokenizer_; }

 private:
  enum class Kind : uint8_t { kHole, kPlain, kAdded, kSpecial };
  struct Token {
    std::string bytes;
    Kind kind = Kind::kHole;
  };
  struct Encoding;  // state of one encode call

  Tokenizer() = default;
  bool contains(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < tokens_.size(); }

  friend class TokenizerLoader;
  Result<std::vector<TokenId>> encode_text(const NormalText& text, Bpe::Guard guard) const;
  void encode_raw(Encoding& run, std::string_view text, std::string_view literal) const;
  void encode_normal(Encoding& run, std::string_view text, std::string_view literal) const;
  void encode_piece_text(Encoding& run, std::string_view text) const;

  std::vector<Token> tokens_;                                 ///< by id
  std::unordered_map<std::string_view, TokenId> by_bytes_;    ///< plain tokens; keys live in tokens_
  std::unordered_map<std::string_view, TokenId> by_content_;  ///< added tokens; keys live in added_
  std::vector<AddedToken> added_;
  Normalizer normalizer_;
  Pretokenizer pretokenizer_;
  AddedMatcher raw_matcher_;     ///< added tokens looked for before normalisation
  AddedMatcher normal_matcher_;  ///< … and after it
  Bpe bpe_;
};

}  // namespace lathe::text
