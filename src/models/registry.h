#pragma once
// The model families that this binary knows: an explicit table.

#include <memory>
#include <span>
#include <string>

#include "backend/dispatch.h"
#include "base/function_ref.h"
#include "models/model.h"

namespace lathe::models {

struct DescribeOptions;  // model_description.h and gguf_export.h, which callers of load_model need not see
struct ModelDescription;
struct GgufExportOptions;
struct GgufExportReport;
struct QuantizeOptions;  // quantize.h
struct QuantizeReport;
struct CalibrateOptions;  // calibrate.h
struct Calibration;

struct FamilyEntry {
  const char* model_type;  ///< as config.json says it
  Result<std::unique_ptr<Model>> (*load)(const std::string& directory, backend::Dispatch& dispatch, const ModelOptions& options);
  Result<ModelDescription> (*describe)(const std::string& path, const DescribeOptions& options);
  Result<GgufExportReport> (*export_gguf)(const std::string& directory, const std::string& path, const GgufExportOptions& options,
                                          base::FunctionRef<bool(uint64_t done, uint64_t total)> progress);
  Result<QuantizeReport> (*quantize)(const std::string& directory, const std::string& path, const QuantizeOptions& options,
                                     base::FunctionRef<bool(uint64_t done, uint64_t total)> progress);
  Result<Calibration> (*calibrate)(const std::string& directory, std::span<const TokenId> ids, const CalibrateOptions& options,
                                   base::FunctionRef<bool(int64_t done, int64_t total)> progress);
};
std::span<const FamilyEntry> model_families();

/// Reads DIR/config.json and loads the family that its model_type names. `dispatch` and its device outlive the model.
/// Every op call is planned here: a kernel that is missing or refuses its sizes is an error now, not in a step.
/// Without options.weights a config is enough, and `directory` may be the file itself.
/// Errors  not_found (no such folder, no config.json), unimplemented (another model_type: lists the known ones), those of config, checkpoint and plan.
Result<std::unique_ptr<Model>> load_model(const std::string& directory, backend::Dispatch& dispatch, const ModelOptions& options);

}  // namespace lathe::models
