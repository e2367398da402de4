#pragma once
// Every op of the table at the sizes of a model: the shared case table, and what it has no model case for.

#include <string>
#include <vector>

#include "ops/cases/cases.h"

namespace lathe::evaluate {

struct BenchCase {
  ops::OpId op = ops::OpId::kCount;
  std::string name;
  int64_t tokens = 0;
  ops::cases::Case built;  ///< at `tokens`
  std::string note;        ///< what had to be smaller than in the model
};

struct BenchShapes {
  std::string name;  ///< "model" (the built-in one) or "published"
  int64_t tokens = 1;
  ops::Compute compute = ops::Compute::kBF16;
  int64_t memory_bytes = 0;  ///< that one case may take; fewer experts where they would not fit
};
/// Errors: invalid_argument (unknown name).
Result<std::vector<BenchCase>> bench_cases(const BenchShapes& shapes);

}  // namespace lathe::evaluate
