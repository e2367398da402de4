#pragma once
// A running llama-server as the rival of `bench rival`: asked over HTTP, timed by the caller's own clock.

#include <string>
#include <vector>

#include "evaluate/bench_ab.h"
#include "net/http_client.h"

namespace lathe::evaluate {

struct RivalServer {
  net::HttpUrl url;
  int64_t slots = 0;       ///< sequences that it answers at a time
  int64_t context = 0;     ///< tokens of each of them
  int64_t vocabulary = 0;  ///< ids that are drawn from [1, vocabulary)
  std::vector<int64_t> prompts;
  std::vector<int64_t> batches;
  int64_t decode_context = 512;
  int64_t samples = 3;  ///< of each figure in one run
};

/// Asks the server what it can do, for slots and context. Errors: those of the exchange; failed_precondition (no llama-server, or not ready).
Result<void> ask_server(RivalServer& server);

/// Medians of the samples. Prompts are drawn anew each time, so that nothing of them is cached.
///   prefill n   n tokens over the time that the server needed for them, without the way there
///   decode B    tokens that came between the first token of the last answer to begin and the last token of the first one to end, over that time
/// Errors: those of the exchange; failed_precondition (status, fields that are missing, answers that do not overlap).
Result<BenchFigures> run_server(const RivalServer& server, uint64_t draw, ArmRun& run);

/// Tokens that each of `batch` sequences is asked for: enough that all of them decode at the same time for a while.
int64_t decode_answer(int64_t batch);
/// When each token of a streamed answer came, by the clock of base/clock.h. Errors: invalid_argument (another form, or an error of the server).
Result<std::vector<int64_t>> token_times(const net::HttpResponse& response);
/// Tokens per second while all answers were being written. Errors: failed_precondition (at no time).
Result<double> common_rate(const std::vector<std::vector<int64_t>>& answers);

}  // namespace lathe::evaluate
