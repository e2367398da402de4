#pragma once
// Text whose bytes know where they come from. The chat template engine writes it, the tokenizer reads it: a special
// token matches only where all its bytes are literal, so text of a user never becomes a control token.

#include <cstddef>
#include <string>
#include <vector>

namespace lathe::text {

/// A range [begin, end) of bytes that the template itself wrote (its text or a string constant in an expression).
struct LiteralSpan {
  size_t begin = 0;
  size_t end = 0;
  friend bool operator==(const LiteralSpan&, const LiteralSpan&) = default;
};

/// Bytes outside every span are values: they came from messages, tools or other data.
struct MarkedText {
  std::string text;
  std::vector<LiteralSpan> literal;  ///< ascending, not empty, neither overlapping nor touching
};

}  // namespace lathe::text
