// What every operation shares: budget, checked values, lookups, comparisons, arithmetic.
#include <cmath>
#include <limits>

#include "text/template_ast.h"
#include "text/template_lexer.h"
#include "text/template_operations.h"

namespace lathe::text::jinja {

tl::unexpected<Error> Runtime::error(Code code, std::string_view message) const { return template_error(code, line, message); }

tl::unexpected<Error> Runtime::too_many_steps() const {
  return error(Code::kResourceExhausted, fmt::format("more than {} steps of work", limits_.template_steps));
}

tl::unexpected<Error> Runtime::too_deep() const {
  return error(Code::kResourceExhausted, fmt::format("calls nested deeper than {} levels", limits_.template_depth));
}

tl::unexpected<Error> Runtime::too_large() const {
  return error(Code::kResourceExhausted, fmt::format("a text of more than {} bytes", limits_.template_output_bytes));
}

Result<Value> Runtime::string(MarkedText text) {
  if (text.text.size() > bytes_max()) return too_large();
  LATHE_TRY_VOID(charge(8 + text.text.size() / 8 + 2 * text.literal.size()));
  return Value(std::move(text));
}

Result<Value> Runtime::list(std::vector<Value> items, ListKind kind) {
  LATHE_TRY_VOID(charge(8 + 2 * items.size()));
  Value value = Value::list(std::move(items), kind);
  if (value.depth() > kValueDepthMax) return error(Code::kResourceExhausted, fmt::format("a value nested deeper than {} levels", kValueDepthMax));
  return value;
}

Result<Value> Runtime::dict(Dict dict) {
  LATHE_TRY_VOID(charge(8 + 4 * dict.size()));
  if (dict.depth() > kValueDepthMax) return error(Code::kResourceExhausted, fmt::format("a value nested deeper than {} levels", kValueDepthMax));
  return Value::dict(std::move(dict));
}

Result<MarkedText> Runtime::text_of(const Value& value) {
  MarkedText text;
  LATHE_TRY_VOID(append_text(text, value));
  return text;
}

Result<void> Runtime::append_text(MarkedText& out, const Value& value) {
  // Strings are copied, everything else is printed character by character.
  LATHE_TRY_VOID(charge(value.is_string() ? value.weight() : saturating_product(value.weight(), kPrintUnits)));
  if (!append_str(out, value, bytes_max())) return too_large();
  return {};
}

Result<ListPtr> Runtime::elements(const Value& value) {
  if (const ListPtr* list = value.get<ListPtr>()) return *list;
  std::vector<Value> items;
  if (const Dict* dict = value.dict()) {
    items.reserve(dict->size());
    for (const auto& entry : dict->entries()) items.push_back(entry.first);
  } else if (const MarkedText* text = value.string()) {
    LATHE_TRY_VOID(charge(16 * text->text.size()));
    for (size_t at = 0; at < text->text.size();) {
      const size_t end = at + code_point_bytes(text->text, at);
      items.emplace_back(substring(*text, at, end));
      at = end;
    }
  } else if (!value.is_undefined()) {
    return fail("{} has no elements to go through", value.kind_name());
  }
  LATHE_TRY(const Value elements, list(std::move(items)));
  return *elements.get<ListPtr>();
}

namespace {

Value loop_attribute(const Loop& loop, std::string_view name) {
  const auto at = static_cast<int64_t>(loop.index);
  const auto length = static_cast<int64_t>(loop.items->items.size());
  if (name == "index") return Value(at + 1);
  if (name == "index0") return Value(at);
  if (name == "revindex") return Value(length - at);
  if (name == "revindex0") return Value(length - at - 1);
  if (name == "first") return Value(at == 0);
  if (name == "last") return Value(at + 1 == length);
  if (name == "length") return Value(length);
  if (name == "depth") return Value(int64_t{1});  // only recursive loops, which are not supported, go deeper
  if (name == "depth0") return Value(int64_t{0});
  if (name == "previtem" && at > 0) return loop.items->items[loop.index - 1];
  if (name == "nextitem" && at + 1 < length) return loop.items->items[loop.index + 1];
  return Value();
}

/// Position in a sequence of `length` for an index counted from either end; length itself if outside.
size_t place(int64_t index, size_t length) {
  const auto n = static_cast<int64_t>(length);
  if (index < 0) index += n;
  return index < 0 || index >= n ? length : static_cast<size_t>(index);
}

}  // namespace

Result<Value> Runtime::attribute(const Value& value, const std::string& name) {
  if (value.is_undefined()) {
    const std::string* what = value.get<Undefined>()->name;
    return fail("'{}' is undefined, it has no attribute '{}'", what == nullptr ? "the value" : *what, name);
  }
  LATHE_TRY_VOID(charge(4 + name.size() / 8));
  // As in Python, a method wins over a key of the same name.
  if (has_method(value, name)) {
    Callable method{.name = name, .macro = nullptr, .scope = nullptr, .self = std::make_shared<const Value>(value)};
    return Value(std::make_shared<const Callable>(std::move(method)));
  }
  if (const Dict* dict = value.dict()) {
    const Value* found = dict->find(std::string_view(name));
    return found == nullptr ? Value(Undefined{&name}) : *found;
  }
  if (const Namespace* names = value.names()) {
    const Value* found = names->attributes.find(std::string_view(name));
    return found == nullptr ? Value(Undefined{&name}) : *found;
  }
  if (const Loop* loop = value.loop()) return loop_attribute(*loop, name);
  return Value(Undefined{&name});
}

Result<Value> Runtime::item(const Value& value, const Value& key) {
  if (value.is_undefined())
    return fail("'{}' is undefined, it has no items", value.get<Undefined>()->name == nullptr ? "the value" : *value.get<Undefined>()->name);
  if (const Dict* dict = value.dict()) {
    LATHE_TRY_VOID(charge(key.weight() + (key.is_string() ? 0 : dict->size())));
    const Value* found = dict->find(key);
    return found == nullptr ? Value() : *found;
  }
  if (const List* list = value.list(); list != nullptr && key.is_number() && !key.is_float()) {
    const size_t at = place(key.as_int(), list->items.size());
    return at == list->items.size() ? Value() : list->items[at];
  }
  if (const MarkedText* text = value.string(); text != nullptr && key.is_number() && !key.is_float()) {
    LATHE_TRY_VOID(charge(text->text.size()));
    const std::vector<size_t> offsets = code_point_offsets(text->text);
    const size_t at = place(key.as_int(), offsets.size() - 1);
    return at == offsets.size() - 1 ? Value() : Value(substring(*text, offsets[at], offsets[at + 1]));
  }
  if (const MarkedText* name = key.string(); name != nullptr && (value.names() != nullptr || value.loop() != nullptr)) {
    if (value.loop() != nullptr) return loop_attribute(*value.loop(), name->text);
    const Value* found = value.names()->attributes.find(name->text);
    return found == nullptr ? Value() : *found;
  }
  return Value();
}

Result<Value> Runtime::attribute_path(const Value& value, std::string_view path, const Value* fallback) {
  Value at = value;
  for (;;) {
    const size_t dot = std::min(path.find('.'), path.size());
    const std::string part(path.substr(0, dot));
    const bool index = !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
    LATHE_TRY_VOID(charge(16 + part.size() / 4));
    LATHE_TRY(at, item(at, index ? Value(static_cast<int64_t>(std::stol(part))) : Value::data_string(part)));
    if (at.is_undefined() && fallback != nullptr) at = *fallback;
    if (dot == path.size()) return at;
    path.remove_prefix(dot + 1);
  }
}

Result<bool> Runtime::same(const Value& a, const Value& b) {
  LATHE_TRY_VOID(charge(std::min(a.weight(), b.weight())));
  return equal(a, b);
}

Result<bool> Runtime::before(const Value& a, const Value& b) {
  LATHE_TRY_VOID(charge(std::min(a.weight(), b.weight())));
  bool comparable = true;
  const bool result = less(a, b, comparable);
  if (!comparable) return fail("{} and {} have no order", a.kind_name(), b.kind_name());
  return result;
}

Result<bool> Runtime::contains(const Value& container, const Value& item) {
  if (const MarkedText* text = container.string()) {
    const MarkedText* part = item.string();
    if (part == nullptr) return fail("'in' a string needs a string on its left, not {}", item.kind_name());
    LATHE_TRY_VOID(charge_search(text->text, part->text));
    return find_text(text->text, part->text) != std::string_view::npos;
  }
  if (const Dict* dict = container.dict()) {
    LATHE_TRY_VOID(charge(item.weight() + (item.is_string() ? 0 : dict->size())));
    return dict->find(item) != nullptr;
  }
  if (const List* list = container.list()) {
    for (const Value& other : list->items) {
      LATHE_TRY(const bool found, same(other, item));
      if (found) return true;
    }
    return false;
  }
  if (container.is_undefined()) return false;
  return fail("'in' needs a string, a list or a dict on its right, not {}", container.kind_name());
}

Result<std::vector<const Value*>> bind(const Runtime& runtime, const CallArgs& args, std::initializer_list<std::string_view> names) {
  std::vector<const Value*> bound(names.size(), nullptr);
  if (args.positional.size() > names.size()) return runtime.fail("{} arguments where at most {} are taken", args.positional.size(), names.size());
  for (size_t i = 0; i < args.positional.size(); ++i) bound[i] = &args.positional[i];
  for (const auto& [name, value] : args.keyword) {
    size_t at = 0;
    while (at < names.size() && names.begin()[at] != name) ++at;
    if (at == names.size()) return runtime.fail("there is no argument '{}' here", name);
    if (bound[at] != nullptr) return runtime.fail("the argument '{}' is given twice", name);
    bound[at] = &value;
  }
  return bound;
}

Result<const MarkedText*> string_argument(const Runtime& runtime, const Value* value, std::string_view name) {
  if (value == nullptr) return runtime.fail("the argument '{}' is missing", name);
  if (const MarkedText* text = value->string()) return text;
  return runtime.fail("the argument '{}' must be a string, not {}", name, value->kind_name());
}

Result<int64_t> int_argument(const Runtime& runtime, const Value* value, std::string_view name, int64_t fallback) {
  if (value == nullptr) return fallback;
  if (value->is_number() && !value->is_float()) return value->as_int();
  return runtime.fail("the argument '{}' must be an integer, not {}", name, value->kind_name());
}

namespace {

Result<Value> integer_arithmetic(Runtime& runtime, Op op, int64_t a, int64_t b) {
  int64_t out = 0;
  bool overflow = false;
  switch (op) {
    case Op::kAdd: overflow = __builtin_add_overflow(a, b, &out); break;
    case Op::kSubtract: overflow = __builtin_sub_overflow(a, b, &out); break;
    case Op::kMultiply: overflow = __builtin_mul_overflow(a, b, &out); break;
    case Op::kFloorDivide:
    case Op::kModulo: {
      if (b == 0) return runtime.fail("division by zero");
      overflow = a == std::numeric_limits<int64_t>::min() && b == -1;
      if (overflow) break;
      const bool adjust = a % b != 0 && ((a < 0) != (b < 0));  // towards minus infinity, as Python
      out = op == Op::kModulo ? a % b + (adjust ? b : 0) : a / b - (adjust ? 1 : 0);
      break;
    }
    case Op::kPower: {
      LATHE_TRY_VOID(runtime.charge(8));
      if (b < 0) return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
      if (b > 64 && (a > 1 || a < -1)) {
        overflow = true;
        break;
      }
      out = 1;
      for (int64_t i = 0; i < (a == 0 || a == 1 ? std::min<int64_t>(b, 1) : a == -1 ? b % 2 : b); ++i)
        overflow = overflow || __builtin_mul_overflow(out, a, &out);
      break;
    }
    default: break;
  }
  if (overflow) return runtime.fail("the integer result does not fit 64 bits");
  return Value(out);
}

Result<Value> float_arithmetic(Runtime& runtime, Op op, double a, double b) {
  if (b == 0 && (op == Op::kDivide || op == Op::kFloorDivide || op == Op::kModulo)) return runtime.fail("division by zero");
  switch (op) {
    case Op::kAdd: return Value(a + b);
    case Op::kSubtract: return Value(a - b);
    case Op::kMultiply: return Value(a * b);
    case Op::kDivide: return Value(a / b);
    case Op::kFloorDivide: return Value(std::floor(a / b));
    case Op::kModulo: return Value(a - std::floor(a / b) * b);
    default: return Value(std::pow(a, b));
  }
}

std::string_view symbol(Op op) {
  static constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<size_t>(op)];
}

/// A string or a list, `count` times.
Result<Value> repeat(Runtime& runtime, const Value& value, int64_t count) {
  const auto times = static_cast<uint64_t>(std::max<int64_t>(count, 0));
  if (const MarkedText* text = value.string()) {
    MarkedText out;
    if (times > 0 && text->text.size() > runtime.bytes_max() / times) return runtime.too_large();
    LATHE_TRY_VOID(runtime.charge(text->text.empty() ? 0 : times * (1 + text->literal.size())));
    for (uint64_t i = 0; i < times && !text->text.empty(); ++i) append(out, *text);
    return runtime.string(std::move(out));
  }
  const List& list = *value.list();
  std::vector<Value> items;
  if (!list.items.empty()) {
    if (times > runtime.limits().template_steps / list.items.size()) return runtime.charge(UINT64_MAX).map([] { return Value(); });
    LATHE_TRY_VOID(runtime.charge(2 * times * list.items.size()));
    for (uint64_t i = 0; i < times; ++i) items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return runtime.list(std::move(items), list.kind);
}

}  // namespace

Result<Value> arithmetic(Runtime& runtime, Op op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float() || op == Op::kDivide) {
      LATHE_TRY_VOID(runtime.charge(op == Op::kPower ? 8 : 1));
      return float_arithmetic(runtime, op, a.as_double(), b.as_double());
    }
    return integer_arithmetic(runtime, op, a.as_int(), b.as_int());
  }
  if (op == Op::kAdd && a.string() != nullptr && b.string() != nullptr) {
    if (a.string()->text.size() + b.string()->text.size() > runtime.bytes_max()) return runtime.too_large();
    MarkedText out = *a.string();
    append(out, *b.string());
    return runtime.string(std::move(out));
  }
  if (op == Op::kAdd && a.list() != nullptr && b.list() != nullptr && a.list()->kind == b.list()->kind) {
    LATHE_TRY_VOID(runtime.charge(a.list()->items.size() + b.list()->items.size()));
    std::vector<Value> items = a.list()->items;
    items.insert(items.end(), b.list()->items.begin(), b.list()->items.end());
    return runtime.list(std::move(items), a.list()->kind);
  }
  if (op == Op::kModulo && a.string() != nullptr) return format_percent(runtime, *a.string(), b);
  if (op == Op::kMultiply) {
    const bool left = a.string() != nullptr || a.list() != nullptr;
    const Value& count = left ? b : a;
    const Value& sequence = left ? a : b;
    if ((sequence.string() != nullptr || sequence.list() != nullptr) && count.is_number() && !count.is_float()) {
      return repeat(runtime, sequence, count.as_int());
    }
  }
  return runtime.fail("'{}' between {} and {}", symbol(op), a.kind_name(), b.kind_name());
}

Result<Value> replaced(Runtime& runtime, const MarkedText& text, const Replacement& what) {
  LATHE_TRY_VOID(runtime.charge_search(text.text, what.from));
  MarkedText out;
  Replacement limited = what;
  limited.bytes_max = runtime.bytes_max();
  switch (replace_text(out, text, limited, [&](uint64_t units) { return runtime.pay(units); })) {
    case Replaced::kTooLarge: return runtime.too_large();
    case Replaced::kNotPaid: return runtime.out_of_budget();
    case Replaced::kDone: break;
  }
  return runtime.string(std::move(out));
}

Result<Value> add(Runtime& runtime, const Value& a, const Value& b) { return arithmetic(runtime, Op::kAdd, a, b); }

}  // namespace lathe::text::jinja
