#pragma once
// `bench rival`: this engine and a llama.cpp build side by side, on the same weights and threads, in pairs whose order is drawn. The build is a program that
// is started for each run, or a server that is there.

#include <string>
#include <vector>

#include "evaluate/bench_ab.h"

namespace lathe::evaluate {

struct BenchRivalOptions {
  std::string llama_bench;                   ///< the program; llama-batched-bench beside it decodes several sequences
  std::string gguf;                          ///< the weights for it
  std::string server;                        ///< or the URL of a llama-server, with weights and threads of its own
  std::vector<std::string> rival_arguments;  ///< more flags for it
  BenchArm ours;                             ///< program and flags; the model is among them
  std::vector<int64_t> prompts;              ///< lengths, tokens
  std::vector<int64_t> batches;              ///< sequences that decode together
  int64_t decode_context = 512;              ///< tokens that each of them holds before
  int64_t samples = 3;                       ///< of each figure in one run
  int threads = 1;
  PairOptions pairs;
};

struct RivalBench {
  BenchAbOptions arms;  ///< A is the rival
  AbBench bench;
  std::vector<std::string> not_compared;  ///< what the rival cannot measure, and why: a sentence each
};

/// Errors  not_found (no such GGUF file), failed_precondition (no program or server of that kind, a run that failed, a figure that is missing), those of
///         check_arm, bench_pairs and of the way to a server.
Result<RivalBench> bench_rival(const BenchRivalOptions& options, base::FunctionRef<void(int done, int total)> progress);

/// Tokens per second in the JSON that llama-bench writes. Errors: invalid_argument (another form).
Result<BenchFigures> llama_bench_figures(const std::string& output);
/// … and in the lines of llama-batched-bench; other lines are skipped.
Result<BenchFigures> batched_bench_figures(const std::string& output);

}  // namespace lathe::evaluate
