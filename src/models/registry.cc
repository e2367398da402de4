#include "models/registry.h"

#include <fmt/ranges.h>

#include <array>
#include <vector>

#include "base/file.h"
#include "config/json.h"
#include "models/glm5_next_describe.h"
#include "models/glm5_next_export.h"
#include "models/glm5_next_quantize.h"
#include "models/glm5_next_text.h"
#include "models/model_description.h"

namespace lathe::models {
namespace {

constexpr std::array kFamilies = {
    FamilyEntry{"glm5_next", Glm5NextModel::load, describe_glm5_next, export_glm5_next_gguf, quantize_glm5_next, calibrate_glm5_next},
    FamilyEntry{"glm5_next_text", Glm5NextModel::load, describe_glm5_next, export_glm5_next_gguf, quantize_glm5_next, calibrate_glm5_next},
    // Pre-release spellings of the same.
    FamilyEntry{"glm5_next_vl", Glm5NextModel::load, describe_glm5_next, export_glm5_next_gguf, quantize_glm5_next, calibrate_glm5_next},
    FamilyEntry{"glm5_next_vl_text", Glm5NextModel::load, describe_glm5_next, export_glm5_next_gguf, quantize_glm5_next, calibrate_glm5_next},
};

/// Weights lie in a folder; one that is not there is told by find_family.
Result<void> check_directory(const std::string& path) {
  if (!base::file_exists(path) || base::is_directory(path)) return {};
  return err(Code::kFailedPrecondition, "'{}' is a file, expected the directory of a model", path);
}

/// The family that the config of a directory (or a config file itself) names.
Result<const FamilyEntry*> find_family(const std::string& path) {
  if (!base::file_exists(path)) return err(Code::kNotFound, "there is no model at '{}': No such file or directory", path);
  const std::string file = base::is_directory(path) ? path + "/config.json" : path;
  LATHE_TRY(const config::Json json, config::read_json_file(file, base::kLimits.config_bytes));
  if (!json.is_object()) return err(Code::kDataLoss, "{}: the config is {}, expected an object with model_type", file, json.kind_name());
  const config::Json* const type = json.find("model_type");
  if (type == nullptr) return err(Code::kDataLoss, "{}: model_type is missing, expected a string", file);
  if (!type->is_string()) return err(Code::kDataLoss, "{}: model_type is {}, expected a string", file, type->dump());
  std::vector<std::string_view> known;
  for (const FamilyEntry& family : kFamilies) {
    if (type->as_string() == family.model_type) return &family;
    known.push_back(family.model_type);
  }
  return err(Code::kUnimplemented, "{}: model_type is \"{}\", supported are {}", file, type->as_string(), fmt::join(known, ", "));
}

}  // namespace

std::span<const FamilyEntry> model_families() { return kFamilies; }

Result<std::unique_ptr<Model>> load_model(const std::string& directory, backend::Dispatch& dispatch, const ModelOptions& options) {
  if (options.weights) LATHE_TRY_VOID(check_directory(directory));
  LATHE_TRY(const FamilyEntry* const family, find_family(directory));
  return family->load(directory, dispatch, options);
}

Result<ModelDescription> describe_model(const std::string& path, const DescribeOptions& options) {
  LATHE_TRY(const FamilyEntry* const family, find_family(path));
  return family->describe(path, options);
}

Result<void> check_gguf_export(const std::string& model) {
  LATHE_TRY_VOID(check_directory(model));
  const auto family = find_family(model);
  if (!family) return base::forward_error(family);
  return {};
}

Result<GgufExportReport> export_gguf(const std::string& model, const std::string& path, const GgufExportOptions& options, GgufProgress progress) {
  LATHE_TRY_VOID(check_directory(model));
  LATHE_TRY(const FamilyEntry* const family, find_family(model));
  return family->export_gguf(model, path, options, progress);
}

Result<Calibration> calibrate_model(const std::string& model, std::span<const TokenId> ids, const CalibrateOptions& options,
                                    CalibrateProgress progress) {
  LATHE_TRY_VOID(check_directory(model));
  LATHE_TRY(const FamilyEntry* const family, find_family(model));
  return family->calibrate(model, ids, options, progress);
}

Result<QuantizeReport> quantize_model(const std::string& model, const std::string& path, const QuantizeOptions& options, QuantizeProgress progress) {
  LATHE_TRY_VOID(check_directory(model));
  LATHE_TRY(const FamilyEntry* const family, find_family(model));
  return family->quantize(model, path, options, progress);
}

}  // namespace lathe::models
