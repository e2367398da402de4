// Presets: names for several settings at once.

#include <algorithm>
#include <iterator>

#include "apps/settings.h"
#include "base/check.h"

namespace lathe::apps {
namespace {

struct PresetValue {
  const char* preset;
  const char* setting;
  const char* value;
};
constexpr PresetValue kPresetValues[] = {
    {"plain", "engine.cache-dtype", "plain"},
    {"full", "engine.cache-dtype", "balanced,state=fp16+replay"},
};

}  // namespace

void apply_preset(config::Settings& settings) {
  const std::string& preset = settings.get_string("engine.preset");
  for (const PresetValue& named : kPresetValues) {  // of any preset: another one may have been applied before
    if (settings.origin(named.setting) != config::SettingOrigin::kDefault) continue;
    const config::SettingSpec& spec = *registry().find(named.setting);
    const auto chosen = std::find_if(std::begin(kPresetValues), std::end(kPresetValues),
                                     [&](const PresetValue& value) { return preset == value.preset && spec.name == value.setting; });
    const bool given = chosen != std::end(kPresetValues);
    const auto value = given ? config::parse_setting(spec, chosen->value) : Result<config::SettingValue>(spec.default_value);
    LATHE_CHECK(value.has_value(), "preset {}: {}", preset, value.error().message);
    const auto done = settings.set(spec, *value, config::SettingOrigin::kDefault, given ? "preset " + preset : "default");
    LATHE_CHECK(done.has_value(), "preset {}: {}", preset, done.error().message);
  }
}

}  // namespace lathe::apps
