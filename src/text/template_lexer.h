#pragma once
// Template bytes → tokens. Whitespace control is settled here, as Jinja2 does with trim_blocks and lstrip_blocks (the setting of
// chat templates): a block tag takes the blanks before it on its own line and the newline behind it; `-` takes all whitespace.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lathe::text::jinja {

enum class TokenKind : uint8_t { kText, kOutputBegin, kOutputEnd, kBlockBegin, kBlockEnd, kName, kInteger, kFloat, kString, kOperator, kEnd };

struct Token {
  TokenKind kind = TokenKind::kEnd;
  uint32_t line = 1;
  std::string_view text;  ///< of the source; strings with quotes and escapes
};

/// `source` has no carriage returns (normalise_newlines) and must outlive the tokens.
/// Errors: invalid_argument with the line of an unclosed tag, comment or string, or of a character that starts no token.
Result<std::vector<Token>> tokenize(std::string_view source);

/// \r\n and \r become \n, and one newline at the very end goes, as Jinja2 does.
std::string normalise_newlines(std::string_view source);

/// Bytes of a string token: escapes resolved.
Result<std::string> string_token_text(const Token& token);

/// An error about a template: "chat template line 12: …".
tl::unexpected<Error> template_error(Code code, uint32_t line, std::string_view message);

}  // namespace lathe::text::jinja
