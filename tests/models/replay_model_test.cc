// Goal: replay decoding in the model. Bits depend on the sequence, its request and where prompts ended alone: windows of any size and accepted count are single
// steps, batches are alone, resumed is undisturbed, states made for others are the true ones; and all stay near plain decoding.

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "rig.h"

namespace lathe::models::golden {
namespace {

constexpr int kDraftsMax = 5;

struct Kind {
  const char* name;
  Precision precision;
  DType state;
};

RigOptions rig_options(const Kind& kind, StateKeeping keeping = StateKeeping::kReplay) {
  RigOptions options{.directory = data_path("golden/base"),
                     .model = {.precision = kind.precision, .max_batch_tokens = 128, .tentative_max = kDraftsMax, .shards = {}, .groups = {}},
                     .isa = "",
                     .blocks = 32,
                     .slots = 6,
                     .dispatch = {}};
  options.model.caches = options.model.cache_formats();
  options.model.caches->state = kind.state;
  options.model.caches->keeping = keeping;
  return options;
}

std::vector<TokenId> text(size_t count, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::vector<TokenId> out(count);
  for (TokenId& token : out) token = static_cast<TokenId>(random() % 480);
  return out;
}

/// A model, and sequences that read text and decode.
class Decoder {
 public:
  explicit Decoder(const RigOptions& options) : rig(options) {}

  SequenceId open(uint64_t request) { return must(rig.store().open(request), "open"); }
  std::vector<float> prompt(SequenceId id, const std::vector<TokenId>& tokens) { return rig.feed(id, tokens); }
  std::vector<float> decode(SequenceId id, const std::vector<TokenId>& tokens, int64_t begin, int64_t end) {
    return rig.feed(id, {tokens.begin() + begin, tokens.begin() + end}, ItemKind::kDecode);
  }
  /// Token by token.
  std::vector<float> single(SequenceId id, const std::vector<TokenId>& tokens, int64_t begin, int64_t end) {
    std::vector<float> out;
    for (int64_t i = begin; i < end; ++i) {
      const std::vector<float> logits = decode(id, tokens, i, i + 1);
      out.insert(out.end(), logits.begin(), logits.end());
    }
    return out;
  }
  /// A window of a token, the right drafts that are accepted, and wrong ones.
  std::vector<float> window(SequenceId id, const std::vector<TokenId>& tokens, int64_t at, int proposed, int accepted) {
    std::vector<TokenId> rows(tokens.begin() + at, tokens.begin() + at + 1 + accepted);
    while (static_cast<int>(rows.size()) < 1 + proposed) rows.push_back(static_cast<TokenId>(100 + rows.size()));
    must(rig.store().append(id, 1 + proposed, proposed), "append");
    const StepItem item{
        .sequence = id, .kind = ItemKind::kDecode, .tokens = rows, .rows = {}, .tentative = proposed, .logits = Logits::kAll, .at = {}};
    const StepResult result = must(rig.model().step({&item, 1}, rig.store()), "step");
    rig.store().commit(id, accepted);
    return slice_rows(rig.host(result.logits), rig.vocabulary(), 0, 1 + accepted);
  }
  /// The states of the sequence's length.
  std::vector<std::byte> states(SequenceId id) {
    std::vector<std::byte> out;
    for (const cache::Snapshot::Part& part : must(rig.model().prefix_snapshot(id, rig.store()), "prefix").parts) {
      if (part.family != "kda.state") continue;
      for (const auto& plane : part.planes) out.insert(out.end(), plane.begin(), plane.end());
    }
    return out;
  }

  Rig rig;
};

class Replayed : public testing::TestWithParam<Kind> {
 protected:
  static RigOptions options(ReplayOptions replay = {}) {
    RigOptions out = rig_options(GetParam());
    out.model.replay = replay;
    return out;
  }
};

/// Every proposal and accepted count, at periods that fold once in many windows and several times in each.
TEST_P(Replayed, WindowsAreSingleSteps) {
  const std::vector<TokenId> tokens = text(120);
  for (const ReplayOptions replay : {ReplayOptions{}, {.period = 1}, {.period = 2}, {.period = 16}, {.period = 16, .anchor = 3}}) {
    Decoder decoder(options(replay));
    for (const uint64_t request : {0u, 1u}) {
      int64_t at = 13;
      const std::vector<TokenId> prompt(tokens.begin(), tokens.begin() + at);
      const SequenceId single = decoder.open(request), drafted = decoder.open(request);
      decoder.prompt(single, prompt), decoder.prompt(drafted, prompt);
      for (int proposed = 1; proposed <= kDraftsMax; ++proposed) {
        for (int accepted = 0; accepted <= proposed; ++accepted) {
          const std::vector<float> wanted = decoder.single(single, tokens, at, at + 1 + accepted);
          const std::string where = "period " + std::to_string(replay.period) + ": " + std::to_string(accepted) + " of " + std::to_string(proposed) +
                                    " at " + std::to_string(at);
          EXPECT_TRUE(same_bits(decoder.window(drafted, tokens, at, proposed, accepted), wanted)) << where;
          EXPECT_EQ(decoder.states(drafted), decoder.states(single)) << where;
          at += 1 + accepted;
        }
      }
      decoder.rig.store().close(single), decoder.rig.store().close(drafted);
    }
  }
}

TEST_P(Replayed, LongItemsAreSingleSteps) {
  const std::vector<TokenId> tokens = text(90);
  Decoder decoder(options());
  const SequenceId single = decoder.open(3), whole = decoder.open(3);
  const std::vector<float> wanted = decoder.single(single, tokens, 0, 90);
  std::vector<float> got = decoder.decode(whole, tokens, 0, 47);
  const std::vector<float> rest = decoder.decode(whole, tokens, 47, 90);
  got.insert(got.end(), rest.begin(), rest.end());
  EXPECT_TRUE(same_bits(got, wanted));
  EXPECT_EQ(decoder.states(whole), decoder.states(single));
}

TEST_P(Replayed, PromptsMayBeCutAnywhere) {
  const std::vector<TokenId> tokens = text(80);
  Decoder decoder(options());
  const SequenceId whole = decoder.open(5);
  const std::vector<float> prompt = decoder.prompt(whole, {tokens.begin(), tokens.begin() + 41});
  const std::vector<float> decoded = decoder.single(whole, tokens, 41, 70);
  // INT8 states are rounded every 16 tokens and where a piece ends: pieces of such sizes change nothing.
  const bool codes = GetParam().state == DType::kI8;
  for (const std::vector<int64_t>& cuts :
       {codes ? std::vector<int64_t>{16} : std::vector<int64_t>{40}, codes ? std::vector<int64_t>{32} : std::vector<int64_t>{1, 2}, {16, 32}}) {
    const SequenceId cut = decoder.open(5);
    std::vector<float> got;
    int64_t begin = 0;
    for (size_t i = 0; i <= cuts.size(); ++i) {
      const int64_t end = i < cuts.size() ? cuts[i] : 41;
      const std::vector<float> logits = decoder.prompt(cut, {tokens.begin() + begin, tokens.begin() + end});
      got.insert(got.end(), logits.begin(), logits.end());
      begin = end;
    }
    EXPECT_TRUE(same_bits(got, prompt));
    EXPECT_TRUE(same_bits(decoder.single(cut, tokens, 41, 70), decoded));
    EXPECT_EQ(decoder.states(cut), decoder.states(whole));
    decoder.rig.store().close(cut);
  }
}

/// Prompts, windows and single tokens of others in the same step, and other slots.
TEST_P(Replayed, AloneAsInABatch) {
  const std::vector<TokenId> tokens = text(80);
  const std::vector<TokenId> noise = text(80, 9);
  Decoder decoder(options());
  Decoder quiet(options());
  const SequenceId alone = quiet.open(11);
  quiet.prompt(alone, {tokens.begin(), tokens.begin() + 20});
  const std::vector<float> wanted = quiet.single(alone, tokens, 20, 60);
  std::vector<SequenceId> others;
  for (uint64_t i = 0; i < 3; ++i) others.push_back(decoder.open(100 + i));
  const SequenceId mine = decoder.open(11);
  decoder.prompt(mine, {tokens.begin(), tokens.begin() + 20});
  std::vector<float> got;
  for (int64_t i = 20; i < 60; ++i) {
    std::vector<StepItem> items;
    const auto add = [&](SequenceId id, ItemKind kind, std::span<const TokenId> rows, int32_t tentative) {
      must(decoder.rig.store().append(id, static_cast<int64_t>(rows.size()), tentative), "append");
      items.push_back({.sequence = id, .kind = kind, .tokens = rows, .rows = {}, .tentative = tentative, .logits = Logits::kAll, .at = {}});
    };
    const auto some = [&](int64_t count) { return std::span<const TokenId>(noise).subspan(static_cast<size_t>(i), static_cast<size_t>(count)); };
    add(others[0], ItemKind::kPrefill, some(1 + i % 3), 0);
    add(others[1], ItemKind::kDecode, some(4), 3);
    add(mine, ItemKind::kDecode, {&tokens[static_cast<size_t>(i)], 1}, 0);
    add(others[2], i % 5 == 0 ? ItemKind::kPrefill : ItemKind::kDecode, some(2), 0);
    const StepResult result = must(decoder.rig.model().step(items, decoder.rig.store()), "step");
    for (const StepItem& item : items) decoder.rig.store().commit(item.sequence, item.tentative > 0 ? i % 4 : 0);
    const ItemRows& rows = result.items[2];
    const std::vector<float> logits = decoder.rig.host(result.logits.rows(rows.logits_begin, rows.logits_begin + rows.logits_count));
    got.insert(got.end(), logits.begin(), logits.end());
  }
  EXPECT_TRUE(same_bits(got, wanted));
  EXPECT_EQ(decoder.states(mine), quiet.states(alone));
}

/// Preempted anywhere in its period, its slot written over, resumed elsewhere; and copied.
TEST_P(Replayed, ResumedIsUndisturbed) {
  const std::vector<TokenId> tokens = text(80);
  Decoder decoder(options());
  cache::Store& store = decoder.rig.store();
  const SequenceId undisturbed = decoder.open(21);
  decoder.prompt(undisturbed, {tokens.begin(), tokens.begin() + 10});
  const std::vector<float> wanted = decoder.single(undisturbed, tokens, 10, 60);
  SequenceId id = decoder.open(21);
  decoder.prompt(id, {tokens.begin(), tokens.begin() + 10});
  std::vector<float> got;
  for (int64_t at = 10; at < 60; ++at) {
    const std::vector<float> logits = decoder.single(id, tokens, at, at + 1);
    got.insert(got.end(), logits.begin(), logits.end());
    const cache::Snapshot kept = must(store.snapshot(id), "snapshot");
    const int32_t slot = store.slot(id);
    store.close(id);
    const SequenceId intruder = decoder.open(99);
    ASSERT_EQ(store.slot(intruder), slot);
    decoder.single(intruder, tokens, 30, 33);
    const SequenceId resumed = must(store.restore(kept), "restore");
    EXPECT_NE(store.slot(resumed), slot);
    id = must(store.copy(resumed), "copy");
    store.close(resumed), store.close(intruder);
  }
  EXPECT_TRUE(same_bits(got, wanted));
  EXPECT_EQ(decoder.states(id), decoder.states(undisturbed));
}

TEST_P(Replayed, ARecycledSlotHoldsNothingStale) {
  const std::vector<TokenId> tokens = text(60);
  RigOptions one = options();
  one.slots = 1;
  Decoder decoder(one);
  const SequenceId before = decoder.open(4);
  const std::vector<float> wanted = decoder.single(before, tokens, 0, 30);
  decoder.rig.store().close(before);
  const SequenceId other = decoder.open(5);
  decoder.single(other, tokens, 20, 57);
  decoder.rig.store().close(other);
  EXPECT_TRUE(same_bits(decoder.single(decoder.open(4), tokens, 0, 30), wanted));
}

/// The state of any position, for another request: the sequence goes on as if nobody had asked, and the copy as if it had been there.
TEST_P(Replayed, PrefixSnapshotsAreTheTrueState) {
  const std::vector<TokenId> tokens = text(90);
  Decoder decoder(options());
  cache::Store& store = decoder.rig.store();
  const SequenceId undisturbed = decoder.open(31), live = decoder.open(31);
  for (const SequenceId id : {undisturbed, live}) decoder.prompt(id, {tokens.begin(), tokens.begin() + 10});
  const std::vector<TokenId> turn(tokens.begin() + 60, tokens.begin() + 75);
  for (int64_t at = 10; at < 40; ++at) {
    const std::vector<float> wanted = decoder.single(undisturbed, tokens, at, at + 1);
    EXPECT_TRUE(same_bits(decoder.single(live, tokens, at, at + 1), wanted)) << at;
    cache::Snapshot prefix = must(decoder.rig.model().prefix_snapshot(live, store), "prefix");
    EXPECT_EQ(prefix.mark.position, prefix.length);
    // The next turn in the same sequence (a copy of it), and after the snapshot.
    const SequenceId same = must(store.copy(live), "copy");
    prefix.mark.request = 77;
    const SequenceId from_prefix = must(store.restore(prefix), "restore");
    EXPECT_EQ(decoder.states(from_prefix), decoder.states(same)) << at;
    EXPECT_TRUE(same_bits(decoder.prompt(from_prefix, turn), decoder.prompt(same, turn))) << at;
    EXPECT_EQ(decoder.states(from_prefix), decoder.states(same)) << at;
    EXPECT_EQ(store.mark(from_prefix).request, 77u);
    store.close(same), store.close(from_prefix);
  }
}

/// Where checkpoints lie follows from the request, not from the slot or from when it came.
TEST_P(Replayed, PhasesBelongToRequests) {
  const std::vector<TokenId> tokens = text(60);
  Decoder decoder(options());
  std::vector<SequenceId> same;
  for (int i = 0; i < 3; ++i) same.push_back(decoder.open(8));
  std::vector<SequenceId> different;
  for (uint64_t i = 0; i < 3; ++i) different.push_back(decoder.open(40 + i));
  for (const SequenceId id : same) decoder.single(id, tokens, 0, 40);
  for (const SequenceId id : different) decoder.single(id, tokens, 0, 40);
  const cache::Store& store = decoder.rig.store();
  for (const SequenceId id : same) EXPECT_EQ(store.mark(id).position, store.mark(same[0]).position);
  std::set<int64_t> positions;
  for (const SequenceId id : different) positions.insert(store.mark(id).position);
  EXPECT_GT(positions.size(), 1u) << "their states are not all written in the same step";
}

INSTANTIATE_TEST_SUITE_P(Formats, Replayed,
                         testing::Values(Kind{"exact_fp32", Precision::kExact, DType::kF32}, Kind{"fast_fp16", Precision::kFast, DType::kF16},
                                         Kind{"fast_int8", Precision::kFast, DType::kI8}),
                         [](const auto& test) { return test.param.name; });

std::vector<float> plain_logits(const Kind& kind, const std::vector<TokenId>& tokens, int64_t prompt) {
  Decoder plain(rig_options(kind, StateKeeping::kPlain));
  const SequenceId id = plain.open(0);
  plain.prompt(id, {tokens.begin(), tokens.begin() + prompt});
  return plain.single(id, tokens, prompt, static_cast<int64_t>(tokens.size()));
}

/// Every period and several phases. The rings are f32: what remains is the order of additions, 100 tokens long.
TEST(ReplayedAndPlain, EveryPeriodStaysWithinTheBudget) {
  constexpr double kBudget = 2e-5;
  const std::vector<TokenId> tokens = text(110);
  const Kind kind{"", Precision::kExact, DType::kF32};
  const std::vector<float> wanted = plain_logits(kind, tokens, 10);
  for (int32_t period = 1; period <= 16; ++period) {
    RigOptions options = rig_options(kind);
    options.model.replay.period = period;
    Decoder decoder(options);
    for (const uint64_t request : {0u, 1u, 2u}) {
      const SequenceId id = decoder.open(request);
      decoder.prompt(id, {tokens.begin(), tokens.begin() + 10});
      const double error = relative_frobenius(decoder.single(id, tokens, 10, 110), wanted);
      EXPECT_LT(error, kBudget) << "period " << period << ", request " << request;
      EXPECT_GT(error, 0) << "period " << period << ": is this replay?";
      decoder.rig.store().close(id);
    }
  }
}

TEST(ReplayedAndPlain, PromptsHaveTheSameBits) {
  const std::vector<TokenId> tokens = text(100);
  const Kind kind{"", Precision::kExact, DType::kF32};
  Decoder plain(rig_options(kind, StateKeeping::kPlain)), replayed(rig_options(kind));
  const SequenceId a = plain.open(0), b = replayed.open(0);
  EXPECT_TRUE(same_bits(plain.prompt(a, tokens), replayed.prompt(b, tokens)));
  EXPECT_EQ(must(plain.rig.store().materialise(a, 0, "kda.state"), "plain"), must(replayed.rig.store().materialise(b, 0, "kda.state"), "replayed"));
}

TEST(ReplayedAndPlain, SlotsHoldOneStateAndRings) {
  const Kind kind{"", Precision::kExact, DType::kF32};
  Decoder plain(rig_options(kind, StateKeeping::kPlain)), replayed(rig_options(kind));
  const cache::Family& before = plain.rig.store().family(0, "kda.state");
  const cache::Family& after = replayed.rig.store().family(0, "kda.state");
  constexpr int64_t kState = int64_t{4} * 32 * 32 * 4, kRow = int64_t{4} * 32 * 4, kPeriod = 6;
  EXPECT_EQ(before.unit_bytes(), (1 + kDraftsMax) * kState);
  EXPECT_EQ(after.unit_bytes(), kState + 2 * (kPeriod + kDraftsMax) * kRow + (kDraftsMax + 2) * kRow);
}

TEST(ReplayRefuses, WhatDoesNotBelong) {
  const Kind kind{"", Precision::kExact, DType::kF32};
  RigOptions options = rig_options(kind);
  Decoder decoder(options);
  const std::vector<TokenId> tokens = text(40);
  const SequenceId id = decoder.open(1);
  decoder.single(id, tokens, 0, 20);
  // A state that stands at another position than its text says, and one of another period.
  cache::Snapshot taken = must(decoder.rig.store().snapshot(id), "snapshot");
  cache::Snapshot wrong = taken;
  wrong.mark.position = 1;
  const SequenceId restored = must(decoder.rig.store().restore(wrong), "restore");
  must(decoder.rig.store().append(restored, 1, 0), "append");
  const StepItem item{.sequence = restored, .tokens = {tokens.data(), 1}, .rows = {}, .at = {}};
  const auto refused = decoder.rig.model().step({&item, 1}, decoder.rig.store());
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("stands at token 1"), std::string::npos) << refused.error().message;
  options.model.replay.period = 9;
  Decoder other(options);
  const auto foreign = other.rig.store().restore(taken);
  ASSERT_FALSE(foreign.has_value());
  EXPECT_NE(foreign.error().message.find("period 9"), std::string::npos) << foreign.error().message;
  const auto message = [](const RigOptions& bad) {
    const auto device = Rig::cpu_device(bad);
    const auto dispatch = must(backend::Dispatch::create(*device, {}), "dispatch");
    const auto model = load_model(bad.directory, *dispatch, bad.model);
    return model ? std::string() : model.error().message;
  };
  options.model.replay.period = 17;
  EXPECT_NE(message(options).find("period of 0 to 16"), std::string::npos) << message(options);
  options = rig_options(kind, StateKeeping::kPlain);
  options.model.replay.period = 4;
  EXPECT_NE(message(options).find("+replay"), std::string::npos) << message(options);
}

}  // namespace
}  // namespace lathe::models::golden
