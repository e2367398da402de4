// Methods of strings, lists, dicts and loop.
#include <algorithm>

#include "text/template_operations.h"

namespace lathe::text::jinja {
namespace {

using Method = Result<Value> (*)(Runtime&, const MarkedText&, const CallArgs&);

Result<Value> cased(Runtime& r, const MarkedText& self, const CallArgs& args, Case to) {
  LATHE_TRY_VOID(bind(r, args, {}));
  LATHE_TRY_VOID(r.charge_walk(self, 2));
  return r.string(change_case(self, to));
}

Result<Value> stripped(Runtime& r, const MarkedText& self, const CallArgs& args, Side side) {
  LATHE_TRY(const auto bound, bind(r, args, {"chars"}));
  std::string_view characters;
  const bool given = bound[0] != nullptr && !bound[0]->is_none();
  if (given) {
    LATHE_TRY(const MarkedText* chars, string_argument(r, bound[0], "chars"));
    characters = chars->text;
    LATHE_TRY_VOID(r.charge(8 * characters.size()));
  }
  const LiteralSpan kept = strip_range(self.text, side, given ? &characters : nullptr);
  LATHE_TRY_VOID(r.charge(self.text.size() - (kept.end - kept.begin)));
  return r.string(substring(self, kept.begin, kept.end));
}

Result<Value> split_method(Runtime& r, const MarkedText& self, const CallArgs& args, Splitting::From from) {
  LATHE_TRY(const auto bound, bind(r, args, {"sep", "maxsplit"}));
  LATHE_TRY(const int64_t count, int_argument(r, bound[1], "maxsplit", -1));
  std::string_view separator;
  if (bound[0] != nullptr && !bound[0]->is_none()) {
    LATHE_TRY(const MarkedText* given, string_argument(r, bound[0], "sep"));
    if (given->text.empty()) return r.fail("an empty separator splits nothing");
    separator = given->text;
  }
  if (from == Splitting::From::kRight && separator.empty() && count >= 0) return r.fail("'rsplit' with a count needs a separator");
  if (separator.empty()) {
    LATHE_TRY_VOID(r.charge(self.text.size()));
  } else {
    LATHE_TRY_VOID(r.charge_search(self.text, separator));
  }
  const Splitting how{.separator = separator, .count_max = count, .from = from};
  std::vector<MarkedText> texts;
  if (!split_text(texts, self, how, [&](uint64_t units) { return r.pay(units); })) return r.out_of_budget();
  std::vector<Value> pieces;
  pieces.reserve(texts.size());
  for (MarkedText& piece : texts) {
    LATHE_TRY(Value value, r.string(std::move(piece)));
    pieces.push_back(std::move(value));
  }
  return r.list(std::move(pieces));
}

enum class End : uint8_t { kStart, kEnd };

/// startswith, endswith: one string or several in a tuple.
Result<Value> has_end(Runtime& r, const MarkedText& self, const CallArgs& args, End end) {
  LATHE_TRY(const auto bound, bind(r, args, {"prefix"}));
  if (bound[0] == nullptr) return r.fail("the argument 'prefix' is missing");
  std::vector<Value> single{*bound[0]};
  const List* several = bound[0]->list();
  for (const Value& part : several == nullptr ? single : several->items) {
    LATHE_TRY(const MarkedText* text, string_argument(r, &part, "prefix"));
    LATHE_TRY_VOID(r.charge(1 + text->text.size() / 16));
    if (end == End::kStart ? self.text.starts_with(text->text) : self.text.ends_with(text->text)) return Value(true);
  }
  return Value(false);
}

Result<Value> replace_method(Runtime& r, const MarkedText& self, const CallArgs& args) {
  LATHE_TRY(const auto bound, bind(r, args, {"old", "new", "count"}));
  LATHE_TRY(const MarkedText* from, string_argument(r, bound[0], "old"));
  LATHE_TRY(const MarkedText* to, string_argument(r, bound[1], "new"));
  LATHE_TRY(const int64_t count, int_argument(r, bound[2], "count", -1));
  return replaced(r, self, {.from = from->text, .to = *to, .count_max = count});
}

enum class Hit : uint8_t { kFirst, kLast };
enum class NoHit : uint8_t { kMinusOne, kError };
struct Search {
  Hit which = Hit::kFirst;
  NoHit otherwise = NoHit::kMinusOne;
};

/// find, rfind, index: the position in code points.
Result<Value> position(Runtime& r, const MarkedText& self, const CallArgs& args, Search search) {
  LATHE_TRY(const auto bound, bind(r, args, {"sub"}));
  LATHE_TRY(const MarkedText* part, string_argument(r, bound[0], "sub"));
  LATHE_TRY_VOID(r.charge_search(self.text, part->text));
  size_t hit = find_text(self.text, part->text);
  if (search.which == Hit::kLast && hit != std::string::npos) {
    for (size_t next = hit; next != std::string::npos && !part->text.empty(); next = find_text(self.text, part->text, next + 1)) {
      LATHE_TRY_VOID(r.charge(kHitUnits + part->text.size()));  // hits may overlap, and each search looks at all of it
      hit = next;
    }
    if (part->text.empty()) hit = self.text.size();
  }
  LATHE_TRY_VOID(r.charge(hit == std::string::npos ? 0 : hit / 2));
  if (hit != std::string::npos) return Value::size(count_code_points(std::string_view(self.text).substr(0, hit)));
  if (search.otherwise == NoHit::kError) return r.fail("the string has no '{}'", part->text.substr(0, 40));
  return Value(int64_t{-1});
}

Result<Value> count_method(Runtime& r, const MarkedText& self, const CallArgs& args) {
  LATHE_TRY(const auto bound, bind(r, args, {"sub"}));
  LATHE_TRY(const MarkedText* part, string_argument(r, bound[0], "sub"));
  LATHE_TRY_VOID(r.charge_search(self.text, part->text));
  if (part->text.empty()) return Value::size(count_code_points(self.text) + 1);
  int64_t count = 0;
  for (size_t hit = find_text(self.text, part->text); hit != std::string::npos; hit = find_text(self.text, part->text, hit + part->text.size())) {
    LATHE_TRY_VOID(r.charge(kHitUnits));
    ++count;
  }
  return Value(count);
}

Result<Value> join_method(Runtime& r, const MarkedText& self, const CallArgs& args) {
  LATHE_TRY(const auto bound, bind(r, args, {"iterable"}));
  if (bound[0] == nullptr) return r.fail("the argument 'iterable' is missing");
  LATHE_TRY(const ListPtr parts, r.elements(*bound[0]));
  MarkedText out;
  for (size_t i = 0; i < parts->items.size(); ++i) {
    const MarkedText* part = parts->items[i].string();
    if (part == nullptr) return r.fail("'join' needs strings, not {}", parts->items[i].kind_name());
    if (i > 0) append(out, self);
    append(out, *part);
    if (out.text.size() > r.bytes_max()) return r.too_large();
    LATHE_TRY_VOID(r.charge(4 + (self.text.size() + part->text.size()) / 8 + self.literal.size() + part->literal.size()));
  }
  return r.string(std::move(out));
}

Result<Value> without_end(Runtime& r, const MarkedText& self, const CallArgs& args, End end) {
  LATHE_TRY(const auto bound, bind(r, args, {"prefix"}));
  LATHE_TRY(const MarkedText* part, string_argument(r, bound[0], "prefix"));
  const size_t size = self.text.size();
  const size_t cut = part->text.size();
  if (end == End::kStart && self.text.starts_with(part->text)) return r.string(substring(self, cut, size));
  if (end == End::kEnd && self.text.ends_with(part->text)) return r.string(substring(self, 0, size - cut));
  return r.string(self);
}

/// isdigit, isalpha, isalnum, isspace: every character, and there is one.
template <class Predicate>
Result<Value> all_characters(Runtime& r, const MarkedText& self, const CallArgs& args, Predicate predicate) {
  LATHE_TRY_VOID(bind(r, args, {}));
  for (size_t at = 0; at < self.text.size(); at += code_point_bytes(self.text, at)) {
    LATHE_TRY_VOID(r.charge(2));
    if (!predicate(code_point(self.text, at))) return Value(false);
  }
  return Value(!self.text.empty());
}

bool is_digit(char32_t point) { return point >= '0' && point <= '9'; }

struct NamedMethod {
  std::string_view name;
  Method method;
};
constexpr NamedMethod kStringMethods[] = {
    {"capitalize", [](Runtime& r, const MarkedText& s, const CallArgs& a) { return cased(r, s, a, Case::kCapitalize); }},
    {"count", count_method},
    {"endswith", [](Runtime& r, const MarkedText& s, const CallArgs& a) { return has_end(r, s, a, End::kEnd); }},
    {"find", [](Runtime& r, const MarkedText& s, const CallArgs& a) { return position(r, s, a, {}); }},
    {"format", [](Runtime& r, const MarkedText& s, const CallArgs& a) { return format_braces(r, s, a); }},
    {"index", [](Runtime& r, const MarkedText& s, const CallArgs& a) { return position(r, s, a, {.otherwise = NoHit::kError}); }},
    {"isalnum", [](Runtime& r, const MarkedText& s,
                   const CallArgs& a) { return all_characters(r, s, a, [](char32_t p) { return is_digit(p) || is_letter(p); }); }},
    {"isalpha", [](Runtime& r, const MarkedText& s, const CallArgs& a) { return all_characters(r, s, a, is_letter); }},
    {"isdigit", [](Runtime& r, const MarkedText& s, const CallArgs& a) { return all_characters(r, s, a, is_digit); }},
    {"islower", [](Runtime& r, const MarkedText& s, const CallArgs& a) { return find_test("lower")(r, Value(s), a); }},
    {"isspace", [](Runtime& r, const MarkedText& s, const CallArgs& a) { return all_characters(r, s, a, is_space); }},
    {"isupper", [](Runtime& r, const MarkedText& s, const CallArgs& a) { return find_test("upper")(r, Value(s), a); }},
    {"join", join_method},
    {"lower", [](Runtime& r, const MarkedText& s, const CallArgs& a) { return cased(r, s, a, Case::kLower); }},
    {"lstrip", [](Runtime& r, const MarkedText& s, const CallArgs& a) { return stripped(r, s, a, Side::kLeft); }},
    {"removeprefix", [](Runtime& r, const MarkedText& s, const CallArgs& a) { return without_end(r, s, a, End::kStart); }},
    {"removesuffix", [](Runtime& r, const MarkedText& s, const CallArgs& a) { return without_end(r, s, a, End::kEnd); }},
    {"replace", replace_method},
    {"rfind", [](Runtime& r, const MarkedText& s, const CallArgs& a) { return position(r, s, a, {.which = Hit::kLast}); }},
    {"rsplit", [](Runtime& r, const MarkedText& s, const CallArgs& a) { return split_method(r, s, a, Splitting::From::kRight); }},
    {"rstrip", [](Runtime& r, const MarkedText& s, const CallArgs& a) { return stripped(r, s, a, Side::kRight); }},
    {"split", [](Runtime& r, const MarkedText& s, const CallArgs& a) { return split_method(r, s, a, Splitting::From::kLeft); }},
    {"splitlines",
     [](Runtime& r, const MarkedText& s, const CallArgs& a) -> Result<Value> {
       LATHE_TRY_VOID(bind(r, a, {}));
       LATHE_TRY_VOID(r.charge(s.text.size() / 2));
       std::vector<MarkedText> texts;
       if (!split_lines(texts, s, [&](uint64_t units) { return r.pay(units); })) return r.out_of_budget();
       std::vector<Value> lines;
       for (MarkedText& line : texts) lines.emplace_back(std::move(line));
       return r.list(std::move(lines));
     }},
    {"startswith", [](Runtime& r, const MarkedText& s, const CallArgs& a) { return has_end(r, s, a, End::kStart); }},
    {"strip", [](Runtime& r, const MarkedText& s, const CallArgs& a) { return stripped(r, s, a, Side::kBoth); }},
    {"title", [](Runtime& r, const MarkedText& s, const CallArgs& a) { return cased(r, s, a, Case::kTitle); }},
    {"upper", [](Runtime& r, const MarkedText& s, const CallArgs& a) { return cased(r, s, a, Case::kUpper); }},
};

constexpr std::string_view kDictMethods[] = {"get", "items", "keys", "values", "copy"};
constexpr std::string_view kListMethods[] = {"count", "index"};
constexpr std::string_view kLoopMethods[] = {"cycle"};

template <size_t N>
bool has_name(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

Result<Value> dict_method(Runtime& r, const Value& self, std::string_view name, const CallArgs& args) {
  const Dict& dict = *self.dict();
  if (name == "get") {
    LATHE_TRY(const auto bound, bind(r, args, {"key", "default"}));
    if (bound[0] == nullptr) return r.fail("the argument 'key' is missing");
    LATHE_TRY_VOID(r.charge(bound[0]->weight() + (bound[0]->is_string() ? 0 : dict.size())));
    const Value* found = dict.find(*bound[0]);
    return found != nullptr ? *found : bound[1] != nullptr ? *bound[1] : Value(None{});
  }
  LATHE_TRY_VOID(bind(r, args, {}));
  if (name == "copy") return self;
  LATHE_TRY_VOID(r.charge(4 * dict.size()));
  std::vector<Value> out;
  out.reserve(dict.size());
  for (const auto& [key, value] : dict.entries()) {
    if (name == "items") {
      LATHE_TRY(Value pair, r.list({key, value}, ListKind::kTuple));
      out.push_back(std::move(pair));
    } else {
      out.push_back(name == "keys" ? key : value);
    }
  }
  return r.list(std::move(out));
}

Result<Value> list_method(Runtime& r, const List& list, std::string_view name, const CallArgs& args) {
  LATHE_TRY(const auto bound, bind(r, args, {"value"}));
  if (bound[0] == nullptr) return r.fail("the argument 'value' is missing");
  int64_t count = 0;
  for (size_t i = 0; i < list.items.size(); ++i) {
    LATHE_TRY(const bool same, r.same(list.items[i], *bound[0]));
    if (same && name == "index") return Value::size(i);
    count += same ? 1 : 0;
  }
  if (name == "index") return r.fail("the list does not hold the value");
  return Value(count);
}

}  // namespace

bool has_method(const Value& value, std::string_view name) {
  if (value.string() != nullptr)
    return std::any_of(std::begin(kStringMethods), std::end(kStringMethods), [&](const auto& m) { return m.name == name; });
  if (value.dict() != nullptr) return has_name(kDictMethods, name);
  if (value.list() != nullptr) return has_name(kListMethods, name);
  return value.loop() != nullptr && has_name(kLoopMethods, name);
}

Result<Value> call_method(Runtime& runtime, const Value& self, std::string_view name, const CallArgs& args) {
  LATHE_TRY_VOID(runtime.charge(8));
  if (const MarkedText* text = self.string()) {
    for (const NamedMethod& method : kStringMethods) {
      if (method.name == name) return method.method(runtime, *text, args);
    }
  }
  if (self.dict() != nullptr && has_name(kDictMethods, name)) return dict_method(runtime, self, name, args);
  if (self.list() != nullptr && has_name(kListMethods, name)) return list_method(runtime, *self.list(), name, args);
  if (self.loop() != nullptr && name == "cycle") {
    if (args.positional.empty()) return runtime.fail("'cycle' needs values");
    return args.positional[self.loop()->index % args.positional.size()];
  }
  return runtime.fail("{} has no method '{}'", self.kind_name(), name);
}

}  // namespace lathe::text::jinja
