#pragma once
// Settings in JSON: files, the schema, and the values that hold.
// A file is one object, nested or with dotted names: {"engine": {"threads": 4}} = {"engine.threads": 4}.

#include <string>
#include <string_view>

#include "base/result.h"
#include "config/json.h"
#include "config/settings.h"

namespace lathe::config {

/// {"settings": [{name, type, unit, default, min, max, choices, cost, help, flag, environment, aliases}, …]}
Json settings_schema(const SettingRegistry& registry);

/// {name: {"value": …, "origin": …, "place": …}, …}
Json settings_json(const Settings& settings);

/// Applies the values of a file (origin kFile). Errors as Settings says, and an unknown name; `file` stands in the messages.
Result<void> apply_settings(Settings& settings, const Json& json, std::string_view file);
Result<void> apply_settings_file(Settings& settings, const std::string& path);

Json setting_json(const SettingValue& value);

}  // namespace lathe::config
