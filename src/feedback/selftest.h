#pragma once
// Equality as a product feature: the engine compared with itself and with the reference, on the user's machine and model.

#include <string>
#include <vector>

#include "base/function_ref.h"
#include "engine/engine.h"

namespace lathe::feedback {

struct SelftestRow {
  std::string name;      ///< "chunks"
  std::string compared;  ///< one sentence
  double worst = 0;      ///< largest difference; logits relative to the largest logit
  double budget = 0;     ///< 0: bit for bit
  bool passed = false;
  std::string detail;
};

/// Runs every check. `progress(done, total)` is called before each. Errors are those of the engine: a check that finds a difference is a row, no error.
Result<std::vector<SelftestRow>> run_selftest(const engine::EngineOptions& options, base::FunctionRef<void(int64_t, int64_t)> progress);

}  // namespace lathe::feedback
