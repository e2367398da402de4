#pragma once
// The family's part of gguf_export.h.

#include "models/gguf_export.h"

namespace lathe::models {

Result<GgufExportReport> export_glm5_next_gguf(const std::string& model, const std::string& path, const GgufExportOptions& options,
                                               GgufProgress progress);

}  // namespace lathe::models
