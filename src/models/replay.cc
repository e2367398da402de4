#include "models/replay.h"

#include <algorithm>
#include <cmath>

namespace lathe::models {
namespace {

constexpr float kDecayMax = 80;     // of |G|: e^80 and its inverse are normal floats
constexpr int32_t kPeriodMax = 16;  // longer ones save little: the ring grows as the state's share shrinks

/// Spreads requests that differ in any bit.
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

}  // namespace

double replay_token_bytes(const ReplayBytes& bytes, int32_t period) {
  const auto state = static_cast<double>(bytes.state), entry = static_cast<double>(bytes.entry), decay = static_cast<double>(bytes.decay);
  const auto length = static_cast<double>(period);
  const double window = state + entry * (length - 1) / 2 + decay * (length - 1) / length + entry + decay;
  const double flush = 2 * state + length * entry + decay;
  return window + flush / length;
}

int32_t longest_replay_period(float lower_bound) {
  return std::clamp(static_cast<int32_t>(std::min(kDecayMax / -lower_bound, static_cast<float>(kPeriodMax))), 1, kPeriodMax);
}

int32_t best_replay_period(const ReplayBytes& bytes, float lower_bound) {
  const double best = std::sqrt(2.0 * static_cast<double>(bytes.state) / static_cast<double>(bytes.entry));
  return std::clamp(static_cast<int32_t>(std::lround(best)), 1, longest_replay_period(lower_bound));
}

ops::ReplayRule replay_rule(const ReplayPlan& plan, const cache::StateMark& mark) {
  return {.origin = mark.origin,
          .period = plan.period,
          .phase = static_cast<int32_t>(mixed(mark.request) % static_cast<uint64_t>(plan.period)),
          .anchor = plan.anchor};
}

Result<void> check_mark(SequenceId sequence, const cache::StateMark& mark, int64_t start, const ReplayPlan& plan) {
  if (mark.position <= start && start - mark.position <= plan.ring_rows()) return {};
  return err(Code::kFailedPrecondition,
             "sequence {}: its state stands at token {} and it goes on at {}; expected at most the {} tokens of its ring between", sequence.value,
             mark.position, start, plan.ring_rows());
}

StateFold next_fold(const ops::ReplayRule& rule, int64_t position, int64_t to) {
  if (position >= to) return {position, position};
  return {position, std::min(to, ops::next_checkpoint(rule, position))};
}

}  // namespace lathe::models
