#pragma once
// The settings seam: a setting is declared once; flags, environment, files, help and `config schema` come from the declaration.
// No JSON here, so that `engine` may include it; settings_json.h has files and the schema.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace lathe::config {

using SettingValue = std::variant<bool, int64_t, double, std::string>;

enum class SettingType : uint8_t { kBool, kInt, kNumber, kString, kChoice };
/// What it takes for a changed value to act.
enum class SettingCost : uint8_t { kHot, kReload, kRestart };  ///< at once; load the model again; start the process again
/// Where a value came from; a later one in this list wins.
enum class SettingOrigin : uint8_t { kDefault, kFile, kEnvironment, kFlag };

std::string_view setting_type_name(SettingType type);        ///< "bool", "int", "number", "string", "choice"
std::string_view setting_cost_name(SettingCost cost);        ///< "hot", "reload", "restart"
std::string_view setting_origin_name(SettingOrigin origin);  ///< "default", "file", "environment", "flag"

/// Whether a range holds its end itself.
enum class RangeEnd : uint8_t { kClosed, kOpen };

struct SettingSpec {
  std::string name;  ///< lower case, sections by dots: "engine.max_batch_tokens"
  SettingType type = SettingType::kString;
  std::string unit;            ///< "tokens", "bytes", "s"; empty: none. Text values in bytes may end in K, M, G or T (powers of 1024)
  SettingValue default_value;  ///< holds bool, int64_t, double or string according to type (a choice is a string)
  std::optional<double> min;   ///< for ints and numbers
  std::optional<double> max;
  std::vector<std::string> choices;
  SettingCost cost = SettingCost::kRestart;
  std::string help;                  ///< one sentence
  std::vector<std::string> aliases;  ///< other flag names without dashes: "t", "threads"
  RangeEnd min_end = RangeEnd::kClosed;
  RangeEnd max_end = RangeEnd::kClosed;  ///< ints: closed ends alone
  std::optional<double> also = {};       ///< a number outside the range that is allowed too
  bool list = false;                     ///< a text of parts separated by commas: its flag may be repeated, each adding a part

  /// "--engine.max-batch-tokens"
  std::string flag() const;
  /// "LATHE_ENGINE_MAX_BATCH_TOKENS"
  std::string environment() const;
};

/// All settings of a program. Declaring is code, so mistakes in it (a name twice, a default out of range) are CHECKs.
class SettingRegistry {
 public:
  void declare(SettingSpec spec);
  /// Names an environment variable with our prefix that is no setting, e.g. of the tests.
  void reserve_environment(std::string name) { reserved_.insert(std::move(name)); }

  std::span<const SettingSpec> specs() const { return specs_; }
  const SettingSpec* find(std::string_view name) const;
  bool reserved(std::string_view environment_name) const { return reserved_.contains(environment_name); }

 private:
  std::vector<SettingSpec> specs_;
  std::map<std::string, size_t, std::less<>> by_name_;
  std::set<std::string, std::less<>> reserved_;
};

/// The values that hold, each with its origin.
///
/// Errors   invalid_argument: unknown name, wrong type, out of range, not a choice; each names the place (file, variable, flag), value and expectation.
///          A call that fails may have set some of its values: stop then.
/// Threads  one; read-only use from any.
class Settings {
 public:
  /// Everything at its default. The registry must outlive this object.
  explicit Settings(const SettingRegistry& registry);

  /// `variables`: "NAME=value" as in environ; those that are empty or do not begin with LATHE_ are skipped.
  Result<void> apply_environment(std::span<const char* const> variables);
  /// A flag's text; `name` is the setting's name.
  Result<void> apply_flag(std::string_view name, std::string_view text);
  /// A value of the right type; it holds unless one of a later origin does. `place` says where it stands, for messages.
  Result<void> set(const SettingSpec& spec, SettingValue value, SettingOrigin origin, std::string place);

  const SettingRegistry& registry() const { return registry_; }

  /// The name must be declared and of that type (CHECK).
  bool get_bool(std::string_view name) const { return std::get<bool>(value(name)); }
  int64_t get_int(std::string_view name) const { return std::get<int64_t>(value(name)); }
  double get_number(std::string_view name) const { return std::get<double>(value(name)); }
  const std::string& get_string(std::string_view name) const { return std::get<std::string>(value(name)); }
  const SettingValue& value(std::string_view name) const { return entry(name).value; }
  SettingOrigin origin(std::string_view name) const { return entry(name).origin; }
  /// "default", "file x.json", "environment LATHE_X", "flag --x".
  const std::string& place(std::string_view name) const { return entry(name).place; }

 private:
  struct Entry {
    SettingValue value;
    SettingOrigin origin = SettingOrigin::kDefault;
    std::string place = "default";
  };
  const Entry& entry(std::string_view name) const;

  const SettingRegistry& registry_;
  std::map<std::string, Entry, std::less<>> entries_;
};

std::string setting_text(const SettingValue& value);

/// "an integer from 1 to 64 (threads)": what messages and help say is expected.
std::string setting_expectation(const SettingSpec& spec);

/// Text of a flag or variable as a value of the setting's type. Error invalid_argument without the place: the caller adds it.
Result<SettingValue> parse_setting(const SettingSpec& spec, std::string_view text);
/// Type, range and choices.
Result<void> check_setting(const SettingSpec& spec, const SettingValue& value);

}  // namespace lathe::config
