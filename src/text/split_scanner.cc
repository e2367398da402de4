#include "text/split_scanner.h"

#include <array>
#include <cstdint>

#include "base/check.h"
#include "text/unicode.h"

namespace lathe::text {
namespace {

enum class Kind : uint8_t { kLetter, kNumber, kNewline, kSpace, kOther };

Kind kind_from_properties(char32_t code) {
  const Properties found = properties(code);
  if (found.in(kLetterMask)) return Kind::kLetter;
  if (found.in(kNumberMask)) return Kind::kNumber;
  return found.white_space() ? Kind::kSpace : Kind::kOther;
}

constexpr std::array<Kind, 128> kAsciiKinds = [] {
  std::array<Kind, 128> kinds{};
  for (size_t c = 0; c < kinds.size(); ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool space = c == ' ' || c == '\t' || c == '\v' || c == '\f';
    kinds[c] = letter                   ? Kind::kLetter
               : c >= '0' && c <= '9'   ? Kind::kNumber
               : c == '\r' || c == '\n' ? Kind::kNewline
               : space                  ? Kind::kSpace
                                        : Kind::kOther;
  }
  return kinds;
}();

struct Char {
  Kind kind;
  size_t length;  // 0: end of the text (kind kOther)
};

inline Char look(std::string_view text, size_t at) {
  if (at >= text.size()) return {Kind::kOther, 0};
  const auto byte = static_cast<uint8_t>(text[at]);
  if (byte < 0x80) return {kAsciiKinds[byte], 1};
  const Decoded decoded = decode_utf8(text, at);
  return {kind_from_properties(decoded.code), decoded.length};
}

/// End of the run of `kind` from `at`, of at most `most` characters.
inline size_t run_end(std::string_view text, size_t at, Kind kind, size_t most = SIZE_MAX) {
  for (size_t count = 0; count < most; ++count) {
    const Char next = look(text, at);
    if (next.length == 0 || next.kind != kind) break;
    at += next.length;
  }
  return at;
}

constexpr std::string_view kLongS = "\xC5\xBF";  // U+017F: the one other character that is "s" when case is ignored

enum class Letters : uint8_t { kExact, kAnyCase };
/// Length of 's 't 're 've 'm 'll 'd at `at`, where the apostrophe stands; 0 if there is none.
size_t contraction(std::string_view text, size_t at, Letters letters) {
  const bool ignore_case = letters == Letters::kAnyCase;
  const std::string_view rest = text.substr(at + 1, 2);
  if (ignore_case && rest == kLongS) return 3;
  const auto letter = [&](size_t i) {
    const char c = i < rest.size() ? rest[i] : '\0';
    return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char first = letter(0);
  const char second = letter(1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  const bool pair = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l');
  return pair ? 3 : 0;
}

/// `\s+(?!\S)|\s+` on a run that begins at `at`: all of it at the end of the text, else all but its last character, which belongs to what follows.
struct SpaceRun {
  size_t end;          // of the whole run
  size_t last;         // begin of its last character
  size_t newline_end;  // end of the last newline in it; 0: none
};

SpaceRun space_run(std::string_view text, size_t at) {
  SpaceRun run{at, at, 0};
  while (true) {
    const Char next = look(text, run.end);
    if (next.length == 0 || (next.kind != Kind::kSpace && next.kind != Kind::kNewline)) return run;
    run.last = run.end;
    run.end += next.length;
    if (next.kind == Kind::kNewline) run.newline_end = run.end;
  }
}

size_t spaces_end(const SpaceRun& run, size_t at, size_t text_size) { return run.end == text_size || run.last == at ? run.end : run.last; }

size_t scan_gpt2(std::string_view text, size_t at) {
  const Char first = look(text, at);
  if (text[at] == '\'') {
    if (const size_t length = contraction(text, at, Letters::kExact)) return at + length;
  }
  const size_t body = text[at] == ' ' ? at + 1 : at;
  const Char head = body == at ? first : look(text, body);
  const bool word = head.length != 0 && head.kind != Kind::kSpace && head.kind != Kind::kNewline;
  if (word) return run_end(text, body + head.length, head.kind);
  return spaces_end(space_run(text, at), at, text.size());
}

size_t scan_llama3(std::string_view text, size_t at, size_t digits) {
  const Char first = look(text, at);
  if (text[at] == '\'') {
    if (const size_t length = contraction(text, at, Letters::kAnyCase)) return at + length;
  }
  if (first.kind == Kind::kLetter) return run_end(text, at + first.length, Kind::kLetter);
  if (first.kind == Kind::kNumber) return run_end(text, at + first.length, Kind::kNumber, digits - 1);
  const size_t after = at + first.length;
  const Char second = look(text, after);
  if (first.kind != Kind::kNewline && second.length != 0 && second.kind == Kind::kLetter) return run_end(text, after + second.length, Kind::kLetter);
  const bool spaced = text[at] == ' ' && second.length != 0 && second.kind == Kind::kOther;
  if (first.kind == Kind::kOther || spaced) return run_end(text, run_end(text, after, Kind::kOther), Kind::kNewline);
  const SpaceRun run = space_run(text, at);
  return run.newline_end != 0 ? run.newline_end : spaces_end(run, at, text.size());
}

}  // namespace

Scanner scanner_for(std::string_view pattern) {
  if (pattern == kGpt2Pattern) return Scanner::kGpt2;
  if (pattern == kLlama3Pattern) return Scanner::kLlama3;
  if (pattern == kQwen2Pattern) return Scanner::kQwen2;
  return Scanner::kNone;
}

size_t scan_piece(Scanner scanner, std::string_view text, size_t at) {
  switch (scanner) {
    case Scanner::kGpt2: return scan_gpt2(text, at);
    case Scanner::kLlama3: return scan_llama3(text, at, 3);
    case Scanner::kQwen2: return scan_llama3(text, at, 1);
    case Scanner::kNone: break;
  }
  LATHE_CHECK(false, "no scanner");
}

}  // namespace lathe::text
