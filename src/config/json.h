#pragma once
// JSON behind one façade: no other folder sees the library (docs/adr/0003-json-http.md). Objects keep their order.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/limits.h"
#include "base/result.h"

namespace lathe::config {

/// How dump() writes.
struct JsonStyle {
  std::string item_separator = ",";
  std::string key_separator = ":";
  int indent = -1;            ///< spaces per level; negative: one line
  bool ensure_ascii = false;  ///< escape everything beyond ASCII as \uXXXX
};

/// One JSON value. Integers outside int64 become doubles. Values compare equal by content.
class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;  ///< in file order; duplicate keys are a parse error

  Json() : value_(nullptr) {}
  Json(std::nullptr_t) : value_(nullptr) {}                     // NOLINT(google-explicit-constructor)
  Json(bool value) : value_(value) {}                           // NOLINT(google-explicit-constructor)
  Json(int value) : value_(static_cast<int64_t>(value)) {}      // NOLINT(google-explicit-constructor)
  Json(int64_t value) : value_(value) {}                        // NOLINT(google-explicit-constructor)
  Json(double value) : value_(value) {}                         // NOLINT(google-explicit-constructor)
  Json(const char* value) : value_(std::string(value)) {}       // NOLINT(google-explicit-constructor)
  Json(std::string value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Json(std::string_view value) : value_(std::string(value)) {}  // NOLINT(google-explicit-constructor)
  Json(Array value) : value_(std::move(value)) {}               // NOLINT(google-explicit-constructor)
  Json(Object value) : value_(std::move(value)) {}              // NOLINT(google-explicit-constructor)

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  bool is_double() const { return std::holds_alternative<double>(value_); }
  bool is_number() const { return is_int() || is_double(); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  /// Accessors; the kind must match (CHECK).
  bool as_bool() const { return as<bool>("a boolean"); }
  int64_t as_int() const { return as<int64_t>("an integer"); }
  double as_double() const { return is_int() ? static_cast<double>(as_int()) : as<double>("a number"); }
  const std::string& as_string() const { return as<std::string>("a string"); }
  const Array& as_array() const { return as<Array>("an array"); }
  Array& as_array() { return const_cast<Array&>(std::as_const(*this).as_array()); }
  const Object& as_object() const { return as<Object>("an object"); }
  Object& as_object() { return const_cast<Object&>(std::as_const(*this).as_object()); }

  /// Member of an object, or null if this is no object or has no such key. Linear: index large objects yourself.
  const Json* find(std::string_view key) const;
  /// Sets or appends a member; this must be an object (or null, which becomes one).
  void set(std::string_view key, Json value);

  /// "null", "a boolean", "an integer", "a number", "a string", "an array", "an object": for messages.
  std::string_view kind_name() const;

  std::string dump(const JsonStyle& style = {}) const;
  friend bool operator==(const Json&, const Json&) = default;

 private:
  template <class T>
  const T& as(std::string_view kind) const {
    const T* const value = std::get_if<T>(&value_);
    LATHE_CHECK(value != nullptr, "a JSON value is {}, not {}", kind_name(), kind);
    return *value;
  }

  std::variant<std::nullptr_t, bool, int64_t, double, std::string, Array, Object> value_;
};

/// Parses a whole document. Errors: invalid_argument with line, column and reason; depth beyond `depth_max`.
/// Strict JSON: no comments, trailing commas, NaN; strings must be valid UTF-8; a duplicate key is an error.
Result<Json> parse_json(std::string_view text, size_t depth_max = base::kLimits.json_depth);

/// Reads and parses a file; every message names the file. Errors: data_loss (no JSON), those of read_file.
Result<Json> read_json_file(const std::string& path, size_t bytes_max = base::kLimits.json_bytes);

/// Appends the JSON string literal of `text`, with quotes.
void append_json_string(std::string& out, std::string_view text, const JsonStyle& style = {});

}  // namespace lathe::config
