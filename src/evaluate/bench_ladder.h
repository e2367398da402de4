#pragma once
// `bench ladder`: one engine a rung, every rung under other settings; what each technique gives alone and all together, in speed, bytes, memory and accuracy.

#include <optional>
#include <string>
#include <vector>

#include "evaluate/bench_model.h"
#include "evaluate/comparison.h"

namespace lathe::evaluate {

struct LadderRung {
  std::string name;
  std::string settings;  ///< as the user would write them
  engine::EngineOptions engine;
};

struct LadderOptions {
  std::vector<LadderRung> rungs;  ///< the first is what the others are compared with
  BenchModelOptions bench;        ///< lengths and batches; one sample of each a round
  int rounds = 5;                 ///< each runs every rung once, in an order that is drawn
  int64_t memory_bytes = 0;       ///< for weights, activations and caches
};

/// Tokens per second of one length or batch, round by round.
struct LadderFigure {
  std::string name;  ///< "prefill 512", "decode 16"
  std::vector<double> rates;
  RatioInterval ratio = {};  ///< to the first rung
  double token_bytes = 0;    ///< that a token must move, as `inspect` counts
};

struct LadderRow {
  std::string name, settings;
  std::string cache_formats;
  std::vector<LadderFigure> figures = {};
  int64_t weight_bytes = 0;
  int64_t sequence_bytes = 0;                      ///< that the store reserves for one sequence
  int64_t largest_batch = 0;                       ///< sequences that fit into the memory beside weights and activations
  std::optional<HeldoutComparison> accuracy = {};  ///< to the first rung
};

struct LadderBench {
  int64_t context = 0;  ///< tokens of a sequence
  std::vector<LadderRow> rows;
};

/// Sequences of `sequence_bytes` that fit beside what is fixed.
int64_t largest_batch(int64_t memory_bytes, int64_t fixed_bytes, int64_t sequence_bytes);

/// All engines are made first, so that what is wrong with a rung is told before anything is measured. `sets`: held-out rows for the accuracy, may be none.
/// Errors: invalid_argument (no rung, fewer than two rounds), those of the engines with the rung's name, those of bench_model and run_comparison.
Result<LadderBench> bench_ladder(const LadderOptions& options, const EvalSets& sets, BenchModelProgress progress);

std::string ladder_page(const LadderOptions& options, const LadderBench& bench);
config::Json ladder_json(const LadderOptions& options, const LadderBench& bench);

}  // namespace lathe::evaluate
