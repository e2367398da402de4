#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/limits.h"
#include "tensor/argmax.h"

namespace lathe::engine {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr double kWeightOne = 0x1p44;  // weight of the most likely token; sums over 2^19 ids stay below 2^63

constexpr int kTerms = 12;  // the 13th is below 2^-52
constexpr auto kInverseFactorials = [] {
  std::array<double, kTerms + 1> out{};
  double factorial = 1;
  for (int i = 0; i <= kTerms; ++i) {
    factorial *= i == 0 ? 1 : i;
    out[static_cast<size_t>(i)] = 1 / factorial;
  }
  return out;
}();

/// exp(x) for x ≤ 0 as an integer, to the nearest of kWeightOne.
uint64_t weight_of(float x) {
  constexpr double kShift = 0x1p52;
  return std::bit_cast<uint64_t>(static_cast<double>(sampling_exp(x)) * kWeightOne + kShift) - std::bit_cast<uint64_t>(kShift);
}

using base::kLimits;
using Wide = unsigned __int128;

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

float sampling_exp(float x) {
  // exp(x) = 2^k · e^r, |r| ≤ 0.35, without branches, calls or divisions: a row has as many values as the vocabulary has ids.
  constexpr double kShift = 0x1.8p52;  // what is added to it is rounded to an integer, in its low bits
  const double y = static_cast<double>(x) * 1.4426950408889634;
  const double shifted = y + kShift;
  const double r = (y - (shifted - kShift)) * 0.6931471805599453;
  double sum = kInverseFactorials[kTerms];
  for (int i = kTerms - 1; i >= 0; --i) sum = sum * r + kInverseFactorials[static_cast<size_t>(i)];
  const uint64_t exponent = (std::bit_cast<uint64_t>(shifted) - std::bit_cast<uint64_t>(kShift) + 1023) << 52;
  const auto value = static_cast<float>(sum * std::bit_cast<double>(exponent));
  return x > -80.0f ? value : 0.0f;  // weights below 2^-45 of the maximum round to 0 long before
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
      if (std::isnan(z) || z == std::numeric_limits<float>::infinity())
        return err(Code::kDataLoss, "the logits are not finite (non_finite_logits): that of token {} is {}", id, z);
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

void Sampler::filter(const SamplingParams& params) {
  const auto before = [](const Candidate& a, const Candidate& b) { return a.x > b.x || (a.x == b.x && a.id < b.id); };
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + params.top_k, candidates_.end(), before);
    candidates_.resize(static_cast<size_t>(params.top_k));
  }
  if (params.top_p < 1.0) {
    std::sort(candidates_.begin(), candidates_.end(), before);
    Wide total = 0;
    for (const Candidate& candidate : candidates_) total += candidate.weight;
    const Wide goal = static_cast<Wide>(std::nearbyint(params.top_p * 0x1p32)) * total;
    Wide running = 0;
    size_t kept = 0;
    while (kept < candidates_.size()) {
      running += candidates_[kept++].weight;
      if ((running << 32) >= goal) break;
    }
    candidates_.resize(kept);
  }
  if (params.min_p > 0.0) {
    const auto floor = static_cast<uint64_t>(std::ceil(params.min_p * kWeightOne));
    std::erase_if(candidates_, [&](const Candidate& candidate) { return candidate.weight < floor; });  // the maximum has exactly 2^44: it stays
  }
}

Result<Sample> Sampler::sample(std::span<const LogitRange> ranges, const SampleCall& call) {
  const SamplingParams& params = call.params;
  const int64_t position = call.position;
  LATHE_TRY_VOID(adjust(ranges, call));
  const int64_t best = tensor::argmax(x_);  // the first of equals: lowest id
  if (best < 0 || x_[static_cast<size_t>(best)] == kMinusInfinity) {
    return err(Code::kFailedPrecondition, "no token is allowed at position {}", position);
  }
  Sample chosen{.token = static_cast<TokenId>(best)};
  if (params.temperature > 0.0) {
    const float maximum = x_[static_cast<size_t>(best)];
    candidates_.clear();
    candidates_.reserve(x_.size());
    for (size_t id = 0; id < x_.size(); ++id) {
      const uint64_t weight = weight_of(x_[id] - maximum);
      if (weight > 0) candidates_.push_back({x_[id], static_cast<TokenId>(id), weight});
    }
    filter(params);
    if (params.top_k > 0 || params.top_p < 1.0) {  // else nothing has left the order of ids
      std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
    }
    uint64_t total = 0;
    for (const Candidate& candidate : candidates_) total += candidate.weight;
    const auto target = static_cast<uint64_t>((static_cast<Wide>(random_bits(params.seed, static_cast<uint64_t>(position), 0)) * total) >> 64);
    uint64_t running = 0;
    for (const Candidate& candidate : candidates_) {
      running += candidate.weight;
      if (running > target) {
        chosen.token = candidate.id;
        break;
      }
    }
  }
  if (!call.logprob) return chosen;
  float raw_maximum = kMinusInfinity;
  float raw_chosen = 0;
  for (const LogitRange& range : ranges) {
    for (size_t i = 0; i < range.values.size(); ++i) {
      const int64_t id = range.first + static_cast<int64_t>(i);
      if (id >= vocabulary_) continue;
      raw_maximum = std::max(raw_maximum, range.values[i]);
      if (id == chosen.token) raw_chosen = range.values[i];
    }
  }
  uint64_t sum = 0;
  for (const LogitRange& range : ranges) {
    for (size_t i = 0; i < range.values.size(); ++i) {
      if (range.first + static_cast<int64_t>(i) >= vocabulary_) continue;
      sum += weight_of(range.values[i] - raw_maximum);
    }
  }
  chosen.logprob = static_cast<double>(raw_chosen) - static_cast<double>(raw_maximum) - std::log(static_cast<double>(sum) / kWeightOne);
  return chosen;
}

}  // namespace lathe::engine
