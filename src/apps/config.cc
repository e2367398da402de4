#include "apps/settings.h"
#include "apps/terminal.h"
#include "apps/verbs.h"
#include "config/settings_json.h"

namespace lathe::apps {

Result<int> config_verb(const config::Settings& settings, ConfigView view) {
  const config::Json json = view == ConfigView::kSchema ? config::settings_schema(settings.registry()) : config::settings_json(settings);
  print(json.dump({.key_separator = ": ", .indent = 2}) + "\n");
  return 0;
}

}  // namespace lathe::apps
