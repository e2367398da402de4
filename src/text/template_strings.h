#pragma once
// Strings with marks: every operation keeps the mark of every byte that it keeps. All linear in the bytes they read and write.
// Positions that templates see (length, index, slice) are code points; a byte that is no valid UTF-8 counts as one.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "text/marked_text.h"

namespace lathe::text::jinja {

enum class Mark : uint8_t { kValue, kLiteral };

void append(MarkedText& out, std::string_view bytes, Mark mark);
void append(MarkedText& out, const MarkedText& more);
/// Appends bytes [begin, end) of `from`.
void append_range(MarkedText& out, const MarkedText& from, size_t begin, size_t end);
MarkedText substring(const MarkedText& text, size_t begin, size_t end);
bool is_literal(const MarkedText& text, size_t at);

/// Bytes of the code point that begins at `at` (1 for a stray byte).
size_t code_point_bytes(std::string_view text, size_t at);
char32_t code_point(std::string_view text, size_t at);
size_t count_code_points(std::string_view text);
/// Byte offset of every code point, and the size at the end.
std::vector<size_t> code_point_offsets(std::string_view text);

/// What Python's str.strip() removes.
bool is_space(char32_t point);
enum class Side : uint8_t { kLeft, kRight, kBoth };
/// Range left after stripping whitespace, or the code points of `characters` if that is not null.
LiteralSpan strip_range(std::string_view text, Side side, const std::string_view* characters = nullptr);

/// First occurrence at or after `from`, npos if none; linear for every needle.
size_t find_text(std::string_view text, std::string_view needle, size_t from = 0);
/// Takes the units of work (template_operations.h) that each hit or piece costs; false when there are none left: stop.
using Pay = base::FunctionRef<bool(uint64_t)>;
inline constexpr uint64_t kHitUnits = 8;
inline constexpr uint64_t kPieceUnits = 16;

enum class Replaced : uint8_t { kDone, kTooLarge, kNotPaid };
struct Replacement {
  std::string_view from;
  const MarkedText& to;
  int64_t count_max = -1;  ///< < 0: all
  size_t bytes_max = SIZE_MAX;
};
/// Python's str.replace. kTooLarge if the result exceeds `bytes_max`.
Replaced replace_text(MarkedText& out, const MarkedText& text, const Replacement& what, Pay pay);
struct Splitting {
  std::string_view separator;  ///< empty: runs of whitespace
  int64_t count_max = -1;      ///< < 0: all
  enum class From : uint8_t { kLeft, kRight } from = From::kLeft;
};
/// Python's str.split, and str.rsplit from the right. False if it was not paid.
bool split_text(std::vector<MarkedText>& pieces, const MarkedText& text, const Splitting& how, Pay pay);
bool split_lines(std::vector<MarkedText>& lines, const MarkedText& text, Pay pay);

/// kTitle is Python's str.title, kWords the `title` filter, which knows fewer word borders.
enum class Case : uint8_t { kUpper, kLower, kTitle, kWords, kCapitalize };
/// Lower case is Unicode's; upper case maps Latin, Greek, Cyrillic and Armenian letters (ß to SS) and leaves others.
MarkedText change_case(const MarkedText& text, Case to);
bool is_letter(char32_t point);

}  // namespace lathe::text::jinja
