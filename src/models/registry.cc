#include "models/registry.h"

#include <fmt/ranges.h>

#include <array>
#include <vector>

#include "config/json.h"
#include "models/glm5_next_text.h"

namespace lathe::models {
namespace {

constexpr std::array kFamilies = {
    FamilyEntry{"glm5_next", Glm5NextModel::load},
    FamilyEntry{"glm5_next_text", Glm5NextModel::load},
    // Pre-release spellings of the same.
    FamilyEntry{"glm5_next_vl", Glm5NextModel::load},
    FamilyEntry{"glm5_next_vl_text", Glm5NextModel::load},
};

}  // namespace

std::span<const FamilyEntry> model_families() { return kFamilies; }

Result<std::unique_ptr<Model>> load_model(const std::string& directory, backend::Dispatch& dispatch, const ModelOptions& options) {
  const std::string file = directory + "/config.json";
  LATHE_TRY(const config::Json json, config::read_json_file(file, base::kLimits.config_bytes));
  const config::Json* const type = json.find("model_type");
  if (type == nullptr || !type->is_string()) return err(Code::kInvalidArgument, "{}: model_type is missing, expected a string", file);
  std::vector<std::string_view> known;
  for (const FamilyEntry& family : kFamilies) {
    if (type->as_string() == family.model_type) return family.load(directory, dispatch, options);
    known.push_back(family.model_type);
  }
  return err(Code::kUnimplemented, "{}: model_type is \"{}\", supported are {}", file, type->as_string(), fmt::join(known, ", "));
}

}  // namespace lathe::models
