#include "text/template_lexer.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/utf8.h"

namespace lathe::text::jinja {
namespace {

constexpr size_t kNone = std::string_view::npos;

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (static_cast<unsigned char>(c) & 0x80u) != 0; }

/// What a tag's end does to the text behind it.
enum class After : uint8_t { kKeep, kNewline, kAll };

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) {
      LATHE_TRY_VOID(text_and_tag());
    }
    push(TokenKind::kEnd, {});
    return std::move(tokens_);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }
  bool at(std::string_view what) const { return source_.substr(at_, what.size()) == what; }

  void push(TokenKind kind, std::string_view text) { tokens_.push_back({kind, line_, text}); }
  void advance(size_t bytes) {
    line_ +=
        static_cast<uint32_t>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_), source_.begin() + static_cast<ptrdiff_t>(at_ + bytes), '\n'));
    at_ += bytes;
  }
  void skip_blanks() {
    size_t end = at_;
    while (end < source_.size() && is_blank(source_[end])) ++end;
    advance(end - at_);
  }

  /// Emits the text before the next tag, trimmed at both sides, and lexes the tag.
  Result<void> text_and_tag() {
    size_t open = at_;
    for (;; ++open) {
      open = source_.find('{', open);
      if (open == kNone || open + 1 >= source_.size()) {
        open = kNone;
        break;
      }
      const char next = source_[open + 1];
      if (next == '{' || next == '%' || next == '#') break;
    }
    if (open == kNone) {
      push_text(source_.size());
      return {};
    }
    const char type = source_[open + 1];
    const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
    size_t end = open;
    if (sign == '-') {
      while (end > at_ && is_blank(source_[end - 1])) --end;
    } else if (type != '{' && sign != '+') {
      end = without_indent(open);
    }
    push_text(end);
    advance(open - at_);
    const uint32_t line = line_;
    advance(sign == '-' || (sign == '+' && type != '{') ? 3 : 2);
    if (type == '#') return comment(line);
    if (type == '{') {
      tokens_.push_back({TokenKind::kOutputBegin, line, {}});
      return expression(line, "}}", TokenKind::kOutputEnd);
    }
    if (is_raw_tag()) return raw(line);
    tokens_.push_back({TokenKind::kBlockBegin, line, {}});
    return expression(line, "%}", TokenKind::kBlockEnd);
  }

  void push_text(size_t end) {
    if (end > at_) push(TokenKind::kText, source_.substr(at_, end - at_));
    advance(std::max(end, at_) - at_);
    line_start_ = false;
  }

  /// Where the text before the tag at `open` ends if the tag stands first on its line, else `open`.
  size_t without_indent(size_t open) const {
    const size_t newline = source_.substr(at_, open - at_).rfind('\n');
    if (newline == kNone && !line_start_) return open;
    const size_t begin = newline != kNone ? at_ + newline + 1 : at_;
    for (size_t i = begin; i < open; ++i) {
      if (!is_blank(source_[i])) return open;
    }
    return begin;
  }

  void after_tag(After after) {
    const size_t begin = at_;
    if (after == After::kAll) skip_blanks();
    if (after == After::kNewline && peek() == '\n') advance(1);
    line_start_ = at_ > begin && source_[at_ - 1] == '\n';
  }

  Result<void> comment(uint32_t line) {
    const size_t end = source_.find("#}", at_);
    if (end == kNone) return template_error(Code::kInvalidArgument, line, "the comment is never closed by '#}'");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    after_tag(sign == '-' ? After::kAll : sign == '+' ? After::kKeep : After::kNewline);
    return {};
  }

  bool is_raw_tag() const {
    size_t i = at_;
    while (i < source_.size() && is_blank(source_[i])) ++i;
    if (source_.substr(i, 3) != "raw") return false;
    i += 3;
    while (i < source_.size() && is_blank(source_[i])) ++i;
    return source_.substr(i, 2) == "%}" || source_.substr(i, 3) == "-%}";
  }

  /// Text up to endraw, as it is.
  Result<void> raw(uint32_t line) {
    const size_t close = source_.find("%}", at_);
    const bool strip = source_[close - 1] == '-';
    advance(close + 2 - at_);
    after_tag(strip ? After::kAll : After::kKeep);
    for (size_t open = source_.find("{%", at_); open != kNone; open = source_.find("{%", open + 2)) {
      size_t i = open + 2;
      const char sign = i < source_.size() ? source_[i] : '\0';
      if (sign == '-' || sign == '+') ++i;
      while (i < source_.size() && is_blank(source_[i])) ++i;
      if (source_.substr(i, 6) != "endraw") continue;
      i += 6;
      while (i < source_.size() && is_blank(source_[i])) ++i;
      const char end_sign = i < source_.size() ? source_[i] : '\0';
      if (end_sign == '-' || end_sign == '+') ++i;
      if (source_.substr(i, 2) != "%}") continue;
      size_t end = open;
      if (sign == '-') {
        while (end > at_ && is_blank(source_[end - 1])) --end;
      } else if (sign != '+') {
        end = without_indent(open);
      }
      push_text(end);
      advance(i + 2 - at_);
      after_tag(end_sign == '-' ? After::kAll : end_sign == '+' ? After::kKeep : After::kNewline);
      return {};
    }
    return template_error(Code::kInvalidArgument, line, "the raw block is never closed by endraw");
  }

  /// Tokens of one tag up to its end.
  Result<void> expression(uint32_t line, std::string_view close, TokenKind end_kind) {
    std::string closers;  // of the open brackets: an end of the tag inside them is none
    for (;;) {
      skip_blanks();
      if (at_ >= source_.size()) return template_error(Code::kInvalidArgument, line, fmt::format("the tag is never closed by '{}'", close));
      if (closers.empty()) {
        const bool signed_end = (peek() == '-' || (peek() == '+' && end_kind == TokenKind::kBlockEnd)) && source_.substr(at_ + 1, 2) == close;
        if (signed_end || at(close)) {
          const char sign = signed_end ? peek() : '\0';
          push(end_kind, {});
          advance(signed_end ? 3 : 2);
          after_tag(sign == '-' ? After::kAll : sign == '+' || end_kind == TokenKind::kOutputEnd ? After::kKeep : After::kNewline);
          return {};
        }
      }
      const char c = peek();
      if (c == '(') closers += ')';
      if (c == '[') closers += ']';
      if (c == '{') closers += '}';
      if (c == ')' || c == ']' || c == '}') {
        if (closers.empty()) return template_error(Code::kInvalidArgument, line_, fmt::format("'{}' closes nothing", c));
        if (closers.back() != c) return template_error(Code::kInvalidArgument, line_, fmt::format("expected '{}', found '{}'", closers.back(), c));
        closers.pop_back();
      }
      LATHE_TRY_VOID(token());
    }
  }

  Result<void> token() {
    const char c = peek();
    if (c == '"' || c == '\'') return string();
    if (is_digit(c)) {
      number();
      return {};
    }
    if (starts_name(c)) {
      size_t end = at_;
      while (end < source_.size() && (starts_name(source_[end]) || is_digit(source_[end]))) ++end;
      take(TokenKind::kName, end - at_);
      return {};
    }
    for (const std::string_view op : {"**", "//", "==", "!=", "<=", ">="}) {
      if (at(op)) {
        take(TokenKind::kOperator, 2);
        return {};
      }
    }
    if (std::string_view("+-*/%~<>=()[]{},.:|").find(c) == kNone) {
      return template_error(Code::kInvalidArgument, line_, fmt::format("unexpected character {} in a tag", printable(c)));
    }
    take(TokenKind::kOperator, 1);
    return {};
  }

  void take(TokenKind kind, size_t bytes) {
    push(kind, source_.substr(at_, bytes));
    advance(bytes);
  }

  static std::string printable(char c) {
    return c > 0x20 && c < 0x7F ? fmt::format("'{}'", c) : fmt::format("0x{:02x}", static_cast<unsigned char>(c));
  }

  Result<void> string() {
    const char quote = peek();
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return template_error(Code::kInvalidArgument, line_, fmt::format("the string is never closed by {}", quote));
    take(TokenKind::kString, end + 1 - at_);
    return {};
  }

  /// Behind a point only an index follows (content.0.type), so no float may begin there.
  void number() {
    const bool index = !tokens_.empty() && tokens_.back().kind == TokenKind::kOperator && tokens_.back().text == ".";
    size_t end = at_;
    const auto digits = [&] {
      while (end < source_.size() && (is_digit(source_[end]) || source_[end] == '_')) ++end;
    };
    digits();
    bool real = false;
    if (!index && end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      real = true;
      ++end;
      digits();
    }
    if (!index && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const size_t sign = end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-') ? 1 : 0;
      if (end + 1 + sign < source_.size() && is_digit(source_[end + 1 + sign])) {
        real = true;
        end += 1 + sign;
        digits();
      }
    }
    take(real ? TokenKind::kFloat : TokenKind::kInteger, end - at_);
  }

  std::string_view source_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool line_start_ = true;  // does the text at at_ begin a line?
  std::vector<Token> tokens_;
};

/// Value of `count` hexadecimal digits at `at`, or -1.
int64_t hex(std::string_view text, size_t at, size_t count) {
  if (at + count > text.size()) return -1;
  int64_t value = 0;
  for (const char c : text.substr(at, count)) {
    const int digit = is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

}  // namespace

tl::unexpected<Error> template_error(Code code, uint32_t line, std::string_view message) {
  return err(code, "chat template line {}: {}", line, message);
}

std::string normalise_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

Result<std::vector<Token>> tokenize(std::string_view source) { return Lexer(source).run(); }

Result<std::string> string_token_text(const Token& token) {
  const std::string_view body = token.text.substr(1, token.text.size() - 2);
  std::string out;
  out.reserve(body.size());
  for (size_t i = 0; i < body.size(); ++i) {
    if (body[i] != '\\' || i + 1 == body.size()) {
      out += body[i];
      continue;
    }
    const char c = body[++i];
    static constexpr std::string_view kFrom = "nrtbfav0\\'\"";
    static constexpr std::string_view kTo("\n\r\t\b\f\a\v\0\\'\"", 11);
    if (const size_t simple = kFrom.find(c); simple != kNone) {
      out += kTo[simple];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      int64_t point = hex(body, i + 1, count);
      if (point < 0 || point > 0x10FFFF)
        return template_error(Code::kInvalidArgument, token.line, fmt::format("'\\{}' needs {} hexadecimal digits of a code point", c, count));
      i += count;
      const bool pair = point >= 0xD800 && point < 0xDC00 && body.substr(i + 1, 2) == "\\u";
      if (const int64_t low = pair ? hex(body, i + 3, 4) : -1; low >= 0xDC00 && low < 0xE000) {
        point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
        i += 6;
      }
      if (point >= 0xD800 && point < 0xE000)
        return template_error(Code::kInvalidArgument, token.line, "a surrogate without its other half is no code point");
      append_utf8(out, static_cast<char32_t>(point));
    } else if (c != '\n') {  // an escaped newline is nothing, an unknown escape stays as it is
      out += '\\';
      out += c;
    }
  }
  return out;
}

}  // namespace lathe::text::jinja
