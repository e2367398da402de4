#include "engine/drafter.h"

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"

namespace lathe::engine {
namespace {

constexpr double kFollowingShare = 0.02;  // of the steps' time, for requests that may never draft again

}  // namespace

Drafter::Drafter(Engine& engine) : engine_(engine), sampler_(engine.sampled_vocabulary()), experience_(engine.draft_experience()) {}

TokenId Drafter::proposal(const DraftRequest& request, std::span<const float> logits, int32_t depth) {
  // Drawn as the answer's token of that number will be: with the same random bits, alike distributions give the same token more often than not.
  const LogitRange range{.first = static_cast<TokenId>(engine_.info().vocabulary_begin), .values = logits};
  const auto sample = sampler_.sample(
      {&range, 1}, {.params = *request.sampling, .counts = *request.counts, .position = request.generated + depth - 1, .logprob = false});
  return sample ? sample->token : -1;  // of logits without numbers: no proposal
}

void Drafter::failed(const Error& error, size_t requests) {
  ++work_.failures;
  base::log(base::LogLevel::kWarning, "the draft layer failed: {}; requests that go on without drafts: {}", error.message, requests);
}

void Drafter::stop(DraftState& state) {
  state.most = state.wanted = 0;
  state.first = -1;
  state.next.clear();
}

void Drafter::verified(DraftState& state, int drafted, int accepted) {
  if (drafted == 0) return state.acceptance.forget();
  state.counts.add(drafted, accepted);
  state.acceptance.add(drafted, accepted);
  experience_.acceptance.add(drafted, accepted);
  counts_.add(drafted, accepted);
}

void Drafter::choose(std::span<const DraftRequest> requests, std::span<const int32_t> most) {
  candidates_.clear();
  lengths_.assign(requests.size(), 0);
  const DraftChances prior = experience_.acceptance.chances(kFirstChances);
  for (size_t i = 0; i < requests.size(); ++i) {
    const DraftState& state = *requests[i].state;
    candidates_.push_back({.most = std::min(state.most, most[i]), .chances = state.acceptance.chances(prior)});
    lengths_[i] = candidates_.back().most;
  }
  if (engine_.options().drafts.adaptive) {
    const auto step = [&](int64_t rows, int64_t sequences) { return experience_.times.step_ns(rows, sequences); };
    const auto draft = [&](int64_t rows) { return experience_.times.draft_ns(rows); };
    chooser_.choose(candidates_, {.step = step, .draft = draft}, lengths_);
  }
  for (size_t i = 0; i < requests.size(); ++i) requests[i].state->wanted = lengths_[i];
}

bool Drafter::make_room() {
  if (kept_.present()) return true;
  const int64_t rows = engine_.options().sequences * kKeptRows, width = engine_.info().hidden;
  auto memory = backend::Buffer::create(engine_.device(), rows * width * 4);
  if (!memory) return false;
  kept_memory_ = std::move(*memory);
  kept_ = tensor::make_view(kept_memory_.data(), DType::kF32, {rows, width});
  return true;
}

/// False where the rows must go to the draft layer now.
bool Drafter::keep(const DraftRows& rows, const View& hidden) {
  DraftState& state = *rows.request.state;
  const auto have = static_cast<int64_t>(state.next.size()), more = static_cast<int64_t>(rows.next.size());
  if (have + more > kept_rows() || !make_room()) return false;
  state.next.reserve(static_cast<size_t>(kKeptRows));
  const int64_t at = kept_begin(rows.request.sequence) + have;
  const View from = hidden.rows(rows.hidden_begin, rows.hidden_begin + more);
  engine_.device().copy_on_device(kept_.rows(at, at + more).data, from.data, from.extent_bytes());
  state.next.insert(state.next.end(), rows.next.begin(), rows.next.end());
  state.first = -1;
  return true;
}

void Drafter::add_item(const DraftRequest& request, models::DraftItem item) {
  item.sequence = request.sequence;
  item_rows_ += static_cast<int64_t>(item.tokens.size());
  items_.push_back(item);
  fed_.push_back(request);
}

const models::DraftResult* Drafter::prefill(const View& hidden) {
  auto result = engine_.model().draft_prefill(items_, hidden, engine_.store());
  ++feeds_;
  ++work_.calls;
  work_.rows += item_rows_;
  if (result) {
    result_ = *result;
    return &result_;
  }
  failed(result.error(), fed_.size());
  for (const DraftRequest& request : fed_) stop(*request.state);
  return nullptr;
}

/// Whether the rows of a silent request go to the draft layer at little cost: among so many sequences, a step's time is shared.
bool Drafter::worth_following(int64_t sequences) const {
  const double steps_ns = static_cast<double>(kKeptRows) * experience_.times.step_ns(sequences, sequences) / static_cast<double>(sequences);
  return experience_.times.draft_ns(kKeptRows) <= kFollowingShare * steps_ns;
}

void Drafter::show_kept(std::span<const DraftRows> rows) {
  const int64_t most = engine_.model().options().max_batch_tokens;
  const auto size = [](const DraftRows& r) { return static_cast<int64_t>(r.request.state->next.size()); };
  for (size_t i = 0; i < rows.size();) {
    items_.clear(), fed_.clear(), item_rows_ = 0;
    for (; i < rows.size() && (items_.empty() || item_rows_ + size(rows[i]) <= most); ++i) {
      if (size(rows[i]) == 0) continue;
      const DraftRequest& request = rows[i].request;
      add_item(request, {.sequence = {},
                         .kind = models::ItemKind::kDecode,
                         .start = engine_.store().draft_length(request.sequence),
                         .tokens = request.state->next,
                         .rows = {},
                         .hidden_begin = kept_begin(request.sequence),
                         .logits = models::Logits::kNone});
    }
    const int64_t begin = base::now_ns();
    if (items_.empty() || prefill(kept_) == nullptr) continue;
    experience_.times.draft_took(item_rows_, base::now_ns() - begin);
    for (const DraftRequest& request : fed_) request.state->next.clear();
  }
}

void Drafter::feed(std::span<const DraftRows> rows, const View& hidden) {
  const int64_t start = base::now_ns();
  bool due = false;
  for (const DraftRows& r : rows) {
    DraftState& state = *r.request.state;
    const bool full = static_cast<int64_t>(state.next.size() + r.next.size()) > kept_rows();
    if (state.next.empty() || (state.wanted == 0 && !full)) continue;
    if (state.wanted == 0 && !worth_following(static_cast<int64_t>(rows.size()))) {
      stop(state);
      continue;
    }
    due = true;
  }
  if (due) show_kept(rows);
  items_.clear(), fed_.clear(), item_rows_ = 0;
  bool learn = true;
  for (const DraftRows& r : rows) {
    const DraftState& state = *r.request.state;
    if (state.most == 0) continue;
    const bool decodes = r.kind == models::ItemKind::kDecode;
    if (decodes && state.wanted == 0 && keep(r, hidden)) continue;
    learn = learn && decodes && state.wanted > 0;
    add_item(r.request, {.sequence = {},
                         .kind = r.kind,
                         .start = r.start,
                         .tokens = r.next,
                         .rows = r.rows,
                         .hidden_begin = r.hidden_begin,
                         .logits = state.wanted > 0 ? models::Logits::kLast : models::Logits::kNone});
  }
  if (!items_.empty()) {
    const int64_t begin = base::now_ns();
    show(hidden);
    if (learn) experience_.times.draft_took(item_rows_, base::now_ns() - begin);
  }
  work_.ns += base::now_ns() - start;
}

void Drafter::show(const View& hidden) {
  const models::DraftResult* const result = prefill(hidden);
  if (result == nullptr) return;
  const auto logits = result->logits.present() ? engine_.rows(result->logits, logits_) : std::span<const float>();
  const auto width = static_cast<size_t>(result->logits.present() ? result->logits.dim(1) : 0);
  for (size_t i = 0; i < items_.size(); ++i) {
    DraftState& state = *fed_[i].state;
    const models::ItemRows& at = result->items[i];
    state.first = -1;
    if (at.logits_count == 0) continue;
    state.first = proposal(fed_[i], logits.subspan(static_cast<size_t>(at.logits_begin) * width, width), 1);
    state.row = state.origin = at.hidden_begin + at.hidden_count - 1;
    state.position = items_[i].start + static_cast<int64_t>(items_[i].tokens.size()) - 1;
    state.feed = feeds_;
  }
}

void Drafter::propose(std::span<const Window> windows) {
  for (const Window& window : windows) {
    const DraftState& state = *window.request.state;
    window.tokens->resize(1);
    if (window.drafts > 0 && state.first >= 0) window.tokens->push_back(state.first);
  }
  const int64_t start = base::now_ns();
  for (int32_t depth = 2; depth <= kDraftsMax && step_round(depth, windows); ++depth) {
  }
  work_.ns += base::now_ns() - start;
}

bool Drafter::step_round(int32_t depth, std::span<const Window> windows) {
  steps_.clear(), stepped_.clear();
  for (const Window& window : windows) {
    const DraftState& state = *window.request.state;
    if (window.drafts < depth || static_cast<int32_t>(window.tokens->size()) != depth || state.feed != feeds_) continue;
    steps_.push_back({.sequence = window.request.sequence,
                      .position = state.position + depth - 1,
                      .token = window.tokens->back(),
                      .row = state.row,
                      .origin = state.origin,
                      .origin_position = state.position});
    stepped_.push_back(&window);
  }
  if (steps_.empty()) return false;
  const int64_t begin = base::now_ns();
  const auto result = engine_.model().draft_step(steps_, engine_.store());
  ++work_.calls;
  work_.rows += static_cast<int64_t>(steps_.size());
  if (!result) {
    failed(result.error(), stepped_.size());
    for (const Window* window : stepped_) stop(*window->request.state);
    return false;
  }
  const std::span<const float> logits = engine_.rows(result->logits, logits_);
  const auto width = static_cast<size_t>(result->logits.dim(1));
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Window& window = *stepped_[i];
    const models::ItemRows& at = result->items[i];
    const TokenId token = proposal(window.request, logits.subspan(static_cast<size_t>(at.logits_begin) * width, width), depth);
    window.request.state->row = at.hidden_begin;
    if (token >= 0) window.tokens->push_back(token);
  }
  experience_.times.draft_took(static_cast<int64_t>(steps_.size()), base::now_ns() - begin);
  return true;
}

}  // namespace lathe::engine
