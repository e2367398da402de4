#pragma once
// Drafts of running requests: keeps the draft layer's caches level with the text, and lets it propose.

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "engine/draft_policy.h"
#include "engine/engine.h"
#include "engine/image_rows.h"
#include "engine/sampler.h"

namespace lathe::engine {

/// What drafting knows of one request.
struct DraftState {
  int32_t most = 0;           ///< drafts of a window; 0: none, and the draft layer never sees the text
  int32_t wanted = 0;         ///< of the next window
  std::vector<TokenId> next;  ///< tokens behind the rows that are kept (below), at most kKeptRows
  Acceptance acceptance{64};
  DraftCounts counts;
  DraftWatch watch;

  // The proposal for the token behind the last one, and where the draft layer's row of it lies.
  TokenId first = -1;
  int64_t origin = 0, position = 0;
  int64_t row = 0;    ///< of the previous call of a round
  int64_t feed = -1;  ///< the call that made it: rows of an older one are gone
};

/// A request as drafting sees it, for one step.
struct DraftRequest {
  DraftState* state = nullptr;
  SequenceId sequence;
  const SamplingParams* sampling = nullptr;
  const TokenCounts* counts = nullptr;
  int64_t generated = 0;  ///< tokens of the answer so far
};

/// Rows of the last step that stay, of one request.
struct DraftRows {
  DraftRequest request;
  models::ItemKind kind = models::ItemKind::kDecode;
  int64_t start = 0;                            ///< position of the first
  std::span<const TokenId> next;                ///< tokens at positions start + 1 …: one a row
  std::span<const models::EmbeddingRows> rows;  ///< of pictures among them
  int64_t hidden_begin = 0;                     ///< first row in the step's hidden view
};

/// What the draft layer did, for all requests.
struct DraftWork {
  int64_t calls = 0;  ///< of the draft layer
  int64_t rows = 0;   ///< of all of them
  int64_t ns = 0;     ///< in them and in reading their proposals
  int64_t failures = 0;
};

/// Drafting for one generator. Errors of the draft layer end the drafting of the requests in that call, and nothing else: texts never depend on drafts.
///
/// Rows kept  A request that does not draft for now keeps its hidden rows here. They go to the draft layer together, when it drafts again. Once the room is
///            full they go too where that costs little beside the steps; where it does not, the request drafts no more: it has not for kKeptRows tokens.
/// Threads    the rank's thread.
class Drafter {
 public:
  static constexpr int64_t kKeptRows = 256;

  explicit Drafter(Engine& engine);
  bool on() const { return engine_.options().drafts.most > 0; }

  /// Completes windows: tokens[0] is the text's last token, already there; up to `drafts` proposals are put behind it. The store must have room for them.
  struct Window {
    DraftRequest request;
    int32_t drafts = 0;
    std::vector<TokenId>* tokens = nullptr;
  };
  void propose(std::span<const Window> windows);

  /// Lengths of the next windows (DraftState::wanted) of the requests that the next step decodes; most[i]: drafts that requests[i] can still use.
  void choose(std::span<const DraftRequest> requests, std::span<const int32_t> most);

  /// Shows the draft layer the rows of a step, `hidden` being the step's. Requests that want drafts get the first one.
  void feed(std::span<const DraftRows> rows, const View& hidden);

  /// A window of `drafted` drafts was verified, `accepted` of them held; drafts behind the end of a text do not count.
  void verified(DraftState& state, int drafted, int accepted);

  DraftTimes& times() { return experience_.times; }
  const DraftCounts& counts() const { return counts_; }
  const DraftWork& work() const { return work_; }

 private:
  bool make_room();
  bool keep(const DraftRows& rows, const View& hidden);
  bool worth_following(int64_t sequences) const;
  void show_kept(std::span<const DraftRows> rows);
  void show(const View& hidden);
  /// draft_prefill of items_; null where it failed: their requests draft no more.
  const models::DraftResult* prefill(const View& hidden);
  bool step_round(int32_t depth, std::span<const Window> windows);
  TokenId proposal(const DraftRequest& request, std::span<const float> logits, int32_t depth);
  void failed(const Error& error, size_t requests);
  /// The request drafts no more.
  void stop(DraftState& state);
  void add_item(const DraftRequest& request, models::DraftItem item);
  /// Of one request: what goes to the draft layer in one call.
  int64_t kept_rows() const { return std::min(kKeptRows, engine_.model().options().max_batch_tokens); }
  int64_t kept_begin(SequenceId sequence) const { return engine_.store().slot(sequence) * kKeptRows; }

  Engine& engine_;
  Sampler sampler_;
  DraftExperience& experience_;
  DraftChooser chooser_;
  DraftCounts counts_;
  DraftWork work_;
  int64_t feeds_ = 0;

  backend::Buffer kept_memory_;
  View kept_;  ///< [sequences · kKeptRows, hidden]
  models::DraftResult result_;
  std::vector<models::DraftItem> items_;
  std::vector<DraftRequest> fed_;  ///< the request of each item
  int64_t item_rows_ = 0;
  std::vector<models::DraftStepItem> steps_;
  std::vector<const Window*> stepped_;  ///< the window of each step item
  std::vector<DraftCandidate> candidates_;
  std::vector<int32_t> lengths_;
  std::vector<float> logits_;
};

}  // namespace lathe::engine
