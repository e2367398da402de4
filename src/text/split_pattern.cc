// translate_pattern: Oniguruma's dialect, as tokenizer files use it, in PCRE2 syntax. See split_regex.h for the contract.

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include "text/split_regex.h"
#include "text/unicode.h"

namespace lathe::text {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};
using Ranges = std::vector<Range>;

constexpr char32_t kCodes = 0x110000;

void append_code(Ranges& ranges, char32_t code) {
  if (!ranges.empty() && ranges.back().last + 1 == code) {
    ranges.back().last = code;
  } else {
    ranges.push_back({code, code});
  }
}

template <class Predicate>
Ranges ranges_where(Predicate predicate) {
  Ranges out;
  for (char32_t code = 0; code < kCodes; ++code) {
    if ((code < 0xD800 || code >= 0xE000) && predicate(code)) append_code(out, code);
  }
  return out;
}

std::string class_ranges(const Ranges& ranges) {
  std::string out;
  for (const Range& range : ranges)
    out += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", static_cast<uint32_t>(range.first), static_cast<uint32_t>(range.last));
  return out;
}

/// All assigned characters but those of large old blocks, on which every version of Unicode agrees.
const std::string& probe_text() {
  static const std::string kText = [] {
    constexpr Range kOldBlocks[] = {{0x4E00, 0x9FA5},   {0xAC00, 0xD7A3},   {0xD800, 0xF8FF},
                                    {0x17000, 0x187EC}, {0x20000, 0x2A6D6}, {0xF0000, 0x10FFFF}};
    std::string text;
    for (char32_t code = 0; code < kCodes; ++code) {
      for (const Range& block : kOldBlocks) code = code >= block.first && code <= block.last ? block.last + 1 : code;
      if (code < kCodes && properties(code).category() != kCn) append_utf8(text, code);
    }
    return text;
  }();
  return kText;
}

/// Class items for a general category of our tables. PCRE2 has its own, maybe older tables (Unicode 14 in version 10.42): its property serves where it
/// lacks nothing but new characters, which are added; where a character has changed sides, ours are spelled out.
std::string category_items(std::string_view short_name, CategoryMask mask) {
  const auto all = [&] { return class_ranges(ranges_where([&](char32_t code) { return properties(code).in(mask); })); };
  auto regex = Regex::compile_pcre2(fmt::format("\\p{{{}}}+", short_name));
  if (!regex) return all();
  const std::string_view text = probe_text();
  Regex::Matcher matcher(*regex);
  Ranges missing;
  for (size_t at = 0; at < text.size();) {
    const auto match = matcher.find(text, at);
    const size_t begin = match && *match ? (*match)->begin : text.size();
    const size_t end = match && *match ? (*match)->end : text.size();
    while (at < end) {
      const bool theirs = at >= begin;
      const Decoded decoded = decode_utf8(text, at);
      const bool ours = properties(decoded.code).in(mask);
      if (theirs && !ours) return all();
      if (!theirs && ours) append_code(missing, decoded.code);
      at += decoded.length;
    }
  }
  return fmt::format("\\p{{{}}}{}", short_name, class_ranges(missing));
}

struct CategoryName {
  std::string_view name;  // as normalised by property_key
  std::string_view short_name;
  CategoryMask mask;
};

constexpr std::array kCategoryNames = {
    CategoryName{"letter", "L", kLetterMask},
    CategoryName{"mark", "M", kMarkMask},
    CategoryName{"number", "N", kNumberMask},
    CategoryName{"punctuation", "P", kPunctuationMask},
    CategoryName{"symbol", "S", kSymbolMask},
    CategoryName{"separator", "Z", kSeparatorMask},
    CategoryName{"uppercaseletter", "Lu", 1u << kLu},
    CategoryName{"lowercaseletter", "Ll", 1u << kLl},
    CategoryName{"titlecaseletter", "Lt", 1u << kLt},
    CategoryName{"modifierletter", "Lm", 1u << kLm},
    CategoryName{"otherletter", "Lo", 1u << kLo},
    CategoryName{"nonspacingmark", "Mn", 1u << kMn},
    CategoryName{"spacingmark", "Mc", 1u << kMc},
    CategoryName{"enclosingmark", "Me", 1u << kMe},
    CategoryName{"decimalnumber", "Nd", 1u << kNd},
    CategoryName{"letternumber", "Nl", 1u << kNl},
    CategoryName{"othernumber", "No", 1u << kNo},
    CategoryName{"connectorpunctuation", "Pc", 1u << kPc},
    CategoryName{"dashpunctuation", "Pd", 1u << kPd},
    CategoryName{"openpunctuation", "Ps", 1u << kPs},
    CategoryName{"closepunctuation", "Pe", 1u << kPe},
    CategoryName{"initialpunctuation", "Pi", 1u << kPi},
    CategoryName{"finalpunctuation", "Pf", 1u << kPf},
    CategoryName{"otherpunctuation", "Po", 1u << kPo},
    CategoryName{"mathsymbol", "Sm", 1u << kSm},
    CategoryName{"currencysymbol", "Sc", 1u << kSc},
    CategoryName{"modifiersymbol", "Sk", 1u << kSk},
    CategoryName{"othersymbol", "So", 1u << kSo},
    CategoryName{"spaceseparator", "Zs", 1u << kZs},
    CategoryName{"lineseparator", "Zl", 1u << kZl},
    CategoryName{"paragraphseparator", "Zp", 1u << kZp},
    CategoryName{"control", "Cc", 1u << kCc},
    CategoryName{"format", "Cf", 1u << kCf},
    CategoryName{"privateuse", "Co", 1u << kCo},
};

/// Scripts that split patterns name, with their characters of Unicode 15 and 16, for a PCRE2 that lacks them. Others are refused: a script
/// that grew would silently miss characters.
struct ScriptName {
  std::string_view name;
  std::string_view pcre2;
  std::string_view additions;
};
constexpr std::array kScripts = {
    ScriptName{"han", "Han", "\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"},
    ScriptName{"hiragana", "Hiragana", "\\x{1b132}"},
    ScriptName{"katakana", "Katakana", "\\x{1b155}"},
    ScriptName{"hangul", "Hangul", ""},
    ScriptName{"thai", "Thai", ""},
    ScriptName{"greek", "Greek", ""},
    ScriptName{"hebrew", "Hebrew", ""},
};

constexpr std::string_view kSpaces = "\\t-\\r\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
/// Oniguruma's \w: alphabetic characters, marks, decimal digits, connectors, and six fractions and superscripts of Latin-1.
constexpr std::string_view kWords =
    "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}";
constexpr CategoryMask kWordMask = kLetterMask | kMarkMask | 1u << kNd | 1u << kNl | 1u << kPc;

bool is_onig_word(char32_t code) {
  const bool latin = code == 0xB2 || code == 0xB3 || code == 0xB9 || (code >= 0xBC && code <= 0xBE);
  const bool circled = (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) || (code >= 0x1F150 && code <= 0x1F169) ||
                       (code >= 0x1F170 && code <= 0x1F189);
  return latin || circled || properties(code).in(kWordMask);
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> run() {
    while (at_ < in_.size()) LATHE_TRY_VOID(item());
    return std::move(out_);
  }

 private:
  template <class... Args>
  tl::unexpected<Error> refuse(fmt::format_string<Args...> reason, Args&&... args) const {
    return err(Code::kUnimplemented, "regular expression '{}', byte {}: {}", in_, at_, fmt::format(reason, std::forward<Args>(args)...));
  }
  bool looking_at(std::string_view what) const { return in_.substr(at_).starts_with(what); }
  char peek(size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }

  Result<void> item() {
    switch (peek()) {
      case '\\': return escape(out_, Place::kOutside);
      case '[': return char_class();
      case '(': return group();
      case '{': return braces();
      default: out_ += in_[at_++]; return {};
    }
  }

  Result<void> group() {
    if (!looking_at("(?")) {
      out_ += in_[at_++];
      return {};
    }
    for (const std::string_view known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (!looking_at(known)) continue;
      out_ += known;
      at_ += known.size();
      return {};
    }
    const size_t end = in_.find_first_of(":)", at_);
    if (end == std::string_view::npos) return refuse("unfinished group");
    std::string flags(in_.substr(at_ + 2, end - at_ - 2));
    if (flags.empty() || flags.find_first_not_of("im-") != std::string::npos)
      return refuse("group '{}' is not supported", in_.substr(at_, end - at_ + 1));
    if (in_[end] == ')' && at_ != 0) return refuse("flags for the rest of a group are supported at the start of the pattern only");
    std::replace(flags.begin(), flags.end(), 'm', 's');  // Oniguruma's m lets the dot match line ends
    out_ += "(?" + flags + in_[end];
    at_ = end + 1;
    return {};
  }

  Result<void> braces() {
    const size_t end = in_.find('}', at_);
    const std::string_view inside = end == std::string_view::npos ? "" : in_.substr(at_ + 1, end - at_ - 1);
    const bool quantifier = !inside.empty() && inside != "," && inside.find_first_not_of("0123456789,") == std::string_view::npos;
    if (!quantifier) {
      out_ += "\\{";
      ++at_;
      return {};
    }
    if (end + 1 < in_.size() && in_[end + 1] == '+')
      return refuse("'{{{}}}+' repeats the repetition in Oniguruma and is possessive elsewhere", inside);
    out_ += inside.front() == ',' ? fmt::format("{{0{}}}", inside) : fmt::format("{{{}}}", inside);
    at_ = end + 1;
    return {};
  }

  enum class Place : uint8_t { kOutside, kClass };

  /// An escape, to `out`; in a class what it stands for must be a list of ranges and properties.
  Result<void> escape(std::string& out, Place place) {
    const bool in_class = place == Place::kClass;
    if (at_ + 1 >= in_.size()) return refuse("the pattern ends in a backslash");
    const char c = in_[at_ + 1];
    if (c == 'p' || c == 'P') return property(out, place);
    at_ += 2;
    const auto set = [&](const std::string& ranges, bool negated) { out += in_class ? ranges : fmt::format("[{}{}]", negated ? "^" : "", ranges); };
    switch (c) {
      case 's': set(std::string(kSpaces), false); return {};
      case 'd': set(category_items("Nd", 1u << kNd), false); return {};
      case 'w': set(word_ranges(), false); return {};
      case 'S':
        set(in_class ? class_ranges(ranges_where([](char32_t code) { return !properties(code).white_space(); })) : std::string(kSpaces), true);
        return {};
      case 'D':
        set(in_class ? class_ranges(ranges_where([](char32_t code) { return properties(code).category() != kNd; })) : category_items("Nd", 1u << kNd),
            true);
        return {};
      case 'W': set(in_class ? class_ranges(ranges_where([](char32_t code) { return !is_onig_word(code); })) : word_ranges(), true); return {};
      case 'v': out += "\\x0b"; return {};
      case 'u': return unicode_escape(out);
      default: break;
    }
    const bool same =
        std::string_view("nrtfaex").find(c) != std::string_view::npos || (!in_class && std::string_view("AzZ").find(c) != std::string_view::npos);
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 && !same) return refuse("escape '\\{}' is not supported", c);
    if (static_cast<unsigned char>(c) < 0x80) out += '\\';
    out += c;
    return {};
  }

  Result<void> unicode_escape(std::string& out) {
    const std::string_view digits = in_.substr(at_, 4);
    if (digits.size() != 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
      return refuse("'\\u' needs four hexadecimal digits");
    out += fmt::format("\\x{{{}}}", digits);
    at_ += 4;
    return {};
  }

  static std::string word_ranges() {
    return category_items("L", kLetterMask) + category_items("M", kMarkMask) + category_items("Nd", 1u << kNd) + category_items("Nl", 1u << kNl) +
           category_items("Pc", 1u << kPc) + std::string(kWords);
  }

  Result<void> property(std::string& out, Place place) {
    const bool in_class = place == Place::kClass;
    const size_t end = in_.find('}', at_);
    if (peek(2) != '{' || end == std::string_view::npos) return refuse("a property is written \\p{{NAME}}");
    std::string_view name = in_.substr(at_ + 3, end - at_ - 3);
    bool negated = peek(1) == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    std::string key;
    for (const char c : name) {
      if (c != ' ' && c != '_' && c != '-') key += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    const auto short_key = [](std::string_view text) {
      std::string lower(text);
      for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      return lower;
    };
    const auto category = std::find_if(kCategoryNames.begin(), kCategoryNames.end(),
                                       [&](const CategoryName& known) { return key == known.name || key == short_key(known.short_name); });
    const auto script = std::find_if(kScripts.begin(), kScripts.end(), [&](const ScriptName& known) { return key == known.name; });
    if (category == kCategoryNames.end() && script == kScripts.end()) return refuse("property '{}' is not supported", name);
    std::string ranges;
    if (category != kCategoryNames.end()) {
      ranges = in_class && negated ? class_ranges(ranges_where([&](char32_t code) { return !properties(code).in(category->mask); }))
                                   : category_items(category->short_name, category->mask);
    } else {
      if (in_class && negated) return refuse("a negated script inside a class is not supported");
      ranges = fmt::format("\\p{{sc:{}}}{}", script->pcre2, script->additions);
    }
    at_ = end + 1;
    out += in_class ? ranges : fmt::format("[{}{}]", negated ? "^" : "", ranges);
    return {};
  }

  /// One operand of a class up to `]` or `&&`, without its brackets.
  Result<std::string> class_items() {
    std::string items;
    while (at_ < in_.size() && (peek() != ']' || items.empty()) && !looking_at("&&")) {
      if (peek() == '\\') {
        LATHE_TRY_VOID(escape(items, Place::kClass));
      } else if (peek() == '[') {
        return refuse("a class inside a class is not supported");
      } else {
        if (peek() == ']') items += '\\';
        items += in_[at_++];
      }
    }
    if (at_ >= in_.size()) return refuse("unfinished class");
    return items;
  }

  Result<void> char_class() {
    ++at_;
    const bool negated = peek() == '^';
    if (negated) ++at_;
    LATHE_TRY(const std::string left, class_items());
    if (peek() == ']') {
      ++at_;
      out_ += fmt::format("[{}{}]", negated ? "^" : "", left);
      return {};
    }
    at_ += 2;  // &&
    const bool bracketed = peek() == '[';
    if (bracketed) ++at_;
    const bool right_negated = bracketed && peek() == '^';
    if (right_negated) ++at_;
    LATHE_TRY(const std::string right, class_items());
    if (bracketed && peek() == ']') ++at_;
    if (peek() != ']' || left.empty() || right.empty()) return refuse("only the intersection of two simple classes is supported");
    ++at_;
    const std::string both = fmt::format("(?{}[{}])[{}]", right_negated ? '!' : '=', right, left);
    out_ += negated ? fmt::format("(?:(?!{})(?s:.))", both) : fmt::format("(?:{})", both);
    return {};
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> translate_pattern(std::string_view pattern) { return Translator(pattern).run(); }

}  // namespace lathe::text
