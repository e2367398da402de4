#pragma once
// Generation: many requests, one pass a step. The text of a request does not depend on what else runs.

#include <functional>
#include <memory>
#include <vector>

#include "base/function_ref.h"
#include "engine/drafter.h"
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
  bool logprobs = false;             ///< wanted in the events: a pass over the vocabulary for each token
  int32_t drafts = kDraftsMax;       ///< at most so many a window; 0: the draft layer does not see this request
};

enum class Finish : uint8_t { kNone, kStop, kLength, kContext, kCancelled, kError };
const char* finish_name(Finish finish);  ///< "stop", "length", "context", "cancelled", "error"

/// One new token of one request; or, without a token (−1), its end by an error of its own or its restart.
struct TokenEvent {
  int32_t request = 0;
  TokenId token = 0;
  double logprob = 0;  ///< if wanted
  Finish finish = Finish::kNone;
  bool restart = false;  ///< the request begins anew (DraftHealth): what was reported of it is void
};

/// Reads prompts in chunks and decodes, many requests in one step.
///
/// Drafts    A step that decodes a request may carry drafts of its next tokens. Row after row the sampler takes the token it would have taken without them, by
///           seed and number of the token; as long as that is the draft, the next row is right too. So texts are the same with any drafts and with none.
///           Tokens behind the end of a text are never taken, reported or counted.
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
  /// A limit of drafts for the next window of a request that has `generated` tokens of its answer; text never depends on it.
  using DraftLimit = std::function<int32_t(int32_t request, int64_t generated)>;
  void set_draft_limit(DraftLimit limit) { draft_limit_ = std::move(limit); }

  /// Drafts of a request so far, and of all requests. Names that dashboards know, in this order: vllm:spec_decode_num_drafts (windows),
  /// vllm:spec_decode_num_draft_tokens, vllm:spec_decode_num_accepted_tokens, vllm:spec_decode_num_accepted_tokens_per_pos.
  const DraftCounts& drafts(int32_t request) const { return runs_[static_cast<size_t>(request)]->draft.counts; }
  const DraftCounts& drafts() const { return drafter_.counts(); }
  const DraftWork& draft_work() const { return drafter_.work(); }
  int64_t restarts() const { return restarts_; }  ///< requests that began anew
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
    DraftState draft;
    std::vector<TokenId> window;   ///< the last token and its drafts; once verified, the tokens behind it
    int32_t accepted = 0;          ///< drafts of the window that were taken
    std::vector<TokenId> shifted;  ///< a chunk of the prompt as the draft layer is shown it, one token on
    bool restarted = false;
  };
  using OnToken = base::FunctionRef<void(const TokenEvent&)>;

  Run& run_of(const PlanLine& line) { return *runs_[static_cast<size_t>(line.request)]; }
  RequestView& view_of(const PlanLine& line) { return views_[static_cast<size_t>(line.request)]; }
  void make_items(OnToken on_token);
  Result<void> make_room(PlanLine& line);
  models::StepItem make_item(const PlanLine& line);
  Result<void> verify(const PlanLine& line, std::span<const float> logits, OnToken on_token);
  Result<void> take_token(const PlanLine& line, std::span<const float> logits, OnToken on_token);
  void take_results(const models::StepResult& result, OnToken on_token);
  void prepare_drafts(const models::StepResult& result);
  DraftRows draft_rows(const PlanLine& line, int64_t hidden_begin);
  void watch(const PlanLine& line, OnToken on_token);
  void begin_anew(int32_t request, OnToken on_token);
  DraftRequest draft_request(Run& run);
  void end(int32_t request, Finish finish);
  void fail(int32_t request, const Error& error, OnToken on_token);

  Engine& engine_;
  Sampler sampler_;
  std::vector<std::unique_ptr<Run>> runs_;
  std::vector<RequestView> views_;
  std::vector<PlanLine> plan_;
  std::vector<models::StepItem> items_;
  std::vector<float> logits_;
  Drafter drafter_;
  std::vector<Drafter::Window> windows_;
  std::vector<DraftRequest> decoding_;  ///< what the next step decodes
  std::vector<int32_t> usable_;         ///< drafts that each of those can use
  std::vector<DraftRows> shown_;
  DraftLimit draft_limit_;
  int64_t steps_ = 0;
  int64_t restarts_ = 0;
};

}  // namespace lathe::engine
