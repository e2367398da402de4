#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/limits.h"
#include "tensor/argmax.h"
#include "tensor/token_weights.h"

namespace lathe::engine {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

using base::kLimits;
using Wide = unsigned __int128;

tl::unexpected<Error> not_finite(TokenId id, float z) {
  return err(Code::kDataLoss, "the logits are not finite (non_finite_logits): that of token {} is {}", id, z);
}
tl::unexpected<Error> none_allowed(int64_t position) { return err(Code::kFailedPrecondition, "no token is allowed at position {}", position); }

Result<void> check_range(const char* name, double value, double most) {
  if (value >= -most && value <= most) return {};
  return err(Code::kInvalidArgument, "{} is {}, expected {} to {}", name, value, -most, most);
}

}  // namespace

Result<void> SamplingParams::validate(int64_t vocabulary) const {
  if (temperature != 0.0 && !(temperature >= kLimits.sampling_temperature_min && temperature <= kLimits.sampling_temperature)) {
    return err(Code::kInvalidArgument, "temperature is {}, expected 0 (greedy) or {} to {}", temperature, kLimits.sampling_temperature_min,
               kLimits.sampling_temperature);
  }
  if (!(top_p > 0.0 && top_p <= 1.0)) return err(Code::kInvalidArgument, "top_p is {}, expected more than 0 and at most 1", top_p);
  if (top_k < 0) return err(Code::kInvalidArgument, "top_k is {}, expected 0 (no limit) or more", top_k);
  if (!(min_p >= 0.0 && min_p < 1.0)) return err(Code::kInvalidArgument, "min_p is {}, expected 0 to less than 1", min_p);
  if (!(repetition_penalty > 0.0 && repetition_penalty <= kLimits.sampling_repetition_penalty)) {
    return err(Code::kInvalidArgument, "repetition_penalty is {}, expected more than 0 and at most {}", repetition_penalty,
               kLimits.sampling_repetition_penalty);
  }
  LATHE_TRY_VOID(check_range("presence_penalty", presence_penalty, kLimits.sampling_penalty));
  LATHE_TRY_VOID(check_range("frequency_penalty", frequency_penalty, kLimits.sampling_penalty));
  for (const auto& [id, bias] : logit_bias) {
    if (id < 0 || id >= vocabulary) return err(Code::kInvalidArgument, "logit_bias names token {}, the vocabulary has 0 to {}", id, vocabulary - 1);
    LATHE_TRY_VOID(check_range("logit_bias", bias, kLimits.sampling_bias));
  }
  return {};
}

uint64_t random_bits(uint64_t seed, uint64_t position, uint64_t draw) {
  // Three rounds of a 64-bit mix (multiply, xor-shift) over the keyed counter; each input bit reaches every output bit.
  uint64_t state = seed + 0x9E3779B97F4A7C15ull;
  for (const uint64_t word : {position, draw, uint64_t{0x5851F42D4C957F2Dull}}) {
    state ^= word + 0x9E3779B97F4A7C15ull + (state << 6) + (state >> 2);
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9ull;
    state = (state ^ (state >> 27)) * 0x94D049BB133111EBull;
    state ^= state >> 31;
  }
  return state;
}

Result<void> Sampler::adjust(std::span<const LogitRange> ranges, const SampleCall& call) {
  const SamplingParams& params = call.params;
  const TokenCounts& counts = call.counts;
  int64_t total = 0;
  for (const LogitRange& range : ranges) total = std::max<int64_t>(total, range.first + static_cast<int64_t>(range.values.size()));
  x_.assign(static_cast<size_t>(total), kMinusInfinity);
  const bool penalised = params.repetition_penalty != 1.0 || params.presence_penalty != 0.0 || params.frequency_penalty != 0.0;
  for (const LogitRange& range : ranges) {
    for (size_t i = 0; i < range.values.size(); ++i) {
      const TokenId id = range.first + static_cast<TokenId>(i);
      if (id >= vocabulary_) continue;  // padding rows
      float z = range.values[i];
      if (std::isnan(z) || z == std::numeric_limits<float>::infinity()) return not_finite(id, z);
      if (penalised && counts.seen(id)) {
        z = z > 0 ? z / static_cast<float>(params.repetition_penalty) : z * static_cast<float>(params.repetition_penalty);
        if (const int32_t n = counts.in_output(id); n > 0) {
          z -= static_cast<float>(params.presence_penalty) + static_cast<float>(params.frequency_penalty) * static_cast<float>(n);
        }
      }
      x_[static_cast<size_t>(id)] = z;
    }
  }
  for (const auto& [id, bias] : params.logit_bias) x_[static_cast<size_t>(id)] += bias;
  for (const TokenId id : call.banned) {
    if (id >= 0 && id < total) x_[static_cast<size_t>(id)] = kMinusInfinity;
  }
  for (float& x : x_) {
    if (params.temperature > 0.0) x = x / static_cast<float>(params.temperature);
    x += 0.0f;  // −0 becomes +0: they are one value in the order
  }
  return {};
}

Sampler::Cut Sampler::find_cut(const SamplingParams& params) {
  const auto before = [](const Candidate& a, const Candidate& b) { return a.x > b.x || (a.x == b.x && a.id < b.id); };
  // The least likely token of all is the cut that keeps everything.
  Cut cut{.x = kMinusInfinity, .id = std::numeric_limits<TokenId>::max(), .least = 1};
  if (params.min_p > 0.0) cut.least = static_cast<uint64_t>(std::ceil(params.min_p * tensor::kTokenWeightOne));  // the greatest has 2^44: it stays
  if (params.top_k <= 0 && params.top_p >= 1.0) return cut;
  candidates_.clear();
  for (size_t id = 0; id < x_.size(); ++id) {
    if (weights_[id] > 0) candidates_.push_back({x_[id], static_cast<TokenId>(id), weights_[id]});
  }
  const auto begin = candidates_.begin();
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < candidates_.size()) {
    std::nth_element(begin, begin + params.top_k - 1, candidates_.end(), before);
    candidates_.resize(static_cast<size_t>(params.top_k));
  }
  size_t last = candidates_.size();
  if (params.top_p < 1.0) {
    // The shortest beginning of the order that weighs enough: halves of what is undecided, so that nothing is ever sorted as a whole.
    Wide total = 0;
    for (const Candidate& candidate : candidates_) total += candidate.weight;
    const Wide goal = static_cast<Wide>(std::nearbyint(params.top_p * 0x1p32)) * total;
    size_t first = 0;
    for (Wide running = 0; last - first > 1;) {
      const size_t middle = first + (last - first) / 2;
      const auto at = [&](size_t i) { return begin + static_cast<ptrdiff_t>(i); };
      std::nth_element(at(first), at(middle), at(last), before);
      Wide half = running;
      for (size_t i = first; i < middle; ++i) half += candidates_[i].weight;
      if ((half << 32) >= goal) {
        last = middle;
      } else {
        running = half, first = middle;
      }
    }
  }
  const Candidate& kept = *std::max_element(begin, begin + static_cast<ptrdiff_t>(last), before);
  return {.x = kept.x, .id = kept.id, .least = cut.least};
}

TokenId Sampler::draw(const Cut& cut, uint64_t random) {
  uint64_t total = 0;
  for (size_t id = 0; id < x_.size(); ++id) {  // what is not kept weighs nothing; without branches, which nobody could foresee
    const float x = x_[id];
    const auto in = static_cast<uint64_t>((weights_[id] >= cut.least) & ((x > cut.x) | ((x == cut.x) & (static_cast<TokenId>(id) <= cut.id))));
    weights_[id] &= ~in + 1;
    total += weights_[id];
  }
  const auto target = static_cast<uint64_t>((static_cast<Wide>(random) * total) >> 64);
  uint64_t running = 0;
  for (size_t id = 0; id < x_.size(); ++id) {
    running += weights_[id];
    if (running > target) return static_cast<TokenId>(id);
  }
  LATHE_CHECK(false, "{} of {} is beyond every token", target, total);
}

double Sampler::logprob(std::span<const LogitRange> ranges, TokenId token) const {
  float most = kMinusInfinity, chosen = 0;
  const auto valid = [&](const LogitRange& range) {
    const int64_t count = std::clamp<int64_t>(vocabulary_ - range.first, 0, static_cast<int64_t>(range.values.size()));
    return range.values.first(static_cast<size_t>(count));
  };
  for (const LogitRange& range : ranges) {
    const std::span<const float> values = valid(range);
    if (const int64_t best = tensor::argmax(values); best >= 0) most = std::max(most, values[static_cast<size_t>(best)]);
    const int64_t at = token - range.first;
    if (at >= 0 && at < static_cast<int64_t>(values.size())) chosen = values[static_cast<size_t>(at)];
  }
  uint64_t sum = 0;
  for (const LogitRange& range : ranges) sum += tensor::token_weight_sum(valid(range), most);
  return static_cast<double>(chosen) - static_cast<double>(most) - std::log(static_cast<double>(sum) / tensor::kTokenWeightOne);
}

/// Nothing changes the order of the logits, and their greatest is all that is asked for.
bool Sampler::takes_the_greatest(const SampleCall& call) {
  const SamplingParams& params = call.params;
  const bool penalised = params.repetition_penalty != 1.0 || params.presence_penalty != 0.0 || params.frequency_penalty != 0.0;
  return params.temperature == 0.0 && !penalised && params.logit_bias.empty() && call.banned.empty() && !call.logprob;
}

Result<Sample> Sampler::greatest(const LogitRange& range, int64_t position) const {
  const int64_t known = std::clamp<int64_t>(vocabulary_ - range.first, 0, static_cast<int64_t>(range.values.size()));
  const auto values = range.values.first(static_cast<size_t>(known));
  bool finite = true;
  for (const float z : values) finite &= z < std::numeric_limits<float>::infinity();
  if (!finite) {
    const auto bad = std::find_if(values.begin(), values.end(), [](float z) { return !(z < std::numeric_limits<float>::infinity()); });
    return not_finite(range.first + static_cast<TokenId>(bad - values.begin()), *bad);
  }
  const int64_t best = tensor::argmax(values);
  if (best < 0 || values[static_cast<size_t>(best)] == kMinusInfinity) return none_allowed(position);
  return Sample{.token = range.first + static_cast<TokenId>(best)};
}

Result<Sample> Sampler::sample(std::span<const LogitRange> ranges, const SampleCall& call) {
  const SamplingParams& params = call.params;
  if (ranges.size() == 1 && takes_the_greatest(call)) return greatest(ranges[0], call.position);
  LATHE_TRY_VOID(adjust(ranges, call));
  const int64_t best = tensor::argmax(x_);  // the first of equals: lowest id
  if (best < 0 || x_[static_cast<size_t>(best)] == kMinusInfinity) {
    return none_allowed(call.position);
  }
  Sample chosen{.token = static_cast<TokenId>(best)};
  if (params.temperature > 0.0) {
    weights_.resize(x_.size());
    tensor::token_weights(x_, x_[static_cast<size_t>(best)], weights_);
    chosen.token = draw(find_cut(params), random_bits(params.seed, static_cast<uint64_t>(call.position), 0));
  }
  if (call.logprob) chosen.logprob = logprob(ranges, chosen.token);
  return chosen;
}

}  // namespace lathe::engine
