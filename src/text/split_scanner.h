#pragma once
// Hand-written scanners for the split patterns of well-known model families: the same pieces as the regular expression, many times faster.
//
// Chosen by the exact pattern string, so a pattern that differs in one character goes to the general regular expression.
// Every position of these patterns matches at least one character, so the pieces cover the text.

#include <cstddef>
#include <string_view>

namespace lathe::text {

enum class Scanner { kNone, kGpt2, kLlama3, kQwen2 };

inline constexpr std::string_view kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
/// Llama-3 and the GLM families.
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
/// Qwen2 and Qwen3: digits one by one.
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// The scanner of a pattern, or kNone.
Scanner scanner_for(std::string_view pattern);

/// End of the piece that begins at `at` (< text.size(), a character boundary). Needs valid UTF-8; `scanner` is not kNone.
/// Time: linear over a whole text.
size_t scan_piece(Scanner scanner, std::string_view text, size_t at);

}  // namespace lathe::text
