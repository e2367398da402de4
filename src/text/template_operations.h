#pragma once
// What filters, tests, methods and functions see of a render: its limits, the line for messages, calls back into the interpreter.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "base/result.h"
#include "text/template_strings.h"
#include "text/template_value.h"

namespace lathe::text::jinja {

struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;
};

/// State of one render that operations share. Work is paid for in units, kUnitsPerStep of them a step of limits.template_steps.
/// A unit stands for about 10 ns, so that the limit on steps is one on time: an expression node costs 1, a statement 4, an element of
/// a container 1 or 2, a new container or string 8 more, eight copied bytes 1, a character that is looked at 1 or more. Nothing that a
/// template can make long is done for nothing: what cannot be known before is paid while it is done.
class Runtime {
 public:
  static constexpr uint64_t kUnitsPerStep = 4;

  Runtime(const base::Limits& limits, std::optional<int64_t> now)
      : now_unix_s(now), limits_(limits), units_left_(limits.template_steps * kUnitsPerStep) {}
  virtual ~Runtime() = default;

  /// Pays for work before it is done; resource_exhausted when the budget is used up.
  Result<void> charge(uint64_t units) {
    if (units <= units_left_) [[likely]] {
      units_left_ -= units;
      return {};
    }
    return too_many_steps();
  }
  /// The same as an answer, for the functions of template_strings.h; what they left undone then ends in out_of_budget().
  bool pay(uint64_t units) {
    const bool enough = units <= units_left_;
    units_left_ -= enough ? units : units_left_;
    return enough;
  }
  tl::unexpected<Error> out_of_budget() const { return too_many_steps(); }
  /// Pays for searching `needle` in `text` once: a text that nearly matches everywhere is compared again and again.
  Result<void> charge_search(std::string_view text, std::string_view needle) {
    return charge(1 + text.size() * (1 + std::min<size_t>(needle.size(), 256) / 8) / 4);
  }
  /// Pays for going through the characters of a text when the mark of each is looked up.
  Result<void> charge_walk(const MarkedText& text, uint64_t units_a_byte) {
    return charge(4 + text.text.size() * (units_a_byte + static_cast<uint64_t>(std::bit_width(text.literal.size())) / 4));
  }
  size_t bytes_max() const { return limits_.template_output_bytes; }
  const base::Limits& limits() const { return limits_; }

  template <class... Args>
  tl::unexpected<Error> fail(fmt::format_string<Args...> format, Args&&... args) const {
    return error(Code::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...));
  }
  tl::unexpected<Error> error(Code code, std::string_view message) const;
  tl::unexpected<Error> too_large() const;

  /// Checked constructors: pay for the value, refuse what is too large or too deep.
  Result<Value> string(MarkedText text);
  Result<Value> data_string(std::string text) { return string(MarkedText{.text = std::move(text), .literal = {}}); }
  Result<Value> list(std::vector<Value> items, ListKind kind = ListKind::kList);
  Result<Value> dict(Dict dict);

  /// str(value) with marks.
  Result<MarkedText> text_of(const Value& value);
  Result<void> append_text(MarkedText& out, const Value& value);
  /// Elements that a `for` sees: of a list, keys of a dict, characters of a string, none of undefined.
  Result<ListPtr> elements(const Value& value);
  /// value.name and value[key] as templates see them; undefined if missing.
  Result<Value> attribute(const Value& value, const std::string& name);
  Result<Value> item(const Value& value, const Value& key);
  /// A path such as "function.name" or "0.id"; what is missing on the way is `fallback` if that is not null.
  Result<Value> attribute_path(const Value& value, std::string_view path, const Value* fallback = nullptr);
  Result<bool> same(const Value& a, const Value& b);
  Result<bool> before(const Value& a, const Value& b);
  Result<bool> contains(const Value& container, const Value& item);

  virtual Result<Value> call(const Value& function, const CallArgs& args) = 0;

  /// One level of nested evaluation while it lives: what recurses checks it, so that no template can run out of stack.
  class Level {
   public:
    explicit Level(Runtime& runtime) : runtime_(runtime) { ++runtime_.depth_; }
    ~Level() { --runtime_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    Result<void> check() const {
      if (runtime_.depth_ <= runtime_.limits_.template_depth * kLevelsPerDepth) [[likely]]
        return {};
      return runtime_.too_deep();
    }

   private:
    Runtime& runtime_;
  };
  static constexpr size_t kLevelsPerDepth = 10;  // what one call of a macro takes in practice

  uint32_t line = 1;  ///< of what is being evaluated
  std::optional<int64_t> now_unix_s;
  bool refused = false;  ///< by raise_exception: the error is what the template says about its input

 private:
  tl::unexpected<Error> too_many_steps() const;
  tl::unexpected<Error> too_deep() const;

  const base::Limits& limits_;
  uint64_t units_left_;
  size_t depth_ = 0;
};

/// Sorts arguments into the parameters `names`: result[i] is the argument or null. Errors: too many, unknown or given twice.
Result<std::vector<const Value*>> bind(const Runtime& runtime, const CallArgs& args, std::initializer_list<std::string_view> names);

/// Arguments as C++ values, with the parameter's name in the message when the kind is wrong.
Result<const MarkedText*> string_argument(const Runtime& runtime, const Value* value, std::string_view name);
Result<int64_t> int_argument(const Runtime& runtime, const Value* value, std::string_view name, int64_t fallback);

/// Units for printing a float with digits after the point (negative: the default): each digit of a large, small or long one is a division of a number of
/// a thousand bits.
uint64_t digit_units(double value, int64_t precision);

using Operation = Result<Value> (*)(Runtime&, const Value&, const CallArgs&);
struct NamedOperation {
  std::string_view name;
  Operation operation;
};
/// Null if there is none.
Operation find_filter(std::string_view name);
Operation find_test(std::string_view name);
std::span<const NamedOperation> string_filters();
std::span<const NamedOperation> list_filters();
std::span<const NamedOperation> number_filters();

/// Does `value.name` name a method (of strings, lists, dicts, loop)?
bool has_method(const Value& value, std::string_view name);
Result<Value> call_method(Runtime& runtime, const Value& self, std::string_view name, const CallArgs& args);
Result<Value> string_method(Runtime& runtime, const Value& self, std::string_view name, const CallArgs& args);

/// range, dict, raise_exception, strftime_now; `namespace` is the interpreter's own.
bool has_function(const Runtime& runtime, std::string_view name);
Result<Value> call_function(Runtime& runtime, std::string_view name, const CallArgs& args);

/// text % values, and text.format(…).
Result<Value> format_percent(Runtime& runtime, const MarkedText& format, const Value& values);
Result<Value> format_braces(Runtime& runtime, const MarkedText& format, const CallArgs& args);

/// text.replace(from, to, count_max), paid for.
Result<Value> replaced(Runtime& runtime, const MarkedText& text, const Replacement& what);

/// a + b, as `+` in an expression.
Result<Value> add(Runtime& runtime, const Value& a, const Value& b);

}  // namespace lathe::text::jinja
