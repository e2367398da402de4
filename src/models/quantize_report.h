#pragma once
// Errors of converted matrices: from sums, to JSON and back, so that an interrupted run keeps those of what it has written.

#include <string>
#include <vector>

#include "config/json.h"
#include "models/matrix_codes.h"
#include "models/quantize.h"

namespace lathe::models {

/// The errors of a matrix; the rest of the row is the caller's.
QuantizedMatrix matrix_errors(const RowErrors& errors);

config::Json matrices_json(const std::vector<QuantizedMatrix>& matrices);
/// Errors: invalid_argument (not what matrices_json gives).
Result<std::vector<QuantizedMatrix>> read_matrices(const config::Json& json);

/// Totals of one kind.
struct QuantizedKind {
  std::string kind;
  int64_t matrices = 0;
  double relative_rms = 0;  ///< over all values
  uint64_t bytes_before = 0, bytes_after = 0;
};
/// In the order in which kinds come.
std::vector<QuantizedKind> kinds_of(const std::vector<QuantizedMatrix>& matrices);

}  // namespace lathe::models
