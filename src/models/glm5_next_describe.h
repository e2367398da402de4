#pragma once
// The family's part of model_description.h.

#include "models/model_description.h"

namespace lathe::models {

/// Describes the model of a directory or a config file; where the directory holds weights, their stored dtypes count.
/// Errors: those of the config and of the checkpoint; invalid_argument (a context beyond what the model was made for).
Result<ModelDescription> describe_glm5_next(const std::string& path, const DescribeOptions& options);

}  // namespace lathe::models
