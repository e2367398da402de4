#pragma once
// The byte-level alphabet: one printable character stands for each byte in the vocabulary of a byte-level tokenizer.

#include <optional>
#include <string>
#include <string_view>

namespace lathe::text {

/// The character that stands for a byte: itself if it is printable Latin-1, else one of U+0100 … U+0143 in ascending order of the bytes.
char32_t byte_level_char(unsigned char byte);

/// The stand-in characters of `bytes`, as UTF-8.
std::string to_byte_level(std::string_view bytes);

/// The bytes that valid UTF-8 `text` stands for; nothing if one of its characters stands for no byte.
std::optional<std::string> from_byte_level(std::string_view text);

}  // namespace lathe::text
