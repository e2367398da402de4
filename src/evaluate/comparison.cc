#include "evaluate/comparison.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "evaluate/text_logits.h"
#include "tensor/argmax.h"

namespace lathe::evaluate {
namespace {

constexpr int64_t kPieceMax = 256;  // positions whose logits of both models are in memory at a time

/// What the rows of the held-out set add up to.
struct Sums {
  std::vector<double> kl, agreed, difference, tokens;  ///< a row each
  std::vector<double> nll_here, nll_there;
};

TokenId best(std::span<const float> row, int64_t sampled_vocabulary) {
  return static_cast<TokenId>(tensor::argmax(row.first(std::min(static_cast<size_t>(sampled_vocabulary), row.size()))));
}

/// One row of the held-out set through both models.
class RowComparison {
 public:
  RowComparison(engine::Engine& here, engine::Engine& there, std::span<const TokenId> ids)
      : ids_(ids),
        vocabulary_(static_cast<size_t>(here.info().vocabulary)),
        sampled_(here.sampled_vocabulary()),
        piece_(std::min({kPieceMax, here.model().options().max_batch_tokens, there.model().options().max_batch_tokens})),
        here_(here, read()),
        there_(there, read()) {}

  Result<void> run(Sums& sums, WorstToken& worst) {
    double kl = 0;
    double agreed = 0;
    double nll_here = 0;
    double nll_there = 0;
    for (size_t at = 0; at < read().size();) {
      LATHE_TRY(const std::span<const float> here, here_.next(piece_));
      LATHE_TRY(const std::span<const float> there, there_.next(piece_));
      LATHE_CHECK(!here.empty() && here.size() == there.size(), "{} and {} logits of the same piece", here.size(), there.size());
      for (size_t begin = 0; begin < here.size(); begin += vocabulary_, ++at) {
        const TokenComparison token =
            compare_token({.here = here.subspan(begin, vocabulary_), .there = there.subspan(begin, vocabulary_)}, ids_[at + 1], sampled_);
        kl += token.kl;
        agreed += token.best_here == token.best_there ? 1 : 0;
        nll_here += token.nll_here;
        nll_there += token.nll_there;
        if (token.kl <= worst.kl) continue;
        worst = {.kl = token.kl,
                 .row = static_cast<int64_t>(sums.tokens.size()),
                 .position = static_cast<int64_t>(at),
                 .here = token.best_here,
                 .there = token.best_there};
      }
    }
    sums.kl.push_back(kl);
    sums.agreed.push_back(agreed);
    sums.difference.push_back(nll_here - nll_there);
    sums.tokens.push_back(static_cast<double>(read().size()));
    sums.nll_here.push_back(nll_here);
    sums.nll_there.push_back(nll_there);
    return {};
  }

 private:
  /// The last id is only predicted.
  std::span<const TokenId> read() const { return ids_.first(ids_.size() - 1); }

  std::span<const TokenId> ids_;
  size_t vocabulary_;
  int64_t sampled_;
  int64_t piece_;  ///< positions that one step of either model takes
  TextLogits here_, there_;
};

Result<HeldoutComparison> compare_heldout(const EvalSide& here, const EvalSide& there, const EvalSets& sets, EvalProgress progress) {
  HeldoutComparison out;
  Sums sums;
  for (const auto& [ids, place] : sets.heldout) {
    const auto done = RowComparison(here.engine, there.engine, ids).run(sums, out.worst);
    if (!done) return base::forward_error(done, place);
    progress("heldout, both models", ++out.rows, static_cast<int64_t>(sets.heldout.size()));
  }
  out.here = bits_per_byte(sums.nll_here, sums.tokens, sets.bytes_per_token);
  out.there = bits_per_byte(sums.nll_there, sums.tokens, sets.bytes_per_token);
  out.tokens = out.here.tokens;
  out.kl = ratio_over_rows(sums.kl, sums.tokens);
  out.agreement = ratio_over_rows(sums.agreed, sums.tokens);
  for (double& nats : sums.difference) nats /= std::log(2.0) * sets.bytes_per_token;
  out.difference = ratio_over_rows(sums.difference, sums.tokens);
  return out;
}

}  // namespace

TokenComparison compare_token(const LogitPair& logits, TokenId target, int64_t sampled_vocabulary) {
  const double sum_here = log_sum_exp(logits.here);
  const double sum_there = log_sum_exp(logits.there);
  const auto at = static_cast<size_t>(target);
  TokenComparison out{.kl = 0,
                      .nll_here = sum_here - static_cast<double>(logits.here[at]),
                      .nll_there = sum_there - static_cast<double>(logits.there[at]),
                      .best_here = best(logits.here, sampled_vocabulary),
                      .best_there = best(logits.there, sampled_vocabulary)};
  for (size_t i = 0; i < logits.here.size(); ++i) {
    const double there = static_cast<double>(logits.there[i]) - sum_there;
    const double here = static_cast<double>(logits.here[i]) - sum_here;
    out.kl += std::exp(there) * (there - here);
  }
  out.kl = std::max(out.kl, 0.0);  // below by rounding alone
  return out;
}

Result<ModelComparison> run_comparison(const EvalSide& here, const EvalSide& there, const EvalSets& sets, EvalProgress progress) {
  const int64_t vocabulary = here.engine.info().vocabulary;
  if (vocabulary != there.engine.info().vocabulary) {
    return err(Code::kFailedPrecondition, "the models have vocabularies of {} and {} ids: expected the same to compare them", vocabulary,
               there.engine.info().vocabulary);
  }
  LATHE_TRY_VOID(check_eval_sets(sets, here.engine.info()));
  LATHE_TRY_VOID(check_eval_sets(sets, there.engine.info()));
  ModelComparison out;
  LATHE_TRY(out.heldout, compare_heldout(here, there, sets, progress));
  for (const TaskSet& set : sets.tasks) {
    LATHE_TRY(out.here[set.name], run_set(here.engine, set, here.preprocess, progress));
    const auto show = [&](const std::string& what, int64_t done, int64_t total) { progress(what + ", the other model", done, total); };
    LATHE_TRY(out.there[set.name], run_set(there.engine, set, there.preprocess, show));
  }
  out.sets = pair_sets(out.here, out.there);
  return out;
}

}  // namespace lathe::evaluate
