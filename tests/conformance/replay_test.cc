// Replay decoding against the plain recurrence: every period, phase and accepted count, long runs, formats of ring and state; and the equalities that hold in
// every bit: windows of any size, flushes early or late, reconstructions, slots.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <random>

#include "harness.h"
#include "kernels/cpu/cpu_variants.h"
#include "kernels/ref/reference.h"
#include "ops/contracts.h"

namespace lathe::conformance {
namespace {

using namespace lathe::ops;  // NOLINT(google-build-using-namespace): a test of that namespace

constexpr int64_t kHeads = 2, kKeys = 12, kValues = 10, kWindowMax = 5, kSlots = 3;

View f32(std::vector<float>& data, std::initializer_list<int64_t> shape) { return tensor::make_view(data.data(), DType::kF32, shape); }
View i32(std::vector<int32_t>& data) { return tensor::make_view(data.data(), DType::kI32, {static_cast<int64_t>(data.size())}); }
size_t size(int64_t n) { return static_cast<size_t>(n); }

/// The kernels under test.
std::span<const Variant>& table() {
  static std::span<const Variant> kernels;
  return kernels;
}

template <class Params>
void run(const Params& p) {
  static HostRunner runner(1);
  const auto valid = validate(p);
  ASSERT_TRUE(valid.has_value()) << valid.error().message;
  const auto kernel = std::find_if(table().begin(), table().end(), [](const Variant& v) { return v.op == Params::kId; });
  ASSERT_NE(kernel, table().end());
  runner.run(*kernel, &p, nullptr);
}

struct Level {
  const char* name;
  bool (*here)();
  std::span<const Variant> (*variants)();
};
bool always() { return true; }

/// The reference, and every level that this machine has.
class Replays : public testing::TestWithParam<Level> {
 protected:
  void SetUp() override {
    if (!GetParam().here()) GTEST_SKIP() << "this machine has no " << GetParam().name;
    table() = GetParam().variants();
  }
};
INSTANTIATE_TEST_SUITE_P(Levels, Replays,
                         testing::Values(Level{"ref", always, kernels::ref::reference_variants},
                                         Level{"scalar", always, kernels::cpu::scalar_variants},
                                         Level{"avx2", kernels::cpu::has_avx2, kernels::cpu::avx2_variants},
                                         Level{"avx512", kernels::cpu::has_avx512, kernels::cpu::avx512_variants}),
                         [](const auto& level) { return std::string(level.param.name); });

/// The inputs of a sequence, token by token.
struct Tokens {
  std::vector<float> q, k, v, g, beta;

  Tokens(int64_t count, uint32_t seed, double slowest, double fastest) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<double> unit;
    for (int64_t i = 0; i < count * kHeads * kKeys; ++i) {
      q.push_back(normal(random)), k.push_back(normal(random));
      g.push_back(static_cast<float>(-slowest * std::pow(fastest / slowest, unit(random))));
    }
    for (int64_t i = 0; i < count * kHeads * kValues; ++i) v.push_back(normal(random));
    for (int64_t i = 0; i < count * kHeads; ++i) beta.push_back(static_cast<float>(unit(random)));
  }
  View of(std::vector<float>& data, int64_t width, int64_t begin, int64_t end) const {
    return tensor::make_view(data.data(), DType::kF32, {static_cast<int64_t>(data.size()) / (kHeads * width), kHeads, width}).rows(begin, end);
  }
  template <class Params>
  void give(Params& p, int64_t begin, int64_t end) {
    p.q = of(q, kKeys, begin, end), p.k = of(k, kKeys, begin, end), p.v = of(v, kValues, begin, end);
    p.g = of(g, kKeys, begin, end).reshape({end - begin, kHeads * kKeys}), p.beta = of(beta, 1, begin, end).reshape({end - begin, kHeads});
  }
};

/// o of all tokens by the plain recurrence in f32, and the last state.
std::vector<float> plain(Tokens& tokens, int64_t count, std::vector<float>& state) {
  std::vector<float> o(size(count * kHeads * kValues));
  state.assign(size(kHeads * kKeys * kValues), 0);
  std::vector<int32_t> in{-1}, out(size(count), -1), begin{0, static_cast<int32_t>(count)}, start{0};
  out.back() = 0;
  KdaRecurrenceParams p{};
  tokens.give(p, 0, count);
  p.entering = p.states = f32(state, {1, kHeads, kKeys, kValues}), p.state_in = i32(in), p.state_out = i32(out);
  p.batch = {.begin = i32(begin), .start = i32(start), .longest = count};
  p.o = f32(o, {count, kHeads, kValues});
  run(p);
  return o;
}

struct Formats {
  DType state = DType::kF32, keys = DType::kF32, values = DType::kF32;
};

/// Memory of some slots, and one sequence that decodes in one of them.
class Replay {
 public:
  Replay(const ReplayRule& rule, const Formats& formats, int32_t slot = 1) : rule_(rule), slot_(slot) {
    const int64_t rows = rule.period + kWindowMax;
    states_ = make(formats.state, {kSlots, kHeads, kKeys, kValues});
    if (formats.state == DType::kI8) scales_ = make(DType::kF32, {kSlots, kHeads, kValues});
    ring_ = {make(formats.keys, {kSlots, rows, kHeads, kKeys}), make(formats.values, {kSlots, rows, kHeads, kValues}),
             make(DType::kF32, {kSlots, kWindowMax + 1, kHeads, kKeys})};
  }

  int64_t length() const { return length_; }
  /// Runs tokens [length, length + rows) and keeps `kept` of them.
  std::vector<float> step(Tokens& tokens, int64_t rows, int64_t kept) {
    std::vector<float> o(size(rows * kHeads * kValues));
    std::vector<int32_t> state{fresh_ ? -1 : slot_}, checkpoint{static_cast<int32_t>(checkpoint_)}, slot{slot_}, fold;
    std::vector<int32_t> begin{0, static_cast<int32_t>(rows)}, start{static_cast<int32_t>(length_)};
    for (int64_t i = 0; i < rows; ++i) fold.push_back(is_checkpoint(rule_, length_ + i) ? 1 : 0);
    KdaVerifyParams p{};
    tokens.give(p, length_, length_ + rows);
    p.states = states_, p.states_scales = scales_, p.state = i32(state), p.checkpoint = i32(checkpoint), p.slot = i32(slot), p.ring = ring_;
    p.fold = i32(fold), p.batch = {.begin = i32(begin), .start = i32(start), .longest = rows};
    p.o = f32(o, {rows, kHeads, kValues});
    run(p);
    length_ += kept;
    while (next_checkpoint(rule_, checkpoint_) <= length_) flush(next_checkpoint(rule_, checkpoint_));
    o.resize(size(kept * kHeads * kValues));
    return o;
  }
  void flush(int64_t to) {
    fold_into(to, slot_, states_, scales_);
    checkpoint_ = to, fresh_ = false;
  }
  /// The state at the present length, in the format of states, without touching the slot.
  std::vector<std::byte> reconstruct(const Formats& formats) {
    const View out = make(formats.state, {1, kHeads, kKeys, kValues}),
               scales = formats.state == DType::kI8 ? make(DType::kF32, {1, kHeads, kValues}) : View{};
    fold_into(length_, 0, out, scales);
    return bytes_of(out, scales);
  }
  std::vector<std::byte> state() const {
    return bytes_of(states_.slice(0, slot_, slot_ + 1), scales_.present() ? scales_.slice(0, slot_, slot_ + 1) : View{});
  }
  std::vector<std::byte> everything() const {
    std::vector<std::byte> out;
    for (const auto& memory : memory_) out.insert(out.end(), memory.begin(), memory.end());
    return out;
  }
  /// The sequence goes on in another slot: rows of a slot are its content, whatever they mean.
  void move_to(int32_t slot) {
    if (slot == slot_) return;
    for (const View& view : {states_, scales_, ring_.keys, ring_.values, ring_.decay}) {
      if (!view.present()) continue;
      const size_t bytes = size(view.step(0)) * tensor::dtype_bytes(view.dtype);
      std::memcpy(static_cast<char*>(view.data) + size(slot) * bytes, static_cast<char*>(view.data) + size(slot_) * bytes, bytes);
      std::memset(static_cast<char*>(view.data) + size(slot_) * bytes, 0xFF, bytes);
    }
    slot_ = slot;
  }

 private:
  View make(DType type, std::initializer_list<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t n : shape) count *= n;
    memory_.push_back(std::vector<std::byte>(size(count) * tensor::dtype_bytes(type)));
    return tensor::make_view(memory_.back().data(), type, shape);
  }
  static std::vector<std::byte> bytes_of(const View& values, const View& scales) {
    std::vector<std::byte> out;
    for (const View& view : {values, scales}) {
      const auto* const data = static_cast<const std::byte*>(view.data);
      out.insert(out.end(), data, data + view.extent_bytes());
    }
    return out;
  }
  void fold_into(int64_t to, int32_t row, const View& states, const View& scales) {
    std::vector<int32_t> in{fresh_ ? -1 : slot_}, into{row}, from{static_cast<int32_t>(checkpoint_)}, end{static_cast<int32_t>(to)}, slot{slot_};
    KdaFlushParams p{};
    p.entering = states_, p.entering_scales = scales_, p.state_in = i32(in), p.states = states, p.states_scales = scales, p.into = i32(into);
    p.checkpoint = i32(from), p.to = i32(end), p.slot = i32(slot), p.ring = ring_, p.folded_max = to - checkpoint_;
    run(p);
  }

  ReplayRule rule_;
  int32_t slot_;
  std::deque<std::vector<std::byte>> memory_;
  View states_, scales_{};
  ReplayRing ring_;
  int64_t length_ = 0, checkpoint_ = 0;
  bool fresh_ = true;
};

double relative(const std::vector<float>& got, const std::vector<float>& want) {
  double error = 0, all = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const auto a = static_cast<double>(got[i]), b = static_cast<double>(want[i]);
    error += (a - b) * (a - b), all += b * b;
  }
  return std::sqrt(error / all);
}

/// All tokens in windows whose sizes and accepted counts come from `seed`; 0: one by one.
std::vector<float> decode(Replay& replay, Tokens& tokens, int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> o;
  while (replay.length() < count) {
    const int64_t rows = seed == 0 ? 1 : std::min<int64_t>(1 + random() % kWindowMax, count - replay.length());
    const std::vector<float> part = replay.step(tokens, rows, seed == 0 ? 1 : static_cast<int64_t>(random() % size(rows + 1)));
    o.insert(o.end(), part.begin(), part.end());
  }
  return o;
}

TEST_P(Replays, EqualsThePlainRecurrenceForEveryPeriodAndPhase) {
  constexpr int64_t kCount = 60;
  Tokens tokens(kCount + kWindowMax, 3, 1e-3, 5);
  std::vector<float> last;
  const std::vector<float> want = plain(tokens, kCount, last);
  for (int32_t period = 2; period <= 16; ++period) {
    for (int32_t phase = 0; phase < period; ++phase) {
      const ReplayRule rule{.period = period, .phase = phase, .anchor = phase % 3 == 0 ? 32 : 0};
      Replay steps(rule, {});
      EXPECT_LT(relative(decode(steps, tokens, kCount, 0), want), 2e-6) << period << " " << phase;
      Replay windows(rule, {}, 2);
      EXPECT_LT(relative(decode(windows, tokens, kCount, static_cast<uint32_t>(1 + phase)), want), 2e-6) << period << " " << phase;
    }
  }
}

/// Gates at their bound: what a fold adds was kept with e^80, and its factor is e^−80.
TEST_P(Replays, StrongDecaysLoseNothing) {
  constexpr int64_t kCount = 80;
  Tokens tokens(kCount + kWindowMax, 8, 3, 5);
  std::vector<float> last;
  const std::vector<float> want = plain(tokens, kCount, last);
  for (const int32_t period : {8, 16}) {
    for (const uint32_t seed : {0u, 3u}) {
      Replay replay({.period = period, .phase = 3}, {});
      EXPECT_LT(relative(decode(replay, tokens, kCount, seed), want), 2e-6) << period;
    }
  }
}

TEST_P(Replays, EveryAcceptedCountOfEveryWindowGivesTheBitsOfSingleSteps) {
  constexpr int64_t kCount = 50;
  Tokens tokens(kCount + kWindowMax, 4, 1e-3, 5);
  for (const Formats& formats : {Formats{}, Formats{DType::kF16, DType::kBF16, DType::kF32}, Formats{DType::kI8, DType::kBF16, DType::kBF16}}) {
    for (const int32_t period : {2, 3, 7, 16}) {
      const ReplayRule rule{.period = period, .phase = 1};
      Replay single(rule, formats);
      const std::vector<float> want = decode(single, tokens, kCount, 0);
      for (int64_t rows = 1; rows <= kWindowMax; ++rows) {
        for (int64_t kept = 1; kept <= rows; ++kept) {
          Replay replay(rule, formats);
          std::vector<float> got;
          while (replay.length() < kCount) {
            const std::vector<float> part = replay.step(tokens, std::min(rows, kCount - replay.length()), std::min(kept, kCount - replay.length()));
            got.insert(got.end(), part.begin(), part.end());
            if (kept > 1) replay.step(tokens, rows, 0);  // all drafts dropped
          }
          ASSERT_EQ(got, want) << "period " << period << ", " << kept << " of " << rows;
          ASSERT_EQ(replay.state(), single.state());
        }
      }
    }
  }
}

TEST_P(Replays, StaysWithinTheBudgetOfItsRingOverLongRuns) {
  constexpr int64_t kCount = 1500;
  struct Budget {
    Formats formats;
    double slow, mixed;
  };
  // Relative error of all outputs against the plain recurrence in f32; measured values are about half.
  for (const Budget& budget :
       {Budget{{DType::kF32, DType::kF32, DType::kF32}, 4e-7, 4e-7}, Budget{{DType::kF32, DType::kBF16, DType::kF32}, 4e-3, 3e-3},
        Budget{{DType::kF32, DType::kBF16, DType::kBF16}, 6e-3, 4e-3}, Budget{{DType::kF16, DType::kBF16, DType::kF32}, 4e-3, 3e-3},
        Budget{{DType::kF16, DType::kF32, DType::kF32}, 4e-4, 1.5e-4}, Budget{{DType::kI8, DType::kBF16, DType::kF32}, 1e-2, 4e-3}}) {
    for (const bool slow : {true, false}) {
      Tokens tokens(kCount + kWindowMax, 5, slow ? 1e-6 : 1e-3, slow ? 2e-3 : 5);
      std::vector<float> last;
      const std::vector<float> want = plain(tokens, kCount, last);
      Replay replay({.period = 16, .phase = 5}, budget.formats);
      const double error = relative(decode(replay, tokens, kCount, 9), want);
      EXPECT_LT(error, slow ? budget.slow : budget.mixed) << tensor::dtype_name(budget.formats.state) << tensor::dtype_name(budget.formats.values);
      std::string name;
      for (const DType type : {budget.formats.state, budget.formats.keys, budget.formats.values}) name += std::string(tensor::dtype_name(type)) + "_";
      RecordProperty(name + (slow ? "slow" : "mixed"), fmt::format("{:.1e}", error));
    }
  }
}

TEST_P(Replays, AReconstructionIsTheFlushAndLeavesTheSlotAlone) {
  constexpr int64_t kCount = 40;
  Tokens tokens(kCount + kWindowMax, 6, 1e-3, 5);
  for (const Formats& formats : {Formats{}, Formats{DType::kF16, DType::kBF16, DType::kBF16}, Formats{DType::kI8, DType::kBF16, DType::kF32}}) {
    for (int64_t at = 1; at < 24; ++at) {
      Replay replay({.period = 8, .phase = 3}, formats), undisturbed({.period = 8, .phase = 3}, formats);
      decode(replay, tokens, at, 0), decode(undisturbed, tokens, at, 0);
      const std::vector<std::byte> before = replay.everything(), state = replay.reconstruct(formats);
      std::vector<std::byte> after = replay.everything();
      after.resize(before.size());
      EXPECT_EQ(after, before) << at;
      EXPECT_EQ(decode(replay, tokens, kCount, 0), decode(undisturbed, tokens, kCount, 0));
      Replay flushed({.period = 8, .phase = 3}, formats);
      decode(flushed, tokens, at, 0);
      flushed.flush(at);
      EXPECT_EQ(flushed.state(), state) << at;
    }
  }
}

TEST_P(Replays, ASlotMovesWithItsRowsAndAnOldOneLeavesNothing) {
  constexpr int64_t kCount = 60;
  Tokens tokens(kCount + kWindowMax, 7, 1e-3, 5);
  const Formats formats{DType::kI8, DType::kBF16, DType::kF32};
  Replay stays({.period = 16, .phase = 2}, formats), moves({.period = 16, .phase = 2}, formats);
  const std::vector<float> want = decode(stays, tokens, kCount, 0);
  std::vector<float> got;
  for (int32_t i = 0; moves.length() < kCount; ++i) {
    if (i % 5 == 4) moves.move_to(i % 3 == 0 ? 0 : i % 3 == 1 ? 2 : 1);
    const std::vector<float> part = moves.step(tokens, 1, 1);
    got.insert(got.end(), part.begin(), part.end());
  }
  EXPECT_EQ(got, want);
}

TEST(Replay, TheRuleIsAFunctionOfPositionAndRequest) {
  const ReplayRule rule{.origin = 37, .period = 16, .phase = 5, .anchor = 64};
  EXPECT_FALSE(is_checkpoint(rule, 21)) << "before the origin";
  EXPECT_TRUE(is_checkpoint(rule, 37));
  for (const int64_t position : {53, 64, 69, 85, 101, 117, 128}) EXPECT_TRUE(is_checkpoint(rule, position)) << position;
  EXPECT_EQ(checkpoint_of(rule, 37), 37);
  EXPECT_EQ(checkpoint_of(rule, 52), 37);
  EXPECT_EQ(checkpoint_of(rule, 68), 64);
  EXPECT_EQ(next_checkpoint(rule, 37), 53);
  EXPECT_EQ(next_checkpoint(rule, 63), 64);
  for (int64_t position = 37; position < 400; ++position) EXPECT_LT(position - checkpoint_of(rule, position), 16);
}

}  // namespace
}  // namespace lathe::conformance
