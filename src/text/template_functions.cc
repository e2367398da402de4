// Global functions, and the two ways of formatting.
#include <time.h>

#include <cmath>

#include "text/template_operations.h"

namespace lathe::text::jinja {
namespace {

constexpr int64_t kRangeMax = base::kLimits.template_range;

Result<Value> range(Runtime& r, const CallArgs& args) {
  if (!args.keyword.empty() || args.positional.empty() || args.positional.size() > 3) return r.fail("'range' takes one to three integers");
  int64_t part[3] = {0, 0, 1};
  for (size_t i = 0; i < args.positional.size(); ++i) {
    LATHE_TRY(part[i], int_argument(r, &args.positional[i], "range", 0));
  }
  if (args.positional.size() == 1) std::swap(part[0], part[1]);
  const auto [begin, end, step] = part;
  if (step == 0) return r.fail("the step of a range is 0");
  std::vector<Value> numbers;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<int64_t>(numbers.size()) >= kRangeMax)
      return r.error(Code::kResourceExhausted, fmt::format("a range of more than {} numbers", kRangeMax));
    LATHE_TRY_VOID(r.charge(2));
    numbers.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return r.list(std::move(numbers));
}

Result<Value> dict(Runtime& r, const CallArgs& args) {
  Dict out;
  if (args.positional.size() > 1) return r.fail("'dict' takes one dict and named values");
  if (!args.positional.empty()) {
    const Dict* from = args.positional[0].dict();
    if (from == nullptr) return r.fail("'dict' needs a dict, not {}", args.positional[0].kind_name());
    LATHE_TRY_VOID(r.charge(8 * from->size()));
    out = *from;
  }
  LATHE_TRY_VOID(r.charge(16 * args.keyword.size()));
  for (const auto& [name, value] : args.keyword) out.set(Value::literal_string(name), value);
  return r.dict(std::move(out));
}

Result<Value> strftime_now(Runtime& r, const CallArgs& args) {
  LATHE_TRY(const auto bound, bind(r, args, {"format"}));
  LATHE_TRY(const MarkedText* format, string_argument(r, bound[0], "format"));
  const size_t longest = r.limits().template_time_format_bytes;
  if (format->text.size() > longest) return r.fail("a time format of {} bytes is longer than {}", format->text.size(), longest);
  LATHE_TRY_VOID(r.charge(64 + 64 * format->text.size()));
  const time_t seconds = *r.now_unix_s;
  tm parts{};
  if (gmtime_r(&seconds, &parts) == nullptr) return r.fail("the time {} is outside the calendar", *r.now_unix_s);
  std::string out(format->text.size() * 64 + 64, '\0');
  const std::string zero_ended = format->text + ' ';  // so that an empty result differs from a failure
  out.resize(strftime(out.data(), out.size(), zero_ended.c_str(), &parts));
  if (!out.empty()) out.pop_back();
  return r.data_string(std::move(out));
}

/// One %…: flags, width, precision (negative: none) and what to convert to.
struct Conversion {
  bool left = false;
  char fill = ' ';
  int64_t width = 0;
  int64_t precision = -1;
  char kind = 's';
};

/// Text of one value for a conversion to s, d, i, f, g, x or r.
Result<MarkedText> converted(Runtime& r, const Value& value, const Conversion& conversion) {
  const auto& [left, fill, width, precision, kind] = conversion;
  MarkedText out;
  const auto number = [&](const std::string& text) { append(out, text, Mark::kValue); };
  if (kind == 's') {
    LATHE_TRY(out, r.text_of(value));
    if (precision >= 0) {
      LATHE_TRY_VOID(r.charge(out.text.size()));
      const std::vector<size_t> offsets = code_point_offsets(out.text);
      if (static_cast<size_t>(precision) + 1 < offsets.size()) out = substring(out, 0, offsets[static_cast<size_t>(precision)]);
    }
  } else if (kind == 'r') {
    LATHE_TRY_VOID(r.charge(saturating_product(value.weight(), kPrintUnits)));
    std::string text;
    if (!append_repr(text, value, r.bytes_max())) return r.too_large();
    number(text);
  } else if (!value.is_number()) {
    return r.fail("'%{}' needs a number, not {}", kind, value.kind_name());
  } else if (kind == 'd' || kind == 'i' || kind == 'x') {
    if (value.is_float() && !(std::fabs(value.as_double()) < 9e18)) return r.fail("the number does not fit an integer");
    number(kind == 'x' ? fmt::format("{:x}", value.as_int()) : fmt::format("{}", value.as_int()));
  } else if (kind == 'f') {
    LATHE_TRY_VOID(r.charge(digit_units(value.as_double(), precision)));
    number(fmt::format("{:.{}f}", value.as_double(), precision < 0 ? 6 : precision));
  } else if (kind == 'g') {
    LATHE_TRY_VOID(r.charge(digit_units(value.as_double(), precision)));
    number(fmt::format("{:.{}g}", value.as_double(), precision < 0 ? 6 : precision));
  } else {
    return r.fail("there is no conversion '%{}'", kind);
  }
  if (static_cast<int64_t>(out.text.size() / 4) >= width) return out;  // a character has at most 4 bytes
  const auto size = static_cast<int64_t>(count_code_points(out.text));
  if (size >= width) return out;
  const std::string pad(static_cast<size_t>(width - size), left ? ' ' : fill);
  MarkedText padded;
  if (!left) append(padded, pad, Mark::kValue);
  append(padded, out);
  if (left) append(padded, pad, Mark::kValue);
  return padded;
}

/// The number whose digits stand at `at`, which advances.
Result<int64_t> digits(Runtime& r, std::string_view text, size_t& at) {
  int64_t value = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    value = value * 10 + (text[at] - '0');
    if (value > r.limits().template_width) return r.fail("a width or precision above {} in a format", r.limits().template_width);
  }
  return value;
}

}  // namespace

uint64_t digit_units(double value, int64_t precision) {
  const double size = std::fabs(value);
  const uint64_t digits = static_cast<uint64_t>(std::max<int64_t>(precision, 6)) + (size == 0 || (size > 1e-20 && size < 1e20) ? 0 : 320);
  return 16 * digits;
}

bool has_function(const Runtime& runtime, std::string_view name) {
  if (name == "strftime_now") return runtime.now_unix_s.has_value();
  return name == "range" || name == "dict" || name == "raise_exception" || name == "namespace";
}

Result<Value> call_function(Runtime& runtime, std::string_view name, const CallArgs& args) {
  if (name == "range") return range(runtime, args);
  if (name == "dict") return dict(runtime, args);
  if (name == "strftime_now" && runtime.now_unix_s) return strftime_now(runtime, args);
  if (name == "raise_exception") {
    LATHE_TRY(const auto bound, bind(runtime, args, {"message"}));
    MarkedText message{.text = "the template refuses this input", .literal = {}};
    if (bound[0] != nullptr) {
      LATHE_TRY(message, runtime.text_of(*bound[0]));
    }
    runtime.refused = true;
    return runtime.fail("{}", message.text.substr(0, 1000));
  }
  return runtime.fail("there is no function '{}'", name);
}

Result<Value> format_percent(Runtime& runtime, const MarkedText& format, const Value& values) {
  const List* several = values.list();
  const bool tuple = several != nullptr && several->kind == ListKind::kTuple;
  size_t used = 0;
  MarkedText out;
  const std::string_view text = format.text;
  for (size_t at = 0; at < text.size();) {
    const size_t percent = std::min(text.find('%', at), text.size());
    append_range(out, format, at, percent);
    if (percent == text.size()) break;
    at = percent + 1;
    if (at < text.size() && text[at] == '%') {
      LATHE_TRY_VOID(runtime.charge(4));
      append_range(out, format, at, at + 1);
      ++at;
      continue;
    }
    Conversion conversion;
    for (; at < text.size() && (text[at] == '-' || text[at] == '0'); ++at) {
      if (text[at] == '-') conversion.left = true;
      if (text[at] == '0') conversion.fill = '0';
    }
    LATHE_TRY(conversion.width, digits(runtime, text, at));
    if (at < text.size() && text[at] == '.') {
      LATHE_TRY(conversion.precision, digits(runtime, text, ++at));
    }
    if (at == text.size()) return runtime.fail("the format ends inside a conversion");
    if (tuple ? used >= several->items.size() : used > 0) return runtime.fail("fewer values than conversions in a format");
    conversion.kind = text[at];
    LATHE_TRY(const MarkedText piece, converted(runtime, tuple ? several->items[used] : values, conversion));
    ++used;
    ++at;
    append(out, piece);
    LATHE_TRY_VOID(runtime.charge(16 + piece.text.size() / 8));
    if (out.text.size() > runtime.bytes_max()) return runtime.too_large();
  }
  if (tuple ? used < several->items.size() : used == 0 && values.dict() == nullptr) return runtime.fail("more values than conversions in a format");
  return runtime.string(std::move(out));
}

Result<Value> format_braces(Runtime& runtime, const MarkedText& format, const CallArgs& args) {
  MarkedText out;
  const std::string_view text = format.text;
  size_t automatic = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t brace = std::min(text.find_first_of("{}", at), text.size());
    append_range(out, format, at, brace);
    if (brace == text.size()) break;
    if (brace + 1 < text.size() && text[brace + 1] == text[brace]) {
      LATHE_TRY_VOID(runtime.charge(4));
      append_range(out, format, brace, brace + 1);
      at = brace + 2;
      continue;
    }
    const size_t close = text.find('}', brace);
    if (text[brace] == '}' || close == std::string_view::npos) return runtime.fail("a single brace in a format");
    const std::string_view field = text.substr(brace + 1, close - brace - 1);
    const Value* value = nullptr;
    if (field.find_first_not_of("0123456789") == std::string_view::npos && field.size() < 6) {
      const size_t index = field.empty() ? automatic++ : std::stoul(std::string(field));
      if (index < args.positional.size()) value = &args.positional[index];
    }
    for (const auto& [name, named] : args.keyword) value = name == field ? &named : value;
    if (value == nullptr) return runtime.fail("the format has no value for '{{{}}}'", field.substr(0, 40));
    LATHE_TRY_VOID(runtime.charge(8 + args.keyword.size()));
    LATHE_TRY_VOID(runtime.append_text(out, *value));
    at = close + 1;
  }
  return runtime.string(std::move(out));
}

}  // namespace lathe::text::jinja
