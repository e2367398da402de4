#pragma once
// Generation: many requests, one pass a step. The text of a request does not depend on what else runs.

#include <memory>
#include <vector>

#include "base/function_ref.h"
#include "engine/engine.h"
#include "engine/image_rows.h"
#include "engine/plan.h"
#include "engine/sampler.h"

namespace lathe::engine {

struct Request {
  std::vector<TokenId> prompt;  ///< at least one id
  std::vector<PromptImage> images;
  SamplingParams sampling;
  int64_t max_tokens = 256;
  std::vector<TokenId> stop_tokens;  ///< generation ends after one of these (it belongs to the output)
};

enum class Finish : uint8_t { kNone, kStop, kLength, kContext, kCancelled, kError };
const char* finish_name(Finish finish);  ///< "stop", "length", "context", "cancelled", "error"

/// One new token of one request; or its end by an error of its own, then without a token (−1).
struct TokenEvent {
  int32_t request = 0;
  TokenId token = 0;
  double logprob = 0;
  Finish finish = Finish::kNone;
};

/// Reads prompts in chunks and decodes, many requests in one step.
class Generator {
 public:
  explicit Generator(Engine& engine);
  /// Closes what still runs.
  ~Generator();
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  /// Number of the request. Errors: invalid_argument (empty prompt, ids outside the vocabulary, sampling, prompt not shorter than the context, images out of place).
  Result<int32_t> add(Request request);
  /// Ends a request before its next token; nothing more is reported for it.
  void cancel(int32_t request);

  /// One step. `on_token` may call cancel(). Returns false when nothing was left to do.
  /// What goes wrong with one request (non-finite logits, no token allowed, no cache block left) ends that request with Finish::kError and nothing else;
  /// an error of the step itself is returned, and ends all requests that were in it.
  Result<bool> step(base::FunctionRef<void(const TokenEvent&)> on_token);

  /// Why a request ended with Finish::kError.
  const Error& error(int32_t request) const { return runs_[static_cast<size_t>(request)]->error; }
  int64_t prompt_tokens_done(int32_t request) const { return runs_[static_cast<size_t>(request)]->done; }
  int64_t steps() const { return steps_; }

 private:
  struct Run {
    explicit Run(Request r, int64_t vocabulary) : request(std::move(r)), counts(vocabulary) {}
    Request request;
    TokenCounts counts;
    SequenceId sequence;
    int64_t done = 0;  ///< prompt tokens read
    int64_t generated = 0;
    TokenId last = 0;  ///< sampled, not yet fed
    Finish finish = Finish::kNone;
    Error error;
    std::vector<models::EmbeddingRows> rows;  ///< of the current chunk
  };

  Result<models::StepItem> make_item(const PlanLine& line);
  Result<void> take_token(const PlanLine& line, std::span<const float> logits, base::FunctionRef<void(const TokenEvent&)> on_token);
  void end(int32_t request, Finish finish);
  void fail(int32_t request, const Error& error, base::FunctionRef<void(const TokenEvent&)> on_token);

  Engine& engine_;
  Sampler sampler_;
  std::vector<std::unique_ptr<Run>> runs_;
  std::vector<RequestView> views_;
  std::vector<PlanLine> plan_;
  std::vector<models::StepItem> items_;
  std::vector<float> logits_;
  int64_t steps_ = 0;
};

}  // namespace lathe::engine
