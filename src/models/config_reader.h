#pragma once
// Reads one object of a model's config.json key by key: aliases, limits, sentences for what is wrong, and which keys nobody asked for.

#include <fmt/core.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "config/json.h"

namespace lathe::models {

/// Inclusive range of an integer key.
struct IntRange {
  int64_t min = 1;
  int64_t max = 1;
};

/// Inclusive range of a number key.
struct FloatRange {
  double min = 0;
  double max = 0;
};

/// The first error sticks; later calls return harmless values, so that a caller asks for everything and looks at status() once.
/// In every method the first name is the released key, the others are its aliases: two of them with different values are an error.
class ConfigReader {
 public:
  using Names = std::initializer_list<std::string_view>;

  /// `object` must be a JSON object and outlive the reader; `section` ("text_config.") stands before keys in messages.
  ConfigReader(const config::Json& object, std::string section, std::vector<std::string>& warnings);

  /// The value, or null if absent. A JSON null counts as absent; `find_raw` tells them apart.
  const config::Json* find(Names names);
  const config::Json* find_raw(Names names);

  int64_t required_int(Names names, IntRange range);
  double required_number(Names names, FloatRange range);
  bool required_bool(Names names);
  /// Absent: the fallback, with a warning.
  int64_t int_or(Names names, int64_t fallback, IntRange range);
  bool bool_or(Names names, bool fallback);
  std::optional<std::string> optional_string(Names names);
  /// An array of strings, or nothing; other elements are an error.
  std::optional<std::vector<std::string>> optional_strings(Names names);
  /// An array of integers inside `range`, or nothing.
  std::optional<std::vector<int64_t>> optional_ints(Names names, IntRange range);
  /// One integer or an array of them; empty if absent.
  std::vector<int64_t> int_or_list(Names names, IntRange range);

  /// Absent is fine, every value but `expected` is an error.
  void only(std::string_view name, const config::Json& expected);
  /// Keys without influence on inference.
  void ignore(Names names);

  template <class... Args>
  void fail(fmt::format_string<Args...> format, Args&&... args) {
    fail_with(fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) {
    warnings_.push_back(section_ + fmt::format(format, std::forward<Args>(args)...));
  }
  /// Warns about every key that was neither asked for nor ignored.
  void warn_about_unknown_keys();
  Result<void> status() const;

 private:
  void fail_with(const std::string& message);
  int64_t to_int(std::string_view name, const config::Json& value, IntRange range);

  const config::Json& object_;
  std::string section_;
  std::vector<std::string>& warnings_;
  std::unordered_set<std::string> known_;
  std::optional<Error> error_;
};

}  // namespace lathe::models
