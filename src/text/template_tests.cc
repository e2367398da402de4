// Tests: what may stand behind `is`.
#include <cmath>

#include "text/template_operations.h"

namespace lathe::text::jinja {
namespace {

template <class Predicate>
Result<Value> plain(Runtime& r, const CallArgs& args, Predicate predicate) {
  LATHE_TRY_VOID(bind(r, args, {}));
  return Value(static_cast<bool>(predicate()));
}

Result<Value> defined(Runtime& r, const Value& v, const CallArgs& a) {
  return plain(r, a, [&] { return !v.is_undefined(); });
}
Result<Value> undefined(Runtime& r, const Value& v, const CallArgs& a) {
  return plain(r, a, [&] { return v.is_undefined(); });
}
Result<Value> none(Runtime& r, const Value& v, const CallArgs& a) {
  return plain(r, a, [&] { return v.is_none(); });
}
Result<Value> string(Runtime& r, const Value& v, const CallArgs& a) {
  return plain(r, a, [&] { return v.is_string(); });
}
Result<Value> mapping(Runtime& r, const Value& v, const CallArgs& a) {
  return plain(r, a, [&] { return v.dict() != nullptr; });
}
Result<Value> iterable(Runtime& r, const Value& v, const CallArgs& a) {
  return plain(r, a, [&] { return v.is_string() || v.list() != nullptr || v.dict() != nullptr || v.is_undefined() || v.loop() != nullptr; });
}
Result<Value> sequence(Runtime& r, const Value& v, const CallArgs& a) {
  return plain(r, a, [&] { return v.is_string() || v.list() != nullptr || v.dict() != nullptr || v.is_undefined(); });
}
Result<Value> number(Runtime& r, const Value& v, const CallArgs& a) {
  return plain(r, a, [&] { return v.is_number(); });
}
Result<Value> integer(Runtime& r, const Value& v, const CallArgs& a) {
  return plain(r, a, [&] { return v.is_int(); });
}
Result<Value> real(Runtime& r, const Value& v, const CallArgs& a) {
  return plain(r, a, [&] { return v.is_float(); });
}
Result<Value> boolean(Runtime& r, const Value& v, const CallArgs& a) {
  return plain(r, a, [&] { return v.is_bool(); });
}
Result<Value> is_true(Runtime& r, const Value& v, const CallArgs& a) {
  return plain(r, a, [&] { return v.is_bool() && v.truthy(); });
}
Result<Value> is_false(Runtime& r, const Value& v, const CallArgs& a) {
  return plain(r, a, [&] { return v.is_bool() && !v.truthy(); });
}
Result<Value> callable(Runtime& r, const Value& v, const CallArgs& a) {
  return plain(r, a, [&] { return v.callable() != nullptr; });
}

/// Are all letters of the string in this case, and is there one?
Result<Value> cased(Runtime& r, const Value& v, const CallArgs& args, Case to) {
  LATHE_TRY_VOID(bind(r, args, {}));
  LATHE_TRY(const MarkedText text, r.text_of(v));
  LATHE_TRY_VOID(r.charge_walk(text, 4));
  const Case other = to == Case::kLower ? Case::kUpper : Case::kLower;
  return Value(change_case(text, to).text == text.text && change_case(text, other).text != text.text);
}
Result<Value> lower(Runtime& r, const Value& v, const CallArgs& a) { return cased(r, v, a, Case::kLower); }
Result<Value> upper(Runtime& r, const Value& v, const CallArgs& a) { return cased(r, v, a, Case::kUpper); }

Result<Value> divisible(Runtime& r, const Value& v, const CallArgs& args, std::optional<int64_t> divisor, int64_t remainder) {
  if (!divisor) {
    LATHE_TRY(const auto bound, bind(r, args, {"num"}));
    if (bound[0] == nullptr) return r.fail("'divisibleby' needs a number");
    LATHE_TRY(divisor, int_argument(r, bound[0], "num", 0));
  } else {
    LATHE_TRY_VOID(bind(r, args, {}));
  }
  if (!v.is_number()) return r.fail("the test needs a number, not {}", v.kind_name());
  if (*divisor == 0) return r.fail("division by zero");
  if (v.is_float()) {
    const double rest = std::fmod(v.as_double(), static_cast<double>(*divisor));
    return Value((rest < 0 ? rest + std::fabs(static_cast<double>(*divisor)) : rest) == static_cast<double>(remainder));
  }
  if (*divisor == -1) return Value(true);
  const int64_t rest = v.as_int() % *divisor;
  return Value((rest < 0 ? -rest : rest) == remainder);
}
Result<Value> odd(Runtime& r, const Value& v, const CallArgs& a) { return divisible(r, v, a, 2, 1); }
Result<Value> even(Runtime& r, const Value& v, const CallArgs& a) { return divisible(r, v, a, 2, 0); }
Result<Value> divisible_by(Runtime& r, const Value& v, const CallArgs& a) { return divisible(r, v, a, std::nullopt, 0); }

/// The one argument of a comparing test.
Result<const Value*> other_of(Runtime& r, const CallArgs& args) {
  LATHE_TRY(const auto bound, bind(r, args, {"other"}));
  if (bound[0] == nullptr) return r.fail("the test needs a value to compare with");
  return bound[0];
}

template <class Compare>
Result<Value> compared(Runtime& r, const CallArgs& args, Compare compare) {
  LATHE_TRY(const Value* other, other_of(r, args));
  LATHE_TRY(const bool holds, compare(*other));
  return Value(holds);
}

Result<Value> eq(Runtime& r, const Value& v, const CallArgs& a) {
  return compared(r, a, [&](const Value& other) { return r.same(v, other); });
}
Result<Value> ne(Runtime& r, const Value& v, const CallArgs& a) {
  return compared(r, a, [&](const Value& other) { return r.same(v, other).map([](bool same) { return !same; }); });
}
Result<Value> lt(Runtime& r, const Value& v, const CallArgs& a) {
  return compared(r, a, [&](const Value& other) { return r.before(v, other); });
}
Result<Value> gt(Runtime& r, const Value& v, const CallArgs& a) {
  return compared(r, a, [&](const Value& other) { return r.before(other, v); });
}
Result<Value> le(Runtime& r, const Value& v, const CallArgs& a) {
  return compared(r, a, [&](const Value& other) { return r.before(other, v).map([](bool before) { return !before; }); });
}
Result<Value> ge(Runtime& r, const Value& v, const CallArgs& a) {
  return compared(r, a, [&](const Value& other) { return r.before(v, other).map([](bool before) { return !before; }); });
}
Result<Value> in(Runtime& r, const Value& v, const CallArgs& a) {
  return compared(r, a, [&](const Value& other) { return r.contains(other, v); });
}

constexpr NamedOperation kTests[] = {
    {"boolean", boolean},
    {"callable", callable},
    {"defined", defined},
    {"divisibleby", divisible_by},
    {"eq", eq},
    {"equalto", eq},
    {"even", even},
    {"false", is_false},
    {"float", real},
    {"ge", ge},
    {"greaterthan", gt},
    {"gt", gt},
    {"in", in},
    {"integer", integer},
    {"iterable", iterable},
    {"le", le},
    {"lessthan", lt},
    {"lower", lower},
    {"lt", lt},
    {"mapping", mapping},
    {"ne", ne},
    {"none", none},
    {"number", number},
    {"odd", odd},
    {"sameas", eq},
    {"sequence", sequence},
    {"string", string},
    {"true", is_true},
    {"undefined", undefined},
    {"upper", upper},
};

}  // namespace

Operation find_test(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kSymbols[] = {{"==", "eq"}, {"!=", "ne"}, {"<", "lt"},
                                                                               {">", "gt"},  {"<=", "le"}, {">=", "ge"}};
  for (const auto& [symbol, word] : kSymbols) {
    if (name == symbol) name = word;
  }
  for (const NamedOperation& test : kTests) {
    if (test.name == name) return test.operation;
  }
  return nullptr;
}

}  // namespace lathe::text::jinja
