// Filters that make strings. Their names and arguments are Jinja2's; tojson's are those of the transformers library.
#include <cmath>

#include "text/template_operations.h"

namespace lathe::text::jinja {
namespace {

Result<Value> cased(Runtime& r, const Value& input, const CallArgs& args, Case to) {
  LATHE_TRY_VOID(bind(r, args, {}));
  LATHE_TRY(const MarkedText text, r.text_of(input));
  LATHE_TRY_VOID(r.charge_walk(text, 2));
  return r.string(change_case(text, to));
}
Result<Value> upper(Runtime& r, const Value& input, const CallArgs& args) { return cased(r, input, args, Case::kUpper); }
Result<Value> lower(Runtime& r, const Value& input, const CallArgs& args) { return cased(r, input, args, Case::kLower); }
Result<Value> title(Runtime& r, const Value& input, const CallArgs& args) { return cased(r, input, args, Case::kWords); }
Result<Value> capitalize(Runtime& r, const Value& input, const CallArgs& args) { return cased(r, input, args, Case::kCapitalize); }

Result<Value> trim(Runtime& r, const Value& input, const CallArgs& args) {
  LATHE_TRY(const auto bound, bind(r, args, {"chars"}));
  LATHE_TRY(const MarkedText text, r.text_of(input));
  std::string_view characters;
  if (bound[0] != nullptr && !bound[0]->is_none()) {
    LATHE_TRY(const MarkedText* chars, string_argument(r, bound[0], "chars"));
    characters = chars->text;
    LATHE_TRY_VOID(r.charge(8 * characters.size()));
  }
  const LiteralSpan kept = strip_range(text.text, Side::kBoth, characters.data() == nullptr ? nullptr : &characters);
  LATHE_TRY_VOID(r.charge(4 + text.text.size() - (kept.end - kept.begin)));
  return r.string(substring(text, kept.begin, kept.end));
}

Result<Value> as_string(Runtime& r, const Value& input, const CallArgs& args) {
  LATHE_TRY_VOID(bind(r, args, {}));
  if (input.is_string()) return input;
  LATHE_TRY(MarkedText text, r.text_of(input));
  return r.string(std::move(text));
}

Result<Value> replace_filter(Runtime& r, const Value& input, const CallArgs& args) {
  LATHE_TRY(const auto bound, bind(r, args, {"old", "new", "count"}));
  LATHE_TRY(const MarkedText text, r.text_of(input));
  if (bound[0] == nullptr || bound[1] == nullptr) return r.fail("'replace' needs what to replace and by what");
  LATHE_TRY(const MarkedText from, r.text_of(*bound[0]));
  LATHE_TRY(const MarkedText to, r.text_of(*bound[1]));
  int64_t count = -1;
  if (bound[2] != nullptr && !bound[2]->is_none()) {
    LATHE_TRY(count, int_argument(r, bound[2], "count", -1));
  }
  return replaced(r, text, {.from = from.text, .to = to, .count_max = count});
}

Result<Value> indent(Runtime& r, const Value& input, const CallArgs& args) {
  LATHE_TRY(const auto bound, bind(r, args, {"width", "first", "blank"}));
  LATHE_TRY(const MarkedText text, r.text_of(input));
  MarkedText margin;
  if (bound[0] != nullptr && bound[0]->is_string()) {
    margin = *bound[0]->string();
  } else {
    LATHE_TRY(const int64_t width, int_argument(r, bound[0], "width", 4));
    if (width > static_cast<int64_t>(r.bytes_max())) return r.too_large();
    margin.text.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const bool first = bound[1] != nullptr && bound[1]->truthy();
  const bool blank = bound[2] != nullptr && bound[2]->truthy();
  MarkedText out;
  size_t at = 0;
  for (size_t line = 0;; ++line) {
    const size_t end = std::min(text.text.find('\n', at), text.text.size());
    const bool indented = line == 0 ? first : blank || end > at;
    LATHE_TRY_VOID(r.charge(4 + (indented ? margin.text.size() / 8 + margin.literal.size() : 0)));
    if (indented) append(out, margin);
    if (out.text.size() > r.bytes_max()) return r.too_large();
    append_range(out, text, at, std::min(end + 1, text.text.size()));
    if (end == text.text.size()) break;
    at = end + 1;
  }
  return r.string(std::move(out));
}

Result<Value> safe(Runtime& r, const Value& input, const CallArgs& args) { return as_string(r, input, args); }

Result<Value> escape(Runtime& r, const Value& input, const CallArgs& args) {
  LATHE_TRY_VOID(bind(r, args, {}));
  LATHE_TRY(const MarkedText text, r.text_of(input));
  LATHE_TRY_VOID(r.charge_walk(text, 3));
  MarkedText out;
  for (size_t at = 0; at < text.text.size(); ++at) {
    static constexpr std::string_view kFrom = "&<>'\"";
    static constexpr std::string_view kTo[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const size_t which = kFrom.find(text.text[at]);
    if (which == std::string_view::npos) {
      append_range(out, text, at, at + 1);
    } else {
      append(out, kTo[which], is_literal(text, at) ? Mark::kLiteral : Mark::kValue);
    }
  }
  return r.string(std::move(out));
}

Result<Value> format(Runtime& r, const Value& input, const CallArgs& args) {
  LATHE_TRY(const MarkedText text, r.text_of(input));
  if (!args.keyword.empty()) return r.fail("'format' takes no named arguments here");
  LATHE_TRY(const Value values, r.list(args.positional, ListKind::kTuple));
  return format_percent(r, text, values);
}

Result<Value> to_json(Runtime& r, const Value& input, const CallArgs& args) {
  LATHE_TRY(const auto bound, bind(r, args, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonOptions options;
  options.bytes_max = r.bytes_max();
  options.style.ensure_ascii = bound[0] != nullptr && bound[0]->truthy();
  if (bound[1] != nullptr && !bound[1]->is_none()) {
    LATHE_TRY(const int64_t spaces, int_argument(r, bound[1], "indent", 0));
    if (spaces > 64) return r.fail("an indent of {} is more than 64", spaces);
    options.style.indent = static_cast<int>(std::max<int64_t>(spaces, 0));
    options.style.item_separator.assign(1, ',');
  }
  if (bound[2] != nullptr && !bound[2]->is_none()) {
    const List* pair = bound[2]->list();
    if (pair == nullptr || pair->items.size() != 2 || !pair->items[0].is_string() || !pair->items[1].is_string()) {
      return r.fail("'separators' must be two strings");
    }
    options.style.item_separator = pair->items[0].string()->text;
    options.style.key_separator = pair->items[1].string()->text;
  }
  options.sort_keys = bound[3] != nullptr && bound[3]->truthy();
  LATHE_TRY_VOID(r.charge(saturating_product(input.weight(), options.sort_keys ? 4 * kPrintUnits : kPrintUnits)));
  std::string out;
  if (!append_json(out, input, options)) {
    if (out.size() > options.bytes_max) return r.too_large();
    return r.fail("{} holds something that JSON has no form for (undefined, a namespace or a function)", input.kind_name());
  }
  return r.data_string(std::move(out));
}

constexpr NamedOperation kFilters[] = {
    {"capitalize", capitalize}, {"e", escape},    {"escape", escape},          {"format", format},
    {"indent", indent},         {"lower", lower}, {"replace", replace_filter}, {"safe", safe},
    {"string", as_string},      {"title", title}, {"tojson", to_json},         {"trim", trim},
    {"upper", upper},
};

}  // namespace

std::span<const NamedOperation> string_filters() { return kFilters; }

}  // namespace lathe::text::jinja
