// Case of marked strings. Capitals have no table: they are computed for the alphabets whose two cases lie at fixed distances.
#include "text/template_strings.h"
#include "text/unicode.h"

namespace lathe::text::jinja {
namespace {

bool in(char32_t point, char32_t low, char32_t high) { return point >= low && point <= high; }

/// Alphabets where capital and small letters alternate: an even (or odd) capital is followed by its small letter.
bool alternates_from_even(char32_t point) {
  return in(point, 0x100, 0x12F) || in(point, 0x132, 0x137) || in(point, 0x14A, 0x177) || in(point, 0x1E00, 0x1E95) || in(point, 0x1EA0, 0x1EFF) ||
         in(point, 0x460, 0x481) || in(point, 0x48A, 0x4BF) || in(point, 0x4D0, 0x52F);
}
bool alternates_from_odd(char32_t point) { return in(point, 0x139, 0x148) || in(point, 0x179, 0x17E) || in(point, 0x4C1, 0x4CE); }

bool ends_word(char32_t point) { return is_space(point) || point == '-' || point == '(' || point == '{' || point == '[' || point == '<'; }

char32_t to_upper(char32_t point) {
  if (point < 0x80) return in(point, 'a', 'z') ? point - 32 : point;
  if (point == 0xB5) return 0x39C;
  if (point == 0xFF) return 0x178;
  if (in(point, 0xE0, 0xFE)) return point == 0xF7 ? point : point - 32;
  if (alternates_from_even(point)) return point & ~char32_t{1};
  if (alternates_from_odd(point)) return point % 2 == 0 ? point - 1 : point;
  if (in(point, 0x3B1, 0x3CB)) return point == 0x3C2 ? 0x3A3 : point - 32;
  if (in(point, 0x430, 0x44F)) return point - 32;
  if (in(point, 0x450, 0x45F)) return point - 80;
  if (in(point, 0x561, 0x586)) return point - 48;
  if (in(point, 0xFF41, 0xFF5A)) return point - 32;
  switch (point) {
    case 0x3AC: return 0x386;
    case 0x3AD: return 0x388;
    case 0x3AE: return 0x389;
    case 0x3AF: return 0x38A;
    case 0x3CC: return 0x38C;
    case 0x3CD: return 0x38E;
    case 0x3CE: return 0x38F;
    default: return point;
  }
}

}  // namespace

bool is_letter(char32_t point) { return properties(point).in(kLetterMask); }

MarkedText change_case(const MarkedText& text, Case to) {
  MarkedText out;
  out.text.reserve(text.text.size());
  bool start = true;  // of the text or of a word
  std::string piece;
  for (size_t at = 0; at < text.text.size();) {
    const size_t bytes = code_point_bytes(text.text, at);
    const char32_t point = code_point(text.text, at);
    const bool stray = bytes == 1 && static_cast<unsigned char>(text.text[at]) >= 0x80;
    const bool upper = to == Case::kUpper || (start && to != Case::kLower);
    piece.clear();
    if (stray) {
      piece = text.text[at];
    } else if (upper && point == 0xDF) {
      piece = to == Case::kUpper ? "SS" : "Ss";
    } else if (upper) {
      append_utf8(piece, to_upper(point));
    } else {
      append_lower(piece, point);
    }
    append(out, piece, is_literal(text, at) ? Mark::kLiteral : Mark::kValue);
    start = to == Case::kTitle ? !is_letter(point) : to == Case::kWords && ends_word(point);
    at += bytes;
  }
  return out;
}

}  // namespace lathe::text::jinja
