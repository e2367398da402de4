#pragma once
// Reports of `bench ops` and `bench model` against recorded ones.

#include <string>

#include "config/json.h"

namespace lathe::evaluate {

/// A recorded report. Errors: those of reading it; data_loss (it has no figures of bench `suite`).
Result<config::Json> read_baseline(const std::string& path, const std::string& suite);

/// Every figure that both reports have: how many times faster it is now, and its share of the floor then and now (times drift with the machine's load, shares
/// less). Errors: data_loss (`place` is no such report).
Result<std::string> baseline_page(const config::Json& now, const config::Json& then, const std::string& place);

}  // namespace lathe::evaluate
