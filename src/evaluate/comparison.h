#pragma once
// Two models, or one under two settings, over the same rows: how far their distributions are apart, and which rows turn.

#include "evaluate/eval.h"
#include "evaluate/paired.h"

namespace lathe::evaluate {

/// Where two models disagree most.
struct WorstToken {
  double kl = 0;                ///< nats
  int64_t row = 0;              ///< of the held-out set
  int64_t position = 0;         ///< the logits of this position, which predict the next token
  TokenId here = 0, there = 0;  ///< most likely tokens
};

/// "Here" is the model that is judged, "there" the one that it is judged by.
struct HeldoutComparison {
  int64_t rows = 0, tokens = 0;
  Estimate kl;          ///< mean of KL(there ‖ here) over tokens, nats
  Estimate agreement;   ///< share of tokens with the same most likely id, of those that may be chosen
  Estimate difference;  ///< bits per byte here minus there
  WorstToken worst;
  BitsPerByte here, there;
  /// Bits per byte here over those there, minus one.
  double relative() const { return there.bits_per_byte > 0 ? here.bits_per_byte / there.bits_per_byte - 1 : 0; }
};

struct ModelComparison {
  HeldoutComparison heldout;
  PairedSets sets;
  std::map<std::string, SetScore> here, there;
};

/// An engine and how its pictures are prepared.
struct EvalSide {
  engine::Engine& engine;
  const media::PreprocessConfig& preprocess;
};

/// Held-out rows go through both models piece by piece, task rows through one after the other, set by set. Drafts are left out: they change no text.
/// Errors: as run_eval; failed_precondition (vocabularies of different sizes).
Result<ModelComparison> run_comparison(const EvalSide& here, const EvalSide& there, const EvalSets& sets, EvalProgress progress);

/// What one position says. Both rows [vocabulary], finite.
struct TokenComparison {
  double kl = 0;                       ///< KL(there ‖ here), nats
  double nll_here = 0, nll_there = 0;  ///< of the target, nats
  TokenId best_here = 0, best_there = 0;
};
struct LogitPair {
  std::span<const float> here, there;
};
TokenComparison compare_token(const LogitPair& logits, TokenId target, int64_t sampled_vocabulary);

}  // namespace lathe::evaluate
