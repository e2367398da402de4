#include "apps/settings.h"
#include "apps/terminal.h"
#include "apps/verbs.h"

namespace lathe::apps {

Result<int> inspect_verb(const config::Settings& settings, const InspectOptions& options) {
  (void)options;
  LATHE_TRY(const engine::EngineOptions engine_settings, engine_options(settings));
  LATHE_TRY(const std::unique_ptr<engine::Engine> engine, engine::Engine::create(engine_settings));
  print(engine->device().describe() + "\n");
  return 0;
}

}  // namespace lathe::apps
