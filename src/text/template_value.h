#pragma once
// Values of the chat template language: what Jinja2 calls Python objects. Strings carry literal marks (marked_text.h).
// Values are cheap to copy (payloads are shared and never change, except a namespace). Not thread-safe: one render, one thread.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/limits.h"
#include "config/json.h"
#include "text/marked_text.h"

namespace lathe::text::jinja {

class Value;
class Dict;
struct List;
struct Namespace;
struct Loop;
struct Callable;
struct MacroNode;
struct Scope;

enum class ListKind : uint8_t { kList, kTuple };

struct Undefined {
  const std::string* name = nullptr;  ///< what was looked up, for messages; lives as long as the program
};
struct None {};

using StringPtr = std::shared_ptr<const MarkedText>;
using ListPtr = std::shared_ptr<const List>;
using DictPtr = std::shared_ptr<const Dict>;
using NamespacePtr = std::shared_ptr<Namespace>;
using LoopPtr = std::shared_ptr<const Loop>;
using CallablePtr = std::shared_ptr<const Callable>;

class Value {
 public:
  Value() = default;
  explicit Value(Undefined undefined) : data_(undefined) {}
  explicit Value(None none) : data_(none) {}
  explicit Value(bool value) : data_(value) {}
  explicit Value(int64_t value) : data_(value) {}
  explicit Value(double value) : data_(value) {}
  explicit Value(StringPtr value) : data_(std::move(value)) {}
  explicit Value(ListPtr value) : data_(std::move(value)) {}
  explicit Value(DictPtr value) : data_(std::move(value)) {}
  explicit Value(NamespacePtr value) : data_(std::move(value)) {}
  explicit Value(LoopPtr value) : data_(std::move(value)) {}
  explicit Value(CallablePtr value) : data_(std::move(value)) {}
  explicit Value(MarkedText text) : data_(std::make_shared<const MarkedText>(std::move(text))) {}

  /// A string from data (no byte literal), or one written in the template (every byte literal).
  static Value data_string(std::string text);
  static Value literal_string(std::string text);
  static Value list(std::vector<Value> items, ListKind kind = ListKind::kList);
  static Value dict(Dict dict);
  static Value size(size_t n) { return Value(static_cast<int64_t>(n)); }

  template <class T>
  const T* get() const {
    return std::get_if<T>(&data_);
  }
  bool is_undefined() const { return get<Undefined>() != nullptr; }
  bool is_none() const { return get<None>() != nullptr; }
  bool is_bool() const { return get<bool>() != nullptr; }
  bool is_int() const { return get<int64_t>() != nullptr; }
  bool is_float() const { return get<double>() != nullptr; }
  bool is_number() const { return is_int() || is_float() || is_bool(); }  // as in Python, True is 1
  bool is_string() const { return get<StringPtr>() != nullptr; }

  /// Payload or null.
  const MarkedText* string() const { return payload<StringPtr>(); }
  const List* list() const { return payload<ListPtr>(); }
  const Dict* dict() const { return payload<DictPtr>(); }
  Namespace* names() const {
    const auto* p = get<NamespacePtr>();
    return p == nullptr ? nullptr : p->get();
  }
  const Loop* loop() const { return payload<LoopPtr>(); }
  const Callable* callable() const { return payload<CallablePtr>(); }

  /// Numeric views; only for is_number().
  double as_double() const;
  int64_t as_int() const;

  bool truthy() const;
  uint32_t depth() const;
  /// Units of work of one walk over the value: elements of containers wherever they are shared, 8 bytes of strings. Constant time,
  /// saturating: a small program can build a value with 2^100 elements, so every walk is paid for before it starts.
  uint64_t weight() const;
  /// "a string", "an integer", "undefined", …: for messages.
  std::string_view kind_name() const;

 private:
  template <class P>
  const typename P::element_type* payload() const {
    const P* p = std::get_if<P>(&data_);
    return p == nullptr ? nullptr : p->get();
  }

  std::variant<Undefined, None, bool, int64_t, double, StringPtr, ListPtr, DictPtr, NamespacePtr, LoopPtr, CallablePtr> data_;
};

/// List or tuple (printed differently, otherwise the same).
struct List {
  std::vector<Value> items;
  ListKind kind = ListKind::kList;
  uint32_t depth = 1;   ///< levels of lists and dicts below and including this one
  uint64_t weight = 1;  ///< see Value::weight
};

/// Keys in order of insertion; string keys are found in constant time, others by a scan.
class Dict {
 public:
  const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  const Value* find(std::string_view key) const;
  const Value* find(const Value& key) const;
  void set(Value key, Value value);
  uint32_t depth() const { return depth_; }
  uint64_t weight() const { return weight_; }

 private:
  size_t position(const Value& key) const;
  size_t position(std::string_view key) const;

  std::vector<std::pair<Value, Value>> entries_;
  std::unordered_map<std::string_view, size_t> index_;  // string keys, filled above kIndexAbove entries
  uint32_t depth_ = 1;
  uint64_t weight_ = 1;
};

/// `namespace(…)`: the one thing a template can change from an inner scope.
struct Namespace {
  Dict attributes;
};

/// The `loop` variable.
struct Loop {
  std::shared_ptr<const List> items;
  size_t index = 0;
};

/// A macro, a `caller`, a global function or a method of `self`.
struct Callable {
  std::string name;
  const MacroNode* macro = nullptr;
  Scope* scope = nullptr;  ///< where the macro was defined; the interpreter keeps it alive
  std::shared_ptr<const Value> self;
};

inline Value Value::dict(Dict dict) { return Value(std::make_shared<const Dict>(std::move(dict))); }

/// Units (template_operations.h) for printing what one unit of weight holds, character by character.
inline constexpr uint64_t kPrintUnits = 24;
uint64_t saturating_product(uint64_t a, uint64_t b);

/// Levels of nesting of a value.
inline constexpr uint32_t kValueDepthMax = base::kLimits.template_value_depth;

/// Python's ==: numbers by value, strings by content, containers by elements, namespaces and functions by identity.
bool equal(const Value& a, const Value& b);
/// Python's <: false in `comparable` if the kinds have no order.
bool less(const Value& a, const Value& b, bool& comparable);

/// Python's repr of a float: shortest digits that read back, always with a point or an exponent.
std::string float_text(double value);
/// str(): strings as they are, with their marks; everything else as values. False if that needs more than `bytes_max`.
bool append_str(MarkedText& out, const Value& value, size_t bytes_max);
/// repr(): strings quoted as Python does. False as soon as `out` holds more than `bytes_max`.
bool append_repr(std::string& out, const Value& value, size_t bytes_max);

/// Options of the tojson filter, as Python's json.dumps takes them.
struct JsonOptions {
  config::JsonStyle style{.item_separator = ", ", .key_separator = ": "};
  bool sort_keys = false;
  size_t bytes_max = 0;
};
/// Appends JSON. False if `out` exceeds `bytes_max`, or else if `value` holds something that JSON has no form for.
bool append_json(std::string& out, const Value& value, const JsonOptions& options);

/// From JSON data; strings become values (not literal). Errors: nested deeper than kValueDepthMax.
Result<Value> value_from_json(const config::Json& json);

}  // namespace lathe::text::jinja
