#include "config/settings_json.h"

#include <algorithm>

#include "base/limits.h"

namespace lathe::config {
namespace {

/// A JSON value as a value of the setting's type.
Result<SettingValue> from_json(const SettingSpec& spec, const Json& json) {
  if (spec.type == SettingType::kBool && json.is_bool()) return SettingValue(json.as_bool());
  if (spec.type == SettingType::kInt && json.is_int()) return SettingValue(json.as_int());
  if (spec.type == SettingType::kNumber && json.is_number()) return SettingValue(json.as_double());
  if ((spec.type == SettingType::kString || spec.type == SettingType::kChoice) && json.is_string()) return SettingValue(json.as_string());
  // Sizes may be written with a suffix in files too.
  if (spec.type == SettingType::kInt && spec.unit == "bytes" && json.is_string()) return parse_setting(spec, json.as_string());
  return err(Code::kInvalidArgument, "{} is {}, expected {}", spec.name, json.dump(), setting_expectation(spec));
}

Result<void> apply_member(Settings& settings, const std::string& name, const Json& json, std::string_view file) {
  const std::string place = fmt::format("file {}", file);
  if (const SettingSpec* spec = settings.registry().find(name)) {
    auto value = from_json(*spec, json);
    if (!value) return base::forward_error(value, place);
    return settings.set(*spec, std::move(*value), SettingOrigin::kFile, place);
  }
  const auto in_group = [&](const SettingSpec& spec) { return spec.name.starts_with(name + "."); };
  const bool group = std::any_of(settings.registry().specs().begin(), settings.registry().specs().end(), in_group);
  if (!group) return err(Code::kInvalidArgument, "{}: there is no setting '{}'", place, name);
  if (!json.is_object()) return err(Code::kInvalidArgument, "{}: {} is {}, expected an object of settings", place, name, json.dump());
  for (const auto& [key, value] : json.as_object()) LATHE_TRY_VOID(apply_member(settings, fmt::format("{}.{}", name, key), value, file));
  return {};
}

}  // namespace

Json setting_json(const SettingValue& value) {
  return std::visit([](const auto& held) { return Json(held); }, value);
}

Json settings_schema(const SettingRegistry& registry) {
  Json::Array list;
  for (const SettingSpec& spec : registry.specs()) {
    Json item;
    item.set("name", spec.name);
    item.set("type", setting_type_name(spec.type));
    item.set("unit", spec.unit);
    item.set("default", setting_json(spec.default_value));
    const auto limit = [&](double value) { return spec.type == SettingType::kInt ? Json(static_cast<int64_t>(value)) : Json(value); };
    if (spec.min) item.set("min", limit(*spec.min));
    if (spec.min_end == RangeEnd::kOpen) item.set("min_excluded", true);
    if (spec.max) item.set("max", limit(*spec.max));
    if (spec.max_end == RangeEnd::kOpen) item.set("max_excluded", true);
    if (spec.also) item.set("also", *spec.also);
    Json::Array choices;
    for (const std::string& choice : spec.choices) choices.emplace_back(choice);
    if (!choices.empty()) item.set("choices", std::move(choices));
    item.set("cost", setting_cost_name(spec.cost));
    item.set("help", spec.help);
    item.set("flag", spec.flag());
    item.set("environment", spec.environment());
    Json::Array aliases;
    for (const std::string& alias : spec.aliases) aliases.emplace_back(alias);
    if (!aliases.empty()) item.set("aliases", std::move(aliases));
    list.push_back(std::move(item));
  }
  Json out;
  out.set("settings", std::move(list));
  return out;
}

Result<void> apply_settings(Settings& settings, const Json& json, std::string_view file) {
  if (!json.is_object()) return err(Code::kInvalidArgument, "file {}: the settings are {}, expected an object", file, json.kind_name());
  for (const auto& [key, value] : json.as_object()) LATHE_TRY_VOID(apply_member(settings, key, value, file));
  return {};
}

Result<void> apply_settings_file(Settings& settings, const std::string& path) {
  LATHE_TRY(const Json json, read_json_file(path, base::kLimits.config_bytes));
  return apply_settings(settings, json, path);
}

Json settings_json(const Settings& settings) {
  Json out = Json::Object{};
  for (const SettingSpec& spec : settings.registry().specs()) {
    Json item;
    item.set("value", setting_json(settings.value(spec.name)));
    item.set("origin", setting_origin_name(settings.origin(spec.name)));
    item.set("place", settings.place(spec.name));
    out.set(spec.name, std::move(item));
  }
  return out;
}

}  // namespace lathe::config
