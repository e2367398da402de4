#include "text/unicode.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace lathe::text {
namespace {

// Hangul syllables are computed (Unicode 16.0, section 3.12): L V and LV T pairs.
constexpr char32_t kSyllableBase = 0xAC00;
constexpr char32_t kLeadBase = 0x1100;
constexpr char32_t kVowelBase = 0x1161;
constexpr char32_t kTailBase = 0x11A7;  // one before the first tail: tail 0 means none
constexpr char32_t kLeads = 19;
constexpr char32_t kVowels = 21;
constexpr char32_t kTails = 28;
constexpr char32_t kSyllables = kLeads * kVowels * kTails;

const Decomposition* find_decomposition(std::span<const Decomposition> table, char32_t code) {
  const auto it = std::lower_bound(table.begin(), table.end(), code, [](const Decomposition& entry, char32_t value) { return entry.code < value; });
  return it != table.end() && it->code == code ? &*it : nullptr;
}

/// 0 for starters.
uint8_t combining_rank(char32_t code) {
  if (code < 0x300) return 0;
  const auto it = std::upper_bound(kCombiningRanges.begin(), kCombiningRanges.end(), code,
                                   [](char32_t value, const CombiningRange& range) { return value < range.first; });
  if (it == kCombiningRanges.begin()) return 0;
  return code <= std::prev(it)->last ? std::prev(it)->rank : uint8_t{0};
}

void decompose(char32_t code, Form form, std::u32string& out) {
  if (code >= kSyllableBase && code < kSyllableBase + kSyllables) {
    const char32_t index = code - kSyllableBase;
    out.push_back(kLeadBase + index / (kVowels * kTails));
    out.push_back(kVowelBase + index / kTails % kVowels);
    if (index % kTails != 0) out.push_back(kTailBase + index % kTails);
    return;
  }
  const Decomposition* entry = form == Form::kNfkc || form == Form::kNfkd ? find_decomposition(kCompatibleDecompositions, code) : nullptr;
  if (entry == nullptr) entry = find_decomposition(kCanonicalDecompositions, code);
  if (entry == nullptr) {
    out.push_back(code);
  } else {
    out.append(kDecompositionPool + entry->offset, entry->length);
  }
}

std::optional<char32_t> compose_pair(char32_t first, char32_t second) {
  if (first >= kLeadBase && first < kLeadBase + kLeads && second >= kVowelBase && second < kVowelBase + kVowels) {
    return kSyllableBase + ((first - kLeadBase) * kVowels + (second - kVowelBase)) * kTails;
  }
  const bool open_syllable = first >= kSyllableBase && first < kSyllableBase + kSyllables && (first - kSyllableBase) % kTails == 0;
  if (open_syllable && second > kTailBase && second < kTailBase + kTails) return first + (second - kTailBase);
  const auto key = std::pair(first, second);
  const auto it = std::lower_bound(kCompositions.begin(), kCompositions.end(), key,
                                   [](const Composition& entry, const auto& value) { return std::pair(entry.first, entry.second) < value; });
  if (it == kCompositions.end() || it->first != first || it->second != second) return std::nullopt;
  return it->composed;
}

using Ranked = std::pair<char32_t, uint8_t>;  // character, combining rank

/// Puts the marks after each starter in canonical order.
void reorder(std::vector<Ranked>& run) {
  const auto by_rank = [](const Ranked& a, const Ranked& b) { return a.second < b.second; };
  for (size_t begin = 0; begin < run.size();) {
    if (run[begin].second == 0) {
      ++begin;
      continue;
    }
    size_t end = begin + 1;
    while (end < run.size() && run[end].second != 0) ++end;
    std::stable_sort(run.begin() + static_cast<std::ptrdiff_t>(begin), run.begin() + static_cast<std::ptrdiff_t>(end), by_rank);
    begin = end;
  }
}

/// Canonical composition: a mark joins the last starter unless an uncomposed mark of the same or a higher rank stands between.
void compose(const std::vector<Ranked>& run, std::u32string& out) {
  std::optional<size_t> starter;  // its place in out
  int last_rank = -1;             // rank of the last character kept after the starter; -1: none
  for (const auto& [code, rank] : run) {
    if (starter && last_rank < static_cast<int>(rank)) {
      if (const auto composed = compose_pair(out[*starter], code)) {
        out[*starter] = *composed;
        continue;
      }
    }
    if (rank == 0) {
      starter = out.size();
      last_rank = -1;
    } else {
      last_rank = rank;
    }
    out.push_back(code);
  }
}

/// The form of a run of characters, appended to `out`.
void normalize_codes(std::u32string_view codes, Form form, std::string& out) {
  std::u32string expanded;
  for (const char32_t code : codes) decompose(code, form, expanded);
  std::vector<Ranked> run;
  run.reserve(expanded.size());
  for (const char32_t code : expanded) run.emplace_back(code, combining_rank(code));
  reorder(run);
  if (form == Form::kNfc || form == Form::kNfkc) {
    std::u32string composed;
    compose(run, composed);
    for (const char32_t code : composed) append_utf8(out, code);
  } else {
    for (const Ranked& ranked : run) append_utf8(out, ranked.first);
  }
}

}  // namespace

void normalize_pieces(std::string_view text, Form form, base::FunctionRef<void(std::string_view, std::string_view)> emit) {
  size_t unchanged = 0;  // begin of the run that waits to be emitted as it is
  std::u32string codes;
  std::string normal;
  for (size_t at = 0; at < text.size();) {
    const Decoded head = decode_utf8(text, at);
    codes.assign(1, head.code);
    size_t end = at + head.length;
    while (end < text.size()) {
      const Decoded next = decode_utf8(text, end);
      if (stable(next.code, form)) break;
      codes.push_back(next.code);
      end += next.length;
    }
    if (codes.size() > 1 || !stable(head.code, form)) {
      normal.clear();
      normalize_codes(codes, form, normal);
      const std::string_view source = text.substr(at, end - at);
      if (normal != source) {
        if (unchanged < at) emit(text.substr(unchanged, at - unchanged), text.substr(unchanged, at - unchanged));
        emit(source, normal);
        unchanged = end;
      }
    }
    at = end;
  }
  if (unchanged < text.size()) emit(text.substr(unchanged), text.substr(unchanged));
}

std::string normalize(std::string_view text, Form form) {
  std::string out;
  out.reserve(text.size());
  normalize_pieces(text, form, [&](std::string_view, std::string_view result) { out += result; });
  return out;
}

void append_lower(std::string& out, char32_t code) {
  if (code < 0x80) {
    out.push_back(static_cast<char>(code >= 'A' && code <= 'Z' ? code + 32 : code));
    return;
  }
  if (!properties(code).lowers()) {
    append_utf8(out, code);
    return;
  }
  const auto it = std::lower_bound(kLowerMappings.begin(), kLowerMappings.end(), code,
                                   [](const CaseMapping& entry, char32_t value) { return entry.code < value; });
  append_utf8(out, it->mapped);
  if (code == 0x130) append_utf8(out, 0x307);  // the one unconditional mapping to two characters
}

}  // namespace lathe::text
