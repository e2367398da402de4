#include "models/config_reader.h"

#include <fmt/format.h>

#include <cmath>

namespace lathe::models {

using config::Json;

ConfigReader::ConfigReader(const Json& object, std::string section, std::vector<std::string>& warnings)
    : object_(object), section_(std::move(section)), warnings_(warnings) {}

void ConfigReader::fail_with(const std::string& message) {
  if (!error_) error_ = Error{Code::kInvalidArgument, base::one_line(section_ + message)};
}

Result<void> ConfigReader::status() const {
  if (error_) return tl::unexpected<Error>(*error_);
  return {};
}

const Json* ConfigReader::find_raw(Names names) {
  const Json* found = nullptr;
  std::string_view found_name;
  for (const std::string_view name : names) {
    known_.emplace(name);
    const Json* value = object_.find(name);
    if (value == nullptr) continue;
    if (found == nullptr || (found->is_null() && !value->is_null())) {
      found = value;
      found_name = name;
    } else if (!value->is_null() && !(*value == *found)) {
      fail("{} is {}, but {} (the same setting) is {}", found_name, found->dump(), name, value->dump());
    }
  }
  return found;
}

const Json* ConfigReader::find(Names names) {
  const Json* value = find_raw(names);
  return value != nullptr && value->is_null() ? nullptr : value;
}

int64_t ConfigReader::to_int(std::string_view name, const Json& value, IntRange range) {
  if (!value.is_int() || value.as_int() < range.min || value.as_int() > range.max) {
    fail("{} is {}, expected an integer from {} to {}", name, value.dump(), range.min, range.max);
    return range.min;
  }
  return value.as_int();
}

int64_t ConfigReader::required_int(Names names, IntRange range) {
  const std::string_view name = *names.begin();
  const Json* value = find(names);
  if (value == nullptr) {
    fail("{} is missing and has no safe default", name);
    return range.min;
  }
  return to_int(name, *value, range);
}

double ConfigReader::required_number(Names names, FloatRange range) {
  const std::string_view name = *names.begin();
  const Json* value = find(names);
  if (value == nullptr) {
    fail("{} is missing and has no safe default", name);
    return range.min;
  }
  if (!value->is_number() || !(value->as_double() >= range.min && value->as_double() <= range.max)) {
    fail("{} is {}, expected a number from {} to {}", name, value->dump(), range.min, range.max);
    return range.min;
  }
  return value->as_double();
}

bool ConfigReader::required_bool(Names names) {
  const std::string_view name = *names.begin();
  const Json* value = find(names);
  if (value == nullptr) {
    fail("{} is missing and has no safe default", name);
  } else if (!value->is_bool()) {
    fail("{} is {}, expected true or false", name, value->dump());
  } else {
    return value->as_bool();
  }
  return true;
}

int64_t ConfigReader::int_or(Names names, int64_t fallback, IntRange range) {
  const Json* value = find(names);
  if (value != nullptr) return to_int(*names.begin(), *value, range);
  warn("{} is missing, taken as {}", *names.begin(), fallback);
  return fallback;
}

bool ConfigReader::bool_or(Names names, bool fallback) {
  if (find(names) != nullptr) return required_bool(names);
  warn("{} is missing, taken as {}", *names.begin(), fallback);
  return fallback;
}

std::optional<std::string> ConfigReader::optional_string(Names names) {
  const Json* value = find(names);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    fail("{} is {}, expected a string", *names.begin(), value->dump());
    return std::nullopt;
  }
  return value->as_string();
}

std::optional<std::vector<std::string>> ConfigReader::optional_strings(Names names) {
  const Json* value = find(names);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) {
    fail("{} is {}, expected an array of strings", *names.begin(), value->kind_name());
    return std::nullopt;
  }
  std::vector<std::string> out;
  for (const Json& item : value->as_array()) {
    if (!item.is_string()) {
      fail("{}[{}] is {}, expected a string", *names.begin(), out.size(), item.dump());
      return std::nullopt;
    }
    out.push_back(item.as_string());
  }
  return out;
}

std::optional<std::vector<int64_t>> ConfigReader::optional_ints(Names names, IntRange range) {
  const Json* value = find(names);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) {
    fail("{} is {}, expected an array of integers", *names.begin(), value->kind_name());
    return std::nullopt;
  }
  std::vector<int64_t> out;
  for (const Json& item : value->as_array()) out.push_back(to_int(fmt::format("{}[{}]", *names.begin(), out.size()), item, range));
  return out;
}

std::vector<int64_t> ConfigReader::int_or_list(Names names, IntRange range) {
  const Json* value = find(names);
  if (value == nullptr) return {};
  if (value->is_array()) return optional_ints(names, range).value_or(std::vector<int64_t>());
  return {to_int(*names.begin(), *value, range)};
}

void ConfigReader::only(std::string_view name, const Json& expected) {
  const Json* value = find({name});
  // 2 and 2.0 are the same setting.
  const bool same =
      value != nullptr && (value->is_number() && expected.is_number() ? value->as_double() == expected.as_double() : *value == expected);
  if (value != nullptr && !same) fail("{} is {}, only {} is supported", name, value->dump(), expected.dump());
}

void ConfigReader::ignore(Names names) {
  for (const std::string_view name : names) known_.emplace(name);
}

void ConfigReader::warn_about_unknown_keys() {
  for (const auto& [key, value] : object_.as_object()) {
    if (!known_.contains(key)) warn("{} is unknown and ignored", key);
  }
}

}  // namespace lathe::models
