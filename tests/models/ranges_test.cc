// Goal: a prefill cut over uneven token ranges equals the uncut one: bit for bit when states are handed on, within the chain's budget through affine pairs.

#include <gtest/gtest.h>

#include <thread>

#include "range_board.h"
#include "rig.h"

namespace lathe::models::golden {
namespace {

constexpr int64_t kTaps = 4;
constexpr int64_t kPool = 4;
constexpr int kKdaLayers[] = {0, 1, 2, 4, 5, 6};

RigOptions options(StateKeeping keeping = StateKeeping::kPlain) {
  RigOptions out{.directory = data_path("golden/base"),
                 .model = {.precision = Precision::kExact, .max_batch_tokens = 128, .token_ranges = true, .shards = {}, .groups = {}},
                 .isa = "",
                 .threads = 1,
                 .slots = 2,
                 .dispatch = {}};
  out.model.caches = out.model.cache_formats();
  out.model.caches->keeping = keeping;
  return out;
}

/// What follows on a prompt.
std::vector<float> decode(Rig& rig, SequenceId sequence) {
  std::vector<float> out;
  for (TokenId token = 3; token < 15; ++token) {
    const std::vector<float> logits = rig.feed(sequence, {token}, ItemKind::kDecode);
    out.insert(out.end(), logits.begin(), logits.end());
  }
  return out;
}

struct Outcome {
  std::vector<float> logits;
  std::vector<float> caches;                ///< of the last rank: it holds everything at the end
  std::vector<std::vector<float>> borders;  ///< per rank: its states at the end of its range, layer by layer
  std::vector<float> decoded;               ///< by the last rank
};

Outcome run_ranges(const std::vector<TokenId>& ids, const std::vector<BoardExchange::Range>& ranges, StateExchange states,
                   StateKeeping keeping = StateKeeping::kPlain) {
  RangeBoard board;
  Outcome out;
  std::vector<std::vector<float>> logits(ranges.size());
  out.borders.resize(ranges.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranges.size(); ++rank) {
    threads.emplace_back([&, rank] {
      Rig rig(options(keeping));
      BoardExchange exchange(board, ranges, static_cast<int>(rank), states, kTaps, kPool);
      const BoardExchange::Range range = ranges[rank];
      const SequenceId sequence = rig.open();
      // Room for what the ranges before hold.
      must(rig.store().append(sequence, range.begin, 0), "append");
      rig.store().commit(sequence, 0);
      must(rig.store().append(sequence, range.end - range.begin, 0), "append");
      const std::vector<TokenId> tokens(ids.begin() + range.begin, ids.begin() + range.end);
      const StepItem item{
          .sequence = sequence, .kind = ItemKind::kPrefill, .tokens = tokens, .rows = {}, .logits = Logits::kAll, .at = {}, .range = true};
      const StepResult result = must(rig.model().step({&item, 1}, rig.store(), &exchange), "step");
      rig.store().commit(sequence, 0);
      logits[rank] = rig.host(result.logits);
      for (const int layer : kKdaLayers) {
        const std::vector<float> state = rig.state(sequence, layer, "kda.state");
        out.borders[rank].insert(out.borders[rank].end(), state.begin(), state.end());
      }
      if (rank + 1 < ranges.size()) return;
      out.caches = rig.caches(sequence);
      out.decoded = decode(rig, sequence);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<float>& part : logits) out.logits.insert(out.logits.end(), part.begin(), part.end());
  return out;
}

/// The uncut run, with the states at the same borders.
Outcome run_uncut(const std::vector<TokenId>& ids, const std::vector<BoardExchange::Range>& ranges, StateKeeping keeping = StateKeeping::kPlain) {
  Rig rig(options(keeping));
  const SequenceId sequence = rig.open();
  Outcome out;
  for (const BoardExchange::Range& range : ranges) {
    const std::vector<float> logits = rig.feed(sequence, {ids.begin() + range.begin, ids.begin() + range.end});
    out.logits.insert(out.logits.end(), logits.begin(), logits.end());
    std::vector<float> states;
    for (const int layer : kKdaLayers) {
      const std::vector<float> state = rig.state(sequence, layer, "kda.state");
      states.insert(states.end(), state.begin(), state.end());
    }
    out.borders.push_back(std::move(states));
  }
  out.caches = rig.caches(sequence);
  out.decoded = decode(rig, sequence);
  EXPECT_TRUE(same_bits(rig.prefill(ids, {}), out.logits)) << "the uncut run itself depends on its chunks";
  return out;
}

class Ranges : public testing::TestWithParam<std::vector<int64_t>> {
 protected:
  Ranges() : ids_(GoldenFile(data_path("golden/base.safetensors")).tokens("ids.5")) {
    std::vector<int64_t> borders = GetParam();
    borders.push_back(static_cast<int64_t>(ids_.size()));
    int64_t begin = 0;
    for (const int64_t border : borders) {
      ranges_.push_back({begin, border});
      begin = border;
    }
  }
  std::vector<TokenId> ids_;
  std::vector<BoardExchange::Range> ranges_;
};

TEST_P(Ranges, RelayKeepsEveryBit) {
  const Outcome wanted = run_uncut(ids_, ranges_);
  const Outcome got = run_ranges(ids_, ranges_, StateExchange::kRelay);
  EXPECT_TRUE(same_bits(got.logits, wanted.logits));
  EXPECT_TRUE(same_bits(got.caches, wanted.caches));
  EXPECT_TRUE(same_bits(got.decoded, wanted.decoded));
  for (size_t i = 0; i < ranges_.size(); ++i) EXPECT_TRUE(same_bits(got.borders[i], wanted.borders[i])) << "border " << i;
}

/// The state that a range leaves is the checkpoint that decoding begins with.
TEST_P(Ranges, RelayKeepsEveryBitByReplay) {
  const Outcome wanted = run_uncut(ids_, ranges_, StateKeeping::kReplay);
  const Outcome got = run_ranges(ids_, ranges_, StateExchange::kRelay, StateKeeping::kReplay);
  EXPECT_TRUE(same_bits(got.logits, wanted.logits));
  EXPECT_TRUE(same_bits(got.decoded, wanted.decoded));
  EXPECT_FALSE(same_bits(got.decoded, run_uncut(ids_, ranges_).decoded)) << "is this replay?";
}

TEST_P(Ranges, ChainStaysInItsBudget) {
  constexpr double kBudget = 1e-5;
  const Outcome wanted = run_uncut(ids_, ranges_);
  const Outcome got = run_ranges(ids_, ranges_, StateExchange::kChain);
  for (size_t i = 0; i < ranges_.size(); ++i) EXPECT_LE(relative_frobenius(got.borders[i], wanted.borders[i]), kBudget) << "border " << i;
  EXPECT_LE(worst_difference(got.logits, wanted.logits), 1e-3);
  EXPECT_LE(worst_difference(got.logits, GoldenFile(data_path("golden/base.safetensors")).floats("logits.5")), 1e-3);
}

// Three uneven ranges, one of two tokens: shorter than the convolution, in and across a pool; then many small ones.
INSTANTIATE_TEST_SUITE_P(Cuts, Ranges,
                         testing::Values(std::vector<int64_t>{40, 42}, std::vector<int64_t>{2, 37}, std::vector<int64_t>{31, 63},
                                         std::vector<int64_t>{1, 3, 4, 9, 30, 31}),
                         [](const auto& test) {
                           std::string name = "at";
                           for (const int64_t border : test.param) name += "_" + std::to_string(border);
                           return name;
                         });

/// A rank that runs out of memory in the middle: those before it are right, those after it fail, and nobody waits for ever.
TEST(RangeFailure, EndsTheRanksAfterIt) {
  class Starve final : public backend::OpObserver {
   public:
    explicit Starve(backend::Dispatch& dispatch) : dispatch_(dispatch) {}
    void after(backend::OpCall& call, backend::Device&) override {
      if (call.site->layer == 4 && std::string(call.site->name) == "kda.conv") dispatch_.fail({Code::kResourceExhausted, "no scratch"});
    }

   private:
    backend::Dispatch& dispatch_;
  };
  const std::vector<TokenId> ids = GoldenFile(data_path("golden/base.safetensors")).tokens("ids.5");
  const std::vector<BoardExchange::Range> ranges = {{0, 20}, {20, 41}, {41, 44}, {44, 60}};
  for (const StateExchange states : {StateExchange::kRelay, StateExchange::kChain}) {
    RangeBoard board;
    std::vector<std::string> messages(ranges.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ranges.size(); ++rank) {
      threads.emplace_back([&, rank] {
        Rig rig(options());
        BoardExchange exchange(board, ranges, static_cast<int>(rank), states, kTaps, kPool);
        Starve starve(rig.dispatch());
        if (rank == 1) rig.dispatch().set_observer(&starve);
        const SequenceId sequence = rig.open();
        must(rig.store().append(sequence, ranges[rank].begin, 0), "append");
        rig.store().commit(sequence, 0);
        must(rig.store().append(sequence, ranges[rank].end - ranges[rank].begin, 0), "append");
        const std::vector<TokenId> tokens(ids.begin() + ranges[rank].begin, ids.begin() + ranges[rank].end);
        const StepItem item{.sequence = sequence, .kind = ItemKind::kPrefill, .tokens = tokens, .rows = {}, .at = {}, .range = true};
        const auto result = rig.model().step({&item, 1}, rig.store(), &exchange);
        messages[rank] = result ? "" : result.error().message;
        rig.dispatch().set_observer(nullptr);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(messages[0], "");
    EXPECT_EQ(messages[1], "no scratch");
    for (const size_t rank : {size_t{2}, size_t{3}}) EXPECT_NE(messages[rank].find("failed: "), std::string::npos) << messages[rank];
  }
}

TEST(RangeItems, NeedAModelLoadedForThem) {
  RigOptions plain = options();
  plain.model.token_ranges = false;
  Rig rig(plain);
  const SequenceId sequence = rig.open();
  must(rig.store().append(sequence, 1, 0), "append");
  const TokenId token = 1;
  const StepItem item{.sequence = sequence, .kind = ItemKind::kPrefill, .tokens = {&token, 1}, .rows = {}, .at = {}, .range = true};
  EXPECT_FALSE(rig.model().step({&item, 1}, rig.store()).has_value());
}

}  // namespace
}  // namespace lathe::models::golden
