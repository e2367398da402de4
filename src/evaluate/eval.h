#pragma once
// Quality of a model as numbers: bits per byte, exact answers, draft acceptance, each with n and a 95 % interval.

#include <array>
#include <map>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "engine/engine.h"
#include "evaluate/eval_sets.h"
#include "evaluate/paired.h"
#include "media/image.h"

namespace lathe::evaluate {

struct BitsPerByte {
  int64_t rows = 0;
  int64_t tokens = 0;
  double nll_nats = 0;
  double bits_per_byte = 0;
  double half_width = 0;  ///< of the 95 % interval over rows; 0 of one row
};
/// From what each row took. `tokens`: predicted ones, a row each.
BitsPerByte bits_per_byte(std::span<const double> nll_nats, std::span<const double> tokens, double bytes_per_token);

/// Draft step j is tried where the steps before it were right.
struct DraftScore {
  std::array<int64_t, 3> right{};
  std::array<int64_t, 3> tried{};
  double rate(size_t step) const { return tried[step] == 0 ? 0 : static_cast<double>(right[step]) / static_cast<double>(tried[step]); }
};

struct EvalReport {
  BitsPerByte heldout;
  std::map<std::string, SetScore> sets;
  std::map<std::string, DraftScore> drafts;        ///< by kind, and "all": on the model's own greedy texts
  std::map<std::string, DraftScore> drafts_given;  ///< the same on the texts that the rows bring along
};

/// What is being done, for progress: rows done of all rows.
using EvalProgress = base::FunctionRef<void(const std::string& what, int64_t done, int64_t total)>;

/// Runs all sets. The engine's context must hold the longest row, its draft layer is used if it has one.
/// Rows are generated greedily, many at a time; a row ends at its first wrong token. Errors: those of the engine; invalid_argument for pictures that do not fit.
Result<EvalReport> run_eval(engine::Engine& engine, const EvalSets& sets, const media::PreprocessConfig& preprocess, EvalProgress progress);

/// One set of it.
Result<SetScore> run_set(engine::Engine& engine, const TaskSet& set, const media::PreprocessConfig& preprocess, EvalProgress progress);

/// Tokens of context that a row needs, and where it stands.
struct RowLength {
  int64_t tokens = 0;
  std::string place;
};
/// Of the longest row.
RowLength longest_row(const EvalSets& sets);

/// 95 % interval (Wilson) of a share.
std::pair<double, double> wilson(int64_t right, int64_t n);

}  // namespace lathe::evaluate
