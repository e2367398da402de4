#pragma once
// UTF-8: decoding of valid text, and the one rule for invalid bytes.
//
// Rule for invalid bytes: each maximal subpart of an ill-formed sequence becomes one U+FFFD (Unicode 16.0, section 3.9, "U+FFFD
// substitution of maximal subparts"; what web browsers do). The tokenizer applies it to what it encodes, the detokenizer to what it emits.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lathe::text {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  ///< U+FFFD

enum class Utf8 : uint8_t {
  kValid,
  kInvalid,    ///< these bytes are no prefix of a character
  kTruncated,  ///< the text ends inside a character
};

struct Utf8Step {
  Utf8 kind;
  size_t length;  ///< bytes of the character or of the maximal subpart; 1 … 4
};

/// Looks at the sequence that begins at `at` (< text.size()).
Utf8Step utf8_step(std::string_view text, size_t at);

/// True if the whole text is valid UTF-8.
bool is_valid_utf8(std::string_view text);

/// The text with invalid and truncated sequences replaced by the rule above.
std::string replace_invalid_utf8(std::string_view text);

struct Decoded {
  char32_t code;
  size_t length;
};

/// Decodes the character that begins at `at`. The text must be valid UTF-8.
inline Decoded decode_utf8(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(text[at + i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

/// The character that ends before `end` (> 0). The text must be valid UTF-8.
inline Decoded decode_utf8_before(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while ((static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return decode_utf8(text, begin);
}

/// Appends a code point (no surrogate, at most 0x10FFFF).
void append_utf8(std::string& out, char32_t code);

}  // namespace lathe::text
