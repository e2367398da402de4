#include "models/generation_config.h"

#include "base/file.h"
#include "base/limits.h"
#include "models/config_reader.h"

namespace lathe::models {

using config::Json;

Result<GenerationDefaults> parse_generation_config(const Json& json) {
  if (!json.is_object()) return err(Code::kInvalidArgument, "the generation config is {}, expected an object", json.kind_name());
  std::vector<std::string> warnings;  // unknown keys are other engines' business
  ConfigReader reader(json, "", warnings);
  GenerationDefaults out;
  if (reader.find({"temperature"}) != nullptr) out.temperature = reader.required_number({"temperature"}, {0, 1000});
  if (reader.find({"top_p"}) != nullptr) out.top_p = reader.required_number({"top_p"}, {0, 1});
  if (reader.find({"top_k"}) != nullptr) out.top_k = reader.required_int({"top_k"}, {0, INT32_MAX});
  for (const int64_t id : reader.int_or_list({"eos_token_id"}, {0, INT32_MAX})) out.eos.push_back(static_cast<TokenId>(id));
  if (const Json* sample = reader.find({"do_sample"}); sample != nullptr && *sample == Json(false)) out.temperature = 0.0;
  LATHE_TRY_VOID(reader.status());
  return out;
}

Result<GenerationDefaults> read_generation_config(const std::string& directory) {
  const std::string file = directory + "/generation_config.json";
  if (!base::file_exists(file)) return GenerationDefaults{};
  LATHE_TRY(const Json json, config::read_json_file(file, base::kLimits.config_bytes));
  auto parsed = parse_generation_config(json);
  if (!parsed) return base::file_content<GenerationDefaults>(base::forward_error(parsed, file));
  return parsed;
}

}  // namespace lathe::models
