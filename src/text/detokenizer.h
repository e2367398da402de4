#pragma once
// Text of a stream of tokens. Every piece that comes out is valid UTF-8 of whole characters.
//
// Rule     A token may end inside a character: its last bytes wait until the next token completes them. Bytes that can never become a character
//          come out as U+FFFD (rule in utf8.h). flush() ends the stream: an unfinished character becomes one U+FFFD.
// Equality The pieces together are Tokenizer::decode of all ids.
// Threads  One stream, one thread.

#include <string>

#include "text/tokenizer.h"

namespace lathe::text {

class Detokenizer {
 public:
  /// `tokenizer` must outlive this object.
  explicit Detokenizer(const Tokenizer& tokenizer, const DecodeOptions& options = {}) : tokenizer_(&tokenizer), options_(options) {}

  /// The text that this token completes; may be empty. Ids outside the vocabulary, and special ones on request, change nothing.
  std::string push(TokenId id);

  /// The rest. The object can then be used for a new stream.
  std::string flush();

  /// Bytes that wait (at most 3).
  size_t pending() const { return pending_.size(); }

 private:
  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  std::string pending_;
};

}  // namespace lathe::text
