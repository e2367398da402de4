#include "models/glm5_next_test_config.h"

#include "base/check.h"
#include "models/glm5_next_release.h"

namespace lathe::models {

using config::Json;

Json release_config() { return glm5_next_release(); }

Json& section(Json& config, std::string_view name) {
  for (auto& [key, value] : config.as_object()) {
    if (key == name) return value;
  }
  LATHE_CHECK(false, "no section {}", name);
  return config;
}

bool erase(Json& object, std::string_view key) {
  return std::erase_if(object.as_object(), [&](const auto& member) { return member.first == key; }) > 0;
}

}  // namespace lathe::models
