#include "text/template_strings.h"

#include <string.h>

#include <algorithm>
#include <array>
#include <unordered_set>

#include "text/utf8.h"

namespace lathe::text::jinja {
namespace {

void mark_literal(MarkedText& out, size_t begin, size_t end) {
  if (begin == end) return;
  if (!out.literal.empty() && out.literal.back().end == begin) {
    out.literal.back().end = end;
  } else {
    out.literal.push_back({begin, end});
  }
}

/// The first span that ends behind `at`.
std::vector<LiteralSpan>::const_iterator span_from(const MarkedText& text, size_t at) {
  return std::upper_bound(text.literal.begin(), text.literal.end(), at, [](size_t value, const LiteralSpan& span) { return value < span.end; });
}

/// Pieces of a text at whitespace; the rest after `count_max` pieces stays whole.
bool split_at_spaces(std::vector<MarkedText>& pieces, const MarkedText& text, int64_t count_max, Pay pay) {
  size_t at = strip_range(text.text, Side::kLeft).begin;
  while (at < text.text.size()) {
    if (!pay(kPieceUnits)) return false;
    if (count_max >= 0 && static_cast<int64_t>(pieces.size()) == count_max) {
      pieces.push_back(substring(text, at, strip_range(text.text, Side::kRight).end));
      break;
    }
    size_t end = at;
    while (end < text.text.size() && !is_space(code_point(text.text, end))) end += code_point_bytes(text.text, end);
    pieces.push_back(substring(text, at, end));
    while (end < text.text.size() && is_space(code_point(text.text, end))) end += code_point_bytes(text.text, end);
    at = end;
  }
  return true;
}

}  // namespace

void append(MarkedText& out, std::string_view bytes, Mark mark) {
  const size_t begin = out.text.size();
  out.text += bytes;
  if (mark == Mark::kLiteral) mark_literal(out, begin, out.text.size());
}

void append(MarkedText& out, const MarkedText& more) { append_range(out, more, 0, more.text.size()); }

void append_range(MarkedText& out, const MarkedText& from, size_t begin, size_t end) {
  if (begin >= end) return;
  const size_t shift = out.text.size();
  out.text.append(from.text, begin, end - begin);
  for (auto span = span_from(from, begin); span != from.literal.end() && span->begin < end; ++span) {
    mark_literal(out, shift + std::max(span->begin, begin) - begin, shift + std::min(span->end, end) - begin);
  }
}

MarkedText substring(const MarkedText& text, size_t begin, size_t end) {
  MarkedText out;
  append_range(out, text, begin, end);
  return out;
}

bool is_literal(const MarkedText& text, size_t at) {
  const auto span = span_from(text, at);
  return span != text.literal.end() && span->begin <= at;
}

size_t code_point_bytes(std::string_view text, size_t at) {
  const Utf8Step step = utf8_step(text, at);
  return step.kind == Utf8::kValid ? step.length : 1;
}

char32_t code_point(std::string_view text, size_t at) { return utf8_step(text, at).kind == Utf8::kValid ? decode_utf8(text, at).code : 0xFFFD; }

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += code_point_bytes(text, at)) ++count;
  return count;
}

std::vector<size_t> code_point_offsets(std::string_view text) {
  std::vector<size_t> offsets;
  offsets.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size(); at += code_point_bytes(text, at)) offsets.push_back(at);
  offsets.push_back(text.size());
  return offsets;
}

bool is_space(char32_t point) {
  return (point >= 0x09 && point <= 0x0D) || (point >= 0x1C && point <= 0x20) || point == 0x85 || point == 0xA0 || point == 0x1680 ||
         (point >= 0x2000 && point <= 0x200A) || point == 0x2028 || point == 0x2029 || point == 0x202F || point == 0x205F || point == 0x3000;
}

LiteralSpan strip_range(std::string_view text, Side side, const std::string_view* characters) {
  std::array<bool, 128> ascii{};
  std::unordered_set<char32_t> others;
  if (characters != nullptr) {
    for (size_t at = 0; at < characters->size(); at += code_point_bytes(*characters, at)) {
      const char32_t point = code_point(*characters, at);
      if (point < ascii.size()) {
        ascii[point] = true;
      } else {
        others.insert(point);
      }
    }
  }
  const auto drop = [&](char32_t point) {
    if (characters == nullptr) return is_space(point);
    return point < ascii.size() ? ascii[point] : others.contains(point);
  };
  size_t begin = 0;
  size_t end = text.size();
  if (side != Side::kRight) {
    while (begin < end && drop(code_point(text, begin))) begin += code_point_bytes(text, begin);
  }
  while (side != Side::kLeft && end > begin) {
    size_t last = end - 1;
    while (last > begin && end - last < 4 && (static_cast<unsigned char>(text[last]) & 0xC0u) == 0x80u) --last;
    if (last + code_point_bytes(text, last) != end) last = end - 1;  // a stray continuation byte
    if (!drop(code_point(text, last))) break;
    end = last;
  }
  return {begin, end};
}

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  // The C library's search is linear in the worst case, std::string_view::find is not. In windows that grow, so that a near hit costs little however long
  // the text is: checking tools look at everything that the library may read.
  for (size_t window = std::max<size_t>(256, 4 * needle.size());; window *= 4) {
    const size_t size = std::min(window, text.size() - from);
    const void* hit = memmem(text.data() + from, size, needle.data(), needle.size());
    if (hit != nullptr) return static_cast<size_t>(static_cast<const char*>(hit) - text.data());
    if (from + size == text.size()) return std::string_view::npos;
    from += size - needle.size() + 1;
  }
}

Replaced replace_text(MarkedText& out, const MarkedText& text, const Replacement& what, Pay pay) {
  const auto& [from, to, count_max, bytes_max] = what;
  const uint64_t hit_units = kHitUnits + from.size() / 8 + to.text.size() / 8 + to.literal.size();
  size_t at = 0;
  for (int64_t count = 0; count_max < 0 || count < count_max; ++count) {
    const size_t hit = find_text(text.text, from, at);
    if (hit == std::string_view::npos) break;
    if (!pay(hit_units)) return Replaced::kNotPaid;
    // An empty needle stands before every code point and at the end.
    const size_t step = !from.empty() ? from.size() : hit < text.text.size() ? code_point_bytes(text.text, hit) : 1;
    append_range(out, text, at, hit);
    append(out, to);
    if (from.empty()) append_range(out, text, hit, std::min(hit + step, text.text.size()));
    at = hit + step;
    if (out.text.size() > bytes_max) return Replaced::kTooLarge;
  }
  append_range(out, text, at, text.text.size());
  return out.text.size() <= bytes_max ? Replaced::kDone : Replaced::kTooLarge;
}

bool split_text(std::vector<MarkedText>& pieces, const MarkedText& text, const Splitting& how, Pay pay) {
  const auto& [separator, count_max, from] = how;
  const bool from_right = from == Splitting::From::kRight;
  if (separator.empty()) return split_at_spaces(pieces, text, count_max, pay);
  std::vector<size_t> hits;
  for (size_t hit = find_text(text.text, separator); hit != std::string_view::npos; hit = find_text(text.text, separator, hit + separator.size())) {
    if (!from_right && count_max >= 0 && static_cast<int64_t>(hits.size()) == count_max) break;
    if (!pay(kHitUnits + separator.size() / 8)) return false;
    hits.push_back(hit);
  }
  if (!pay(kPieceUnits * hits.size())) return false;
  if (from_right && count_max >= 0 && static_cast<int64_t>(hits.size()) > count_max) {
    hits.erase(hits.begin(), hits.end() - static_cast<ptrdiff_t>(count_max));
  }
  pieces.reserve(hits.size() + 1);
  size_t at = 0;
  for (const size_t hit : hits) {
    pieces.push_back(substring(text, at, hit));
    at = hit + separator.size();
  }
  pieces.push_back(substring(text, at, text.text.size()));
  return true;
}

bool split_lines(std::vector<MarkedText>& lines, const MarkedText& text, Pay pay) {
  size_t begin = 0;
  while (begin < text.text.size()) {
    if (!pay(kPieceUnits)) return false;
    const size_t end = std::min(text.text.find_first_of("\r\n", begin), text.text.size());
    lines.push_back(substring(text, begin, end));
    begin = end + (text.text.compare(end, 2, "\r\n") == 0 ? 2 : 1);
  }
  return true;
}

}  // namespace lathe::text::jinja
