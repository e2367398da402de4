#pragma once
// Reports of `eval` as JSON and as a page, and what an earlier one says.

#include <map>
#include <string>

#include "config/json.h"
#include "evaluate/eval.h"

namespace lathe::evaluate {

/// {bits_per_byte, heldout, sets.NAME {n, right, interval, rows, row_numbers}, draft, draft_given}
config::Json report_json(const EvalReport& report);
std::string report_page(const EvalReport& report);

/// The rows of a report in JSON, by set. Errors: those of the file; invalid_argument naming file, set and field.
Result<std::map<std::string, SetScore>> read_report(const std::string& path);

}  // namespace lathe::evaluate
