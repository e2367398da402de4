#include "engine/draft_policy.h"

#include <algorithm>

namespace lathe::engine {
namespace {

// Drafts must promise so much more than none, and a longer window so much more than a shorter one: chances and times are measured, and what wins by less
// than their noise loses as often.
constexpr double kWorthBeginning = 1.05;
constexpr double kWorthMore = 1.01;

}  // namespace

void DraftCounts::add(int drafted_now, int accepted_now) {
  if (drafted_now == 0) return;
  ++windows;
  drafted += drafted_now;
  accepted += accepted_now;
  for (int i = 0; i < drafted_now; ++i) {
    ++drafted_at[static_cast<size_t>(i)];
    accepted_at[static_cast<size_t>(i)] += i < accepted_now ? 1 : 0;
  }
}

void DraftCounts::add(const DraftCounts& other) {
  windows += other.windows;
  drafted += other.drafted;
  accepted += other.accepted;
  for (size_t i = 0; i < kDraftsMax; ++i) {
    drafted_at[i] += other.drafted_at[i];
    accepted_at[i] += other.accepted_at[i];
  }
}

void Acceptance::forget() {
  for (double& count : tried_) count *= keep_;
  for (double& count : held_) count *= keep_;
}

void Acceptance::add(int drafted, int accepted) {
  forget();
  // What lies behind the first draft that failed says nothing.
  for (int i = 0; i < std::min(drafted, accepted + 1); ++i) {
    tried_[static_cast<size_t>(i)] += 1;
    held_[static_cast<size_t>(i)] += i < accepted ? 1 : 0;
  }
}

DraftChances Acceptance::chances(const DraftChances& prior) const {
  DraftChances out{};
  for (size_t i = 0; i < kDraftsMax; ++i) out[i] = (held_[i] + kPriorWindows * prior[i]) / (tried_[i] + kPriorWindows);
  return out;
}

bool DraftChooser::deepen(std::span<const DraftCandidate> requests, const DraftCosts& costs, int depth) {
  std::erase_if(open_, [&](const Open& open) { return requests[open.request].most < depth || tried_[open.request] != depth - 1; });
  if (open_.empty()) return false;
  for (Open& open : open_) open.held *= requests[open.request].chances[static_cast<size_t>(depth - 1)];
  std::sort(open_.begin(), open_.end(), [](const Open& a, const Open& b) { return a.held > b.held || (a.held == b.held && a.request < b.request); });
  const auto sequences = static_cast<int64_t>(requests.size());
  double gain = 0, best_gain = 0, best_drafting = 0;
  size_t best = 0;
  rate_ = -1;
  for (size_t n = 1; n <= open_.size(); ++n) {
    gain += open_[n - 1].held;
    const auto count = static_cast<int64_t>(n);
    // The first drafts come from the call that shows the draft layer what was accepted: a row and, as likely, its accepted draft.
    const double drafting = drafting_ + costs.draft(depth == 1 ? count + static_cast<int64_t>(gain) : count);
    const double rate = (tokens_ + gain) / (costs.step(rows_ + count, sequences) + drafting);
    if (rate <= rate_) continue;
    rate_ = rate, best = n, best_gain = gain, best_drafting = drafting;
  }
  for (size_t n = 0; n < best; ++n) tried_[open_[n].request] = depth;
  tokens_ += best_gain;
  drafting_ = best_drafting;
  rows_ += static_cast<int64_t>(best);
  return true;
}

void DraftChooser::choose(std::span<const DraftCandidate> requests, const DraftCosts& costs, std::span<int32_t> lengths) {
  std::fill(lengths.begin(), lengths.end(), 0);
  if (requests.empty()) return;
  open_.clear();
  for (size_t i = 0; i < requests.size(); ++i) open_.push_back({i, 1.0});
  tried_.assign(requests.size(), 0);
  rows_ = static_cast<int64_t>(requests.size());
  tokens_ = static_cast<double>(rows_);
  drafting_ = 0;
  double best = tokens_ / costs.step(rows_, rows_);
  bool none_yet = true;
  // A depth that does not pay by itself may still lead to one that does: steps cost in jumps.
  for (int depth = 1; depth <= kDraftsMax && deepen(requests, costs, depth); ++depth) {
    if (rate_ <= best * (none_yet ? kWorthBeginning : kWorthMore)) continue;
    none_yet = false;
    best = rate_;
    std::copy(tried_.begin(), tried_.end(), lengths.begin());
  }
}

DraftWatch::Verdict DraftWatch::add(const DraftHealth& limits, int64_t tokens, int drafted, int accepted) {
  tokens_ += tokens;
  counts_.add(drafted, accepted);
  if (tokens_ < limits.tokens || 4 * (counts_.windows + counts_.accepted) < limits.tokens) return Verdict::kFine;
  judged_ = counts_;
  counts_ = {};
  tokens_ = 0;
  if (judged_.length() < limits.length_min) return Verdict::kTooShort;
  return judged_.rate() > limits.rate_max ? Verdict::kTooSure : Verdict::kFine;
}

}  // namespace lathe::engine
