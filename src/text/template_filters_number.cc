// Filters on numbers, and `default`.
#include <charconv>
#include <cmath>

#include "text/template_operations.h"

namespace lathe::text::jinja {
namespace {

constexpr double kInt64Range = 9.2e18;  // below 2^63: casts are defined

/// The whole text as a number, spaces around it allowed.
std::optional<double> parse_float(std::string_view text) {
  const LiteralSpan kept = strip_range(text, Side::kBoth);
  text = text.substr(kept.begin, kept.end - kept.begin);
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_int(std::string_view text, int base) {
  const LiteralSpan kept = strip_range(text, Side::kBoth);
  text = text.substr(kept.begin, kept.end - kept.begin);
  if (text.starts_with('+')) text.remove_prefix(1);
  if (base == 16 && (text.starts_with("0x") || text.starts_with("0X"))) text.remove_prefix(2);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

Result<Value> to_int(Runtime& r, const Value& input, const CallArgs& args) {
  LATHE_TRY(const auto bound, bind(r, args, {"default", "base"}));
  LATHE_TRY(const int64_t base, int_argument(r, bound[1], "base", 10));
  if (input.is_undefined()) return r.fail("an undefined value is no number");
  if (base < 2 || base > 36) return r.fail("the base {} is outside 2 to 36", base);
  std::optional<double> real;
  if (const MarkedText* text = input.string()) {
    LATHE_TRY_VOID(r.charge(text->text.size()));
    if (const auto exact = parse_int(text->text, static_cast<int>(base))) return Value(*exact);
    real = parse_float(text->text);
  } else if (input.is_float()) {
    real = input.as_double();
  } else if (input.is_number()) {
    return Value(input.as_int());
  }
  if (!real || !(std::fabs(*real) < kInt64Range)) return bound[0] == nullptr ? Value(int64_t{0}) : *bound[0];
  return Value(static_cast<int64_t>(*real));
}

Result<Value> to_float(Runtime& r, const Value& input, const CallArgs& args) {
  LATHE_TRY(const auto bound, bind(r, args, {"default"}));
  if (input.is_undefined()) return r.fail("an undefined value is no number");
  if (input.is_number()) return Value(input.as_double());
  if (const MarkedText* text = input.string()) {
    LATHE_TRY_VOID(r.charge(text->text.size()));
    if (const auto real = parse_float(text->text)) return Value(*real);
  }
  return bound[0] == nullptr ? Value(0.0) : *bound[0];
}

Result<Value> absolute(Runtime& r, const Value& input, const CallArgs& args) {
  LATHE_TRY_VOID(bind(r, args, {}));
  if (input.is_float()) return Value(std::fabs(input.as_double()));
  if (!input.is_number()) return r.fail("'abs' needs a number, not {}", input.kind_name());
  const int64_t value = input.as_int();
  if (value == INT64_MIN) return r.fail("the integer result does not fit 64 bits");
  return Value(value < 0 ? -value : value);
}

Result<Value> round_filter(Runtime& r, const Value& input, const CallArgs& args) {
  LATHE_TRY(const auto bound, bind(r, args, {"precision", "method"}));
  LATHE_TRY(const int64_t precision, int_argument(r, bound[0], "precision", 0));
  if (!input.is_number()) return r.fail("'round' needs a number, not {}", input.kind_name());
  if (precision < -15 || precision > 15) return r.fail("the precision {} is outside -15 to 15", precision);
  std::string method = "common";
  if (bound[1] != nullptr) {
    LATHE_TRY(const MarkedText* name, string_argument(r, bound[1], "method"));
    method = name->text;
  }
  const double value = input.as_double();
  LATHE_TRY_VOID(r.charge(digit_units(value, precision)));
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value(std::ceil(value * scale) / scale);
  if (method == "floor") return Value(std::floor(value * scale) / scale);
  if (method != "common") return r.fail("the method '{}' is none of common, ceil, floor", method);
  if (!input.is_float() && precision >= 0) return Value(input.as_int());
  if (precision < 0) return Value(std::nearbyint(value * scale) / scale);
  // Printing rounds the exact binary value, ties to even, as Python's round does.
  const auto rounded = parse_float(fmt::format("{:.{}f}", value, precision));
  return Value(rounded ? *rounded : value);
}

Result<Value> fallback(Runtime& r, const Value& input, const CallArgs& args) {
  LATHE_TRY(const auto bound, bind(r, args, {"default_value", "boolean"}));
  const bool falsy_too = bound[1] != nullptr && bound[1]->truthy();
  if (!input.is_undefined() && (!falsy_too || input.truthy())) return input;
  return bound[0] == nullptr ? Value::literal_string({}) : *bound[0];
}

constexpr NamedOperation kFilters[] = {
    {"abs", absolute}, {"d", fallback}, {"default", fallback}, {"float", to_float}, {"int", to_int}, {"round", round_filter},
};

}  // namespace

std::span<const NamedOperation> number_filters() { return kFilters; }

Operation find_filter(std::string_view name) {
  for (const auto filters : {string_filters(), list_filters(), number_filters()}) {
    for (const NamedOperation& filter : filters) {
      if (filter.name == name) return filter.operation;
    }
  }
  return nullptr;
}

}  // namespace lathe::text::jinja
