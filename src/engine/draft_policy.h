#pragma once
// How many tokens to draft, as pure functions of what was accepted before and of what steps cost. No device, thread or clock.
// A draft costs a row of the step that verifies it (more rows touch more experts) and a pass of the draft layer; it gives a token where it is accepted.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"

namespace lathe::engine {

inline constexpr int kDraftsMax = 5;  ///< of one window

/// What became of drafts. A window is one token of the text and the drafts behind it, verified by one step.
struct DraftCounts {
  int64_t windows = 0;  ///< with at least one draft
  int64_t drafted = 0, accepted = 0;
  std::array<int64_t, kDraftsMax> drafted_at{}, accepted_at{};  ///< by position in the window

  void add(int drafted_now, int accepted_now);
  void add(const DraftCounts& other);
  /// Tokens of a window: 1 without any accepted draft, and where there was no window.
  double length() const { return windows > 0 ? 1 + static_cast<double>(accepted) / static_cast<double>(windows) : 1; }
  double rate() const { return drafted > 0 ? static_cast<double>(accepted) / static_cast<double>(drafted) : 0; }
};

/// Chance that a draft is accepted when all before it in the window were, by position.
using DraftChances = std::array<double, kDraftsMax>;
/// Before anything was measured: between what the published model and the built-in one reach.
inline constexpr DraftChances kFirstChances = {0.8, 0.75, 0.7, 0.65, 0.6};

/// Measured chances that forget: an old window counts for less with each new one, and with each token without drafts, so that what was given up is tried again.
class Acceptance {
 public:
  /// `memory`: windows after which one counts for 1/e.
  explicit Acceptance(double memory) : keep_(1 - 1 / memory) {}
  /// A window of which `accepted` of `drafted` drafts held.
  void add(int drafted, int accepted);
  /// A token without drafts.
  void forget();
  /// `prior` stands for kPriorWindows windows.
  DraftChances chances(const DraftChances& prior) const;

 private:
  static constexpr double kPriorWindows = 4;
  double keep_;
  std::array<double, kDraftsMax> tried_{}, held_{};
};

/// A request that the next step decodes.
struct DraftCandidate {
  int32_t most = 0;  ///< drafts that can be made and used
  DraftChances chances{};
};

/// Times or bytes, in one unit.
struct DraftCosts {
  base::FunctionRef<double(int64_t rows, int64_t sequences)> step;
  base::FunctionRef<double(int64_t rows)> draft;  ///< one call of the draft layer
};

/// Lengths of the next windows.
class DraftChooser {
 public:
  /// lengths[i] for requests[i]: as many as give the most expected tokens for the cost of the step and of its drafting calls; 0 where drafts do not pay.
  /// Depth by depth, the likeliest drafts first. Same arguments, same lengths.
  void choose(std::span<const DraftCandidate> requests, const DraftCosts& costs, std::span<int32_t> lengths);

 private:
  struct Open {
    size_t request;
    double held;  ///< chance that all drafts up to this depth are accepted
  };
  /// Takes as many drafts of depth `depth` as give the best rate, at least one; false where there is none.
  bool deepen(std::span<const DraftCandidate> requests, const DraftCosts& costs, int depth);

  std::vector<Open> open_;
  std::vector<int32_t> tried_;
  double tokens_ = 0, drafting_ = 0;
  int64_t rows_ = 0;
  double rate_ = 0;
};

/// Acceptance as a sign of health: a text that goes wrong is no longer foreseen, one that repeats itself always is.
struct DraftHealth {
  bool on = false;
  int64_t tokens = 128;     ///< of the answer that one judgement looks at
  double length_min = 1.4;  ///< tokens of a window
  double rate_max = 0.96;   ///< accepted of drafted
};

/// Judges stretches of an answer.
class DraftWatch {
 public:
  enum class Verdict : uint8_t { kFine, kTooShort, kTooSure };
  /// A step that gave `tokens` tokens; with drafts if `drafted` > 0. The stretch ends once it has enough tokens, a quarter of them from windows with drafts.
  Verdict add(const DraftHealth& limits, int64_t tokens, int drafted, int accepted);
  /// The stretch that was judged last.
  const DraftCounts& judged() const { return judged_; }

 private:
  DraftCounts counts_, judged_;
  int64_t tokens_ = 0;
};

}  // namespace lathe::engine
