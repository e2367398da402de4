// Any JSON as config.json, description of a ModelSlim export and generation_config.json: an error with one sentence, or dimensions within the reader's own rules.

#include "config/json.h"
#include "input.h"
#include "models/generation_config.h"
#include "models/glm5_next_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lathe;
  const auto json = config::parse_json(fuzz::text_of(data, size));
  if (!json) return 0;
  const auto parsed = models::parse_glm5_next_config(*json);
  if (parsed) {
    const models::Glm5NextConfig& c = parsed->config;
    fuzz::expect(c.layers > 0 && c.mixers.size() == static_cast<size_t>(c.layers) && c.ffns.size() == c.mixers.size(), "every layer has its kinds");
  } else {
    fuzz::expect_message(parsed.error().message);
  }
  const auto description = models::read_modelslim_description(*json);
  if (!description) fuzz::expect_message(description.error().message);
  const auto defaults = models::parse_generation_config(*json);
  if (!defaults) fuzz::expect_message(defaults.error().message);
  return 0;
}
