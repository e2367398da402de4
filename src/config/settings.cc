#include "config/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/check.h"

namespace lathe::config {
namespace {

constexpr std::string_view kEnvironmentPrefix = "LATHE_";

int64_t int_limit(double value) { return static_cast<int64_t>(value); }

bool holds(SettingType type, const SettingValue& value) {
  switch (type) {
    case SettingType::kBool: return std::holds_alternative<bool>(value);
    case SettingType::kInt: return std::holds_alternative<int64_t>(value);
    case SettingType::kNumber: return std::holds_alternative<double>(value);
    case SettingType::kString:
    case SettingType::kChoice: return std::holds_alternative<std::string>(value);
  }
  return false;
}

tl::unexpected<Error> wrong(const SettingSpec& spec, std::string_view shown) {
  return err(Code::kInvalidArgument, "{} is {}, expected {}", spec.name, shown, setting_expectation(spec));
}

/// Multiplier of a size suffix, which is cut off; 1 without one.
int64_t cut_size_suffix(std::string_view& text) {
  constexpr std::string_view kSuffixes = "KMGT";
  if (text.empty()) return 1;
  const size_t power = kSuffixes.find(text.back());
  if (power == std::string_view::npos) return 1;
  text.remove_suffix(1);
  return int64_t{1} << (10 * (power + 1));
}

template <class T>
bool parse_whole(std::string_view text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

/// "engine.max_batch" as "engine.max-batch"
std::string flag_name(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

/// "engine.max-batch" as "ENGINE_MAX_BATCH"
std::string variable_name(std::string name) {
  for (char& c : name) c = c == '.' || c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return name;
}

/// What the range of a setting adds to "a number".
std::string range_text(const SettingSpec& spec) {
  const auto limit = [&](double value) { return spec.type == SettingType::kInt ? fmt::format("{}", int_limit(value)) : fmt::format("{}", value); };
  const bool open = spec.min_end == RangeEnd::kOpen;
  if (spec.min && spec.max && !open)
    return fmt::format(" from {} to {}{}", limit(*spec.min), spec.max_end == RangeEnd::kOpen ? "less than " : "", limit(*spec.max));
  std::string text;
  if (spec.min) text = fmt::format(" {} {}", open ? "of more than" : "of at least", limit(*spec.min));
  if (spec.max)
    text += fmt::format(" {}{} {}", spec.min ? "and " : "of ", spec.max_end == RangeEnd::kOpen ? "less than" : "at most", limit(*spec.max));
  return text;
}

/// In integers: 2^53 + 1 is no double.
bool inside(const SettingSpec& spec, int64_t value) {
  return (!spec.min || value >= int_limit(*spec.min)) && (!spec.max || value <= int_limit(*spec.max));
}

bool inside(const SettingSpec& spec, double value) {
  if (spec.also && value == *spec.also) return true;
  if (!std::isfinite(value)) return false;
  if (spec.min && !(spec.min_end == RangeEnd::kOpen ? value > *spec.min : value >= *spec.min)) return false;
  return !spec.max || (spec.max_end == RangeEnd::kOpen ? value < *spec.max : value <= *spec.max);
}

}  // namespace

std::string_view setting_type_name(SettingType type) {
  switch (type) {
    case SettingType::kBool: return "bool";
    case SettingType::kInt: return "int";
    case SettingType::kNumber: return "number";
    case SettingType::kString: return "string";
    case SettingType::kChoice: return "choice";
  }
  return "?";
}

std::string_view setting_cost_name(SettingCost cost) {
  switch (cost) {
    case SettingCost::kHot: return "hot";
    case SettingCost::kReload: return "reload";
    case SettingCost::kRestart: return "restart";
  }
  return "?";
}

std::string_view setting_origin_name(SettingOrigin origin) {
  switch (origin) {
    case SettingOrigin::kDefault: return "default";
    case SettingOrigin::kFile: return "file";
    case SettingOrigin::kEnvironment: return "environment";
    case SettingOrigin::kFlag: return "flag";
  }
  return "?";
}

std::string SettingSpec::flag() const { return "--" + flag_name(name); }
std::string SettingSpec::environment() const { return std::string(kEnvironmentPrefix) + variable_name(name); }

std::string setting_expectation(const SettingSpec& spec) {
  std::string text;
  switch (spec.type) {
    case SettingType::kBool: text = "true or false"; break;
    case SettingType::kInt: text = "an integer"; break;
    case SettingType::kNumber: text = "a number"; break;
    case SettingType::kString: text = "a string"; break;
    case SettingType::kChoice: text = fmt::format("one of {}", fmt::join(spec.choices, ", ")); break;
  }
  text += range_text(spec);
  if (spec.also) text = fmt::format("{} or {}", *spec.also, text);
  if (!spec.unit.empty()) text += fmt::format(" ({})", spec.unit);
  return text;
}

std::string setting_text(const SettingValue& value) {
  return std::visit([](const auto& held) { return fmt::format("{}", held); }, value);
}

Result<void> check_setting(const SettingSpec& spec, const SettingValue& value) {
  if (!holds(spec.type, value)) return wrong(spec, setting_text(value));
  if (spec.type == SettingType::kInt && !inside(spec, std::get<int64_t>(value))) return wrong(spec, setting_text(value));
  if (spec.type == SettingType::kNumber && !inside(spec, std::get<double>(value))) return wrong(spec, setting_text(value));
  if (spec.type == SettingType::kChoice) {
    for (const std::string& choice : spec.choices) {
      if (choice == std::get<std::string>(value)) return {};
    }
    return wrong(spec, fmt::format("'{}'", setting_text(value)));
  }
  return {};
}

Result<SettingValue> parse_setting(const SettingSpec& spec, std::string_view text) {
  const std::string shown = fmt::format("'{}'", text);
  switch (spec.type) {
    case SettingType::kBool:
      for (const std::string_view yes : {"true", "1", "on", "yes"}) {
        if (text == yes) return SettingValue(true);
      }
      for (const std::string_view no : {"false", "0", "off", "no"}) {
        if (text == no) return SettingValue(false);
      }
      return wrong(spec, shown);
    case SettingType::kInt: {
      const int64_t scale = spec.unit == "bytes" ? cut_size_suffix(text) : 1;
      int64_t value = 0;
      if (!parse_whole(text, value) || __builtin_mul_overflow(value, scale, &value)) return wrong(spec, shown);
      return SettingValue(value);
    }
    case SettingType::kNumber: {
      double value = 0;
      if (!parse_whole(text, value)) return wrong(spec, shown);
      return SettingValue(value);
    }
    case SettingType::kString:
    case SettingType::kChoice: return SettingValue(std::string(text));
  }
  return wrong(spec, shown);
}

void SettingRegistry::declare(SettingSpec spec) {
  const Result<void> valid = check_setting(spec, spec.default_value);
  LATHE_CHECK(valid.has_value(), "default: {}", valid.error().message);
  LATHE_CHECK(!spec.help.empty(), "{} has no help", spec.name);
  LATHE_CHECK(by_name_.emplace(spec.name, specs_.size()).second, "{} is declared twice", spec.name);
  specs_.push_back(std::move(spec));
}

const SettingSpec* SettingRegistry::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &specs_[at->second];
}

Settings::Settings(const SettingRegistry& registry) : registry_(registry) {
  for (const SettingSpec& spec : registry.specs()) entries_[spec.name].value = spec.default_value;
}

const Settings::Entry& Settings::entry(std::string_view name) const {
  const auto at = entries_.find(name);
  LATHE_CHECK(at != entries_.end(), "setting '{}' is not declared", name);
  return at->second;
}

Result<void> Settings::set(const SettingSpec& spec, SettingValue value, SettingOrigin origin, std::string place) {
  if (const auto valid = check_setting(spec, value); !valid) return base::forward_error(valid, place);
  Entry& held = entries_[spec.name];
  if (origin >= held.origin) held = {std::move(value), origin, std::move(place)};
  return {};
}

Result<void> Settings::apply_environment(std::span<const char* const> variables) {
  std::map<std::string, const SettingSpec*, std::less<>> by_variable;
  for (const SettingSpec& spec : registry_.specs()) by_variable.emplace(spec.environment(), &spec);
  for (const std::string_view variable : variables) {
    const size_t equals = variable.find('=');
    if (!variable.starts_with(kEnvironmentPrefix) || equals == std::string_view::npos) continue;
    const std::string_view name = variable.substr(0, equals);
    if (registry_.reserved(name) || equals + 1 == variable.size()) continue;  // an empty variable is unset
    const auto at = by_variable.find(name);
    if (at == by_variable.end()) return err(Code::kInvalidArgument, "environment {}: there is no such setting", name);
    const std::string place = fmt::format("environment {}", name);
    auto value = parse_setting(*at->second, variable.substr(equals + 1));
    if (!value) return base::forward_error(value, place);
    LATHE_TRY_VOID(set(*at->second, std::move(*value), SettingOrigin::kEnvironment, place));
  }
  return {};
}

Result<void> Settings::apply_flag(std::string_view name, std::string_view text) {
  const SettingSpec* spec = registry_.find(name);
  if (spec == nullptr) return err(Code::kInvalidArgument, "there is no setting '{}'", name);
  const std::string place = fmt::format("flag {}", spec->flag());
  auto value = parse_setting(*spec, text);
  if (!value) return base::forward_error(value, place);
  return set(*spec, std::move(*value), SettingOrigin::kFlag, place);
}

}  // namespace lathe::config
