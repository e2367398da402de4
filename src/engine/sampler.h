#pragma once
// Sampling decided in integers, so that no cut of the vocabulary, batch or thread count changes a token (spec parallel §3.1).

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace lathe::engine {

/// How tokens of one request are drawn. Defaults change nothing; temperature 0 is greedy.
struct SamplingParams {
  double temperature = 1.0;         ///< 0, or 0.001 … 100
  double top_p = 1.0;               ///< (0, 1]
  int32_t top_k = 0;                ///< 0: no limit
  double min_p = 0.0;               ///< [0, 1)
  double repetition_penalty = 1.0;  ///< > 0; divides positive and multiplies negative logits of ids in prompt or output
  double presence_penalty = 0.0;    ///< −2 … 2; subtracted once from ids in the output
  double frequency_penalty = 0.0;   ///< −2 … 2; subtracted per occurrence in the output
  std::map<TokenId, float> logit_bias = {};
  uint64_t seed = 0;

  /// Errors: invalid_argument naming the field, its value and the range.
  Result<void> validate(int64_t vocabulary) const;
};

/// Logits of ids first … first + values.size() − 1: one range per shard of the head, ascending, together all ids.
struct LogitRange {
  TokenId first = 0;
  std::span<const float> values;
};

struct Sample {
  TokenId token = -1;
  double logprob = 0;  ///< of the token, in the distribution after padding mask only (temperature 1, no penalties); 0 unless asked for
};

/// Counts of ids that penalties look at.
class TokenCounts {
 public:
  explicit TokenCounts(int64_t vocabulary) : prompt_(static_cast<size_t>(vocabulary)), output_(static_cast<size_t>(vocabulary)) {}
  void add_prompt(TokenId id) { prompt_[static_cast<size_t>(id)] = true; }
  void add_output(TokenId id) { ++output_[static_cast<size_t>(id)]; }
  bool seen(TokenId id) const { return prompt_[static_cast<size_t>(id)] || output_[static_cast<size_t>(id)] > 0; }
  int32_t in_output(TokenId id) const { return output_[static_cast<size_t>(id)]; }

 private:
  std::vector<bool> prompt_;
  std::vector<int32_t> output_;
};

/// Which token is drawn, and under what circumstances.
struct SampleCall {
  const SamplingParams& params;
  const TokenCounts& counts;
  int64_t position = 0;               ///< number of the token in the answer
  std::span<const TokenId> banned{};  ///< never drawn
  bool logprob = true;                ///< wanted: another pass over the vocabulary
};

/// Draws one token.
///
/// Order     penalties, bias, mask (ids ≥ vocabulary, banned), temperature, top-k, top-p, min-p, draw. Ties go to the lower id.
/// Random    64 bits from a counter-based generator keyed by (seed, position, draw 0): no state.
/// Errors    non-finite logits (NaN or +inf) or no allowed token: data_loss / failed_precondition.
class Sampler {
 public:
  /// `vocabulary` ids may be chosen; ids beyond (padding rows) never are.
  explicit Sampler(int64_t vocabulary) : vocabulary_(vocabulary) {}
  Result<Sample> sample(std::span<const LogitRange> ranges, const SampleCall& call);

 private:
  struct Candidate {
    float x;
    TokenId id;
    uint64_t weight;
  };
  /// Where the order of tokens (x descending, id ascending) is cut: this one is kept, what comes behind it and what weighs less than `least` is not.
  struct Cut {
    float x;
    TokenId id;
    uint64_t least;
  };
  static bool takes_the_greatest(const SampleCall& call);
  Result<Sample> greatest(const LogitRange& range, int64_t position) const;
  Result<void> adjust(std::span<const LogitRange> ranges, const SampleCall& call);
  Cut find_cut(const SamplingParams& params);
  TokenId draw(const Cut& cut, uint64_t random);
  double logprob(std::span<const LogitRange> ranges, TokenId token) const;

  int64_t vocabulary_;
  std::vector<float> x_;  // kept between calls: steady state allocates nothing
  std::vector<uint64_t> weights_;
  std::vector<Candidate> candidates_;
};

/// 64 random bits for one decision.
uint64_t random_bits(uint64_t seed, uint64_t position, uint64_t draw);

}  // namespace lathe::engine
