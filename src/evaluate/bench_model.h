#pragma once
// `bench model`: prompts and decoding of one model, against the floors of the same run, and where the time goes.

#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "evaluate/bench_profile.h"
#include "evaluate/bench_statistics.h"
#include "evaluate/machine.h"

namespace lathe::evaluate {

struct BenchModelOptions {
  std::vector<int64_t> prompts = {128, 512, 2048, 4096};  ///< prompt lengths, tokens
  std::vector<int64_t> batches = {1, 4, 16};              ///< sequences that decode together
  int64_t decode_context = 512;                           ///< tokens that each of them holds before
  int samples = 5;
  uint64_t seed = 1;                       ///< of the token ids
  bool figures = true;                     ///< floors, times by op, counters, first token; false: samples alone (what `ab` asks for)
  std::function<int64_t()> allocations{};  ///< calls of operator new so far, if the program counts them
};

struct PrefillBench {
  int64_t tokens = 0;
  std::vector<Sample> samples;  ///< units: tokens
  Profile profile;              ///< of one more pass
  double rate() const { return 1e9 / summarise(samples).median; }
  /// Per token, apart from the index scan.
  double ns_without_scan() const;
  double scan_share() const;
};

struct DecodeBench {
  int64_t batch = 0;
  int64_t context = 0;
  std::vector<Sample> samples;  ///< units: steps
  Profile profile;
  double weight_bytes_done = 0, weight_bytes_needed = 0;  ///< of one step, by the counting twins
  double bytes = 0;                                       ///< weights, states, windows and cached rows that a step must move
  double state_bytes = 0;                                 ///< of a step, by the contracts of the calls that touch states, their rows included
  double flops = 0;                                       ///< of the linears of a step
  double floor_ns = 0;                                    ///< of a step: bytes over bandwidth for a working set of that size, or FLOPs over the peak
  double calls = 0;                                       ///< op calls of a step
  int64_t allocations = -1;                               ///< in the timed steps; −1: not counted
  double step_ns() const { return summarise(samples).median; }
  double rate() const { return static_cast<double>(batch) * 1e9 / step_ns(); }
};

struct ModelBench {
  std::vector<PrefillBench> prefill;
  std::vector<DecodeBench> decode;
  double bf16_flops = 0;
  double dispatch_ns = 0;  ///< of one call through the dispatch point while nobody watches
  /// What the dispatch point takes of a decode step.
  double dispatch_share(const DecodeBench& step) const { return step.calls * dispatch_ns / step.step_ns(); }
};

using BenchModelProgress = base::FunctionRef<void(const std::string& what, int64_t done, int64_t total)>;

/// What is wrong with the lengths and batches, before there is an engine with steps of `batch_tokens` rows. Errors: invalid_argument.
Result<void> check_bench_lengths(const BenchModelOptions& options, int64_t batch_tokens);
/// What bench_model() finds wrong before it measures anything.
Result<void> check_bench_model(const engine::Engine& engine, const BenchModelOptions& options);

/// The engine must hold the largest batch, and as many tokens as bench_model_context() says. Samples of different lengths and batches take turns.
/// Errors: those of the engine; invalid_argument (lengths and batches out of range).
Result<ModelBench> bench_model(engine::Engine& engine, const BenchModelOptions& options, Roofs& roofs, BenchModelProgress progress);

/// Tokens that a sequence of the engine must hold.
int64_t bench_model_context(const BenchModelOptions& options);
int32_t bench_model_sequences(const BenchModelOptions& options);

std::string model_page(const ModelBench& bench);
config::Json model_json(const ModelBench& bench);

}  // namespace lathe::evaluate
