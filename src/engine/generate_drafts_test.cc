// Goal: with drafts of any length, in any batch and with prompts in any chunks, a request gets the bits that it gets without; ends cut windows where they cut
// plain answers; what goes wrong with the draft layer costs speed and no text, and the health signal sees it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>

#include "engine/test_engine.h"
#include "ops/basic.h"

namespace lathe::engine {
namespace {

// Prompts that the built-in model was made for, so that its draft layer foresees the answers: a text to go on with, and a wish for a story.
const std::vector<TokenId> kText = {3546, 3548, 1767, 923, 258, 549, 506, 313, 258, 542, 2150, 559, 864, 303, 260, 1614, 13};
const std::vector<TokenId> kChat = {3546, 3548, 3550, 430, 429, 25, 918, 3551, 2131, 379, 258, 607, 497, 258, 1275, 13, 3552, 3565};

struct Setup {
  int32_t most = 0;
  bool adaptive = false;
  int64_t batch_tokens = 64;
  int32_t sequences = 4;
  int64_t context = 320;
  bool exact = false;
  DraftHealth health{};
};

std::unique_ptr<Engine> engine_of(const Setup& setup) {
  EngineOptions options = builtin_options(setup.context);
  options.precision = setup.exact ? models::Precision::kExact : models::Precision::kFast;
  options.cpu.threads = 1;  // bits do not depend on it
  options.sequences = setup.sequences;
  options.batch_tokens = setup.batch_tokens;
  options.draft = true;
  options.drafts = {.most = setup.most, .adaptive = setup.adaptive, .health = setup.health};
  return engine_of(options);
}

/// Pictures own memory, so that requests are no values; these have none.
Request copy_of(const Request& one) {
  return {.prompt = one.prompt,
          .images = {},
          .sampling = one.sampling,
          .max_tokens = one.max_tokens,
          .stop_tokens = one.stop_tokens,
          .logprobs = one.logprobs,
          .drafts = one.drafts};
}

Request request(const std::vector<TokenId>& prompt, int64_t tokens, double temperature = 0, uint64_t seed = 0) {
  Request out;
  out.prompt = prompt;
  out.sampling.temperature = temperature;
  out.sampling.seed = seed;
  out.max_tokens = tokens;
  out.logprobs = true;
  return out;
}

/// Greedy, drawn, with penalties that look at every token before, short and long.
std::vector<Request> mixed_requests() {
  std::vector<Request> out;
  out.push_back(request(kText, 90));
  out.push_back(request(kChat, 70, 0.8, 3));
  out.push_back(request(kChat, 60));
  out.push_back(request(kText, 40, 1.0, 9));
  out.push_back(request(kChat, 50, 0.7, 5));
  out[2].sampling.repetition_penalty = 1.3;
  out[2].sampling.frequency_penalty = 0.4;
  out[4].sampling.presence_penalty = 0.6;
  out[4].sampling.top_p = 0.9;
  return out;
}

struct Outcome {
  std::vector<TokenId> tokens;
  std::vector<double> logprobs;
  Finish finish = Finish::kNone;
  DraftCounts drafts;
  int restarts = 0;
  bool operator==(const Outcome& other) const {
    return tokens == other.tokens && finish == other.finish && logprobs.size() == other.logprobs.size() &&
           std::memcmp(logprobs.data(), other.logprobs.data(), logprobs.size() * sizeof(double)) == 0;
  }
};
using Outcomes = std::vector<Outcome>;

Outcomes run(Generator& generator, size_t count) {
  Outcomes out(count);
  const auto on_token = [&](const TokenEvent& event) {
    Outcome& one = out[static_cast<size_t>(event.request)];
    EXPECT_EQ(one.finish, Finish::kNone) << "an event behind the end of request " << event.request;
    if (event.restart) one = {.tokens = {}, .logprobs = {}, .drafts = {}, .restarts = one.restarts + 1};
    if (event.token >= 0) one.tokens.push_back(event.token), one.logprobs.push_back(event.logprob);
    one.finish = event.finish;
  };
  for (bool more = true; more;) {
    const Result<bool> step = generator.step(on_token);
    EXPECT_TRUE(step.has_value()) << (step ? "" : step.error().message);
    more = step && *step;
  }
  for (size_t i = 0; i < count; ++i) out[i].drafts = generator.drafts(static_cast<int32_t>(i));
  return out;
}

void add_all(Generator& generator, const std::vector<Request>& requests) {
  for (const Request& one : requests) EXPECT_TRUE(generator.add(copy_of(one)).has_value());
}

Outcomes run_all(Engine& engine, const std::vector<Request>& requests) {
  Generator generator(engine);
  add_all(generator, requests);
  Outcomes out = run(generator, requests.size());
  EXPECT_EQ(engine.store().free_blocks(), engine.store().options().blocks);
  EXPECT_EQ(engine.store().free_slots(), engine.store().options().slots);
  return out;
}
Outcome run_one(Engine& engine, const Request& one) {
  std::vector<Request> requests;
  requests.push_back(copy_of(one));
  return run_all(engine, requests)[0];
}
std::vector<Request> two_requests(int64_t tokens) {
  std::vector<Request> out;
  out.push_back(request(kText, tokens));
  out.push_back(request(kChat, tokens, 0.8, 3));
  return out;
}

class Lossless : public testing::TestWithParam<bool> {};

TEST_P(Lossless, EveryLengthBatchAndChunkGivesTheBitsOfPlainDecoding) {
  const std::vector<Request> requests = mixed_requests();
  const Outcomes plain = run_all(*engine_of({.exact = GetParam()}), requests);
  std::vector<DraftCounts> first(requests.size());
  for (int32_t most = 1; most <= kDraftsMax; ++most) {
    for (const int64_t batch_tokens : {7, 64}) {
      for (const int32_t sequences : {1, 5}) {
        if (batch_tokens == 7 && sequences == 5 && most > 2) continue;
        const auto engine = engine_of({.most = most, .batch_tokens = batch_tokens, .sequences = sequences, .exact = GetParam()});
        const Outcomes got = run_all(*engine, requests);
        for (size_t i = 0; i < requests.size(); ++i) {
          EXPECT_TRUE(got[i] == plain[i]) << "request " << i << ", " << most << " drafts, steps of " << batch_tokens << ", " << sequences
                                          << " at a time";
          // Where no rows are short, drafts too are a matter of the request alone: chunks and batches leave the same draft caches.
          if (batch_tokens == 7) continue;
          if (sequences == 1) first[i] = got[i].drafts;
          EXPECT_EQ(got[i].drafts.drafted_at, first[i].drafted_at) << i;
          EXPECT_EQ(got[i].drafts.accepted_at, first[i].accepted_at) << i;
        }
        EXPECT_GT(got[0].drafts.accepted, 15) << "drafts that nobody accepts prove little";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, Lossless, testing::Values(false, true), [](const auto& test) { return test.param ? "exact" : "fast"; });

TEST(Drafts, ChosenByTimesOrByAnybodyTheTextIsTheSame) {
  std::vector<Request> requests = mixed_requests();
  requests[1].drafts = 0;
  requests[3].drafts = 2;
  const Outcomes plain = run_all(*engine_of({}), requests);
  for (const bool adaptive : {true, false}) {
    const auto engine = engine_of({.most = kDraftsMax, .adaptive = adaptive});
    Generator generator(*engine);
    add_all(generator, requests);
    // Long times without drafts: hidden rows are kept, and shown to the draft layer when there is no more room or drafts are wanted.
    if (!adaptive)
      generator.set_draft_limit(
          [](int32_t number, int64_t generated) { return generated % 37 < 33 - 5 * number ? 0 : static_cast<int32_t>(generated % 6); });
    const Outcomes got = run(generator, requests.size());
    for (size_t i = 0; i < requests.size(); ++i) EXPECT_TRUE(got[i] == plain[i]) << "request " << i;
    EXPECT_EQ(got[1].drafts.windows, 0);
    EXPECT_EQ(got[3].drafts.drafted_at[2], 0);
    DraftCounts sum;
    for (const Outcome& one : got) sum.add(one.drafts);
    EXPECT_EQ(sum.drafted, generator.drafts().drafted);
    EXPECT_EQ(sum.accepted, generator.drafts().accepted);
  }
}

/// A request that was silent for a while leaves the same draft caches as one that never was: its hidden rows came later, and no others.
TEST(Drafts, KeptRowsLeaveTheDraftLayerAsItWouldBe) {
  const auto engine = engine_of({.most = 1});
  std::array<std::vector<std::byte>, 2> latents;
  std::array<DraftCounts, 2> counts;
  std::array<int64_t, 2> calls{};
  for (const size_t silent : {size_t{0}, size_t{1}}) {
    Generator generator(*engine);
    ASSERT_TRUE(generator.add(request(kText, 250)).has_value());
    generator.set_draft_limit([&](int32_t, int64_t generated) { return silent == 1 && generated % 40 < 35 ? 0 : 1; });
    int64_t tokens = 0;
    while (tokens < 210) ASSERT_TRUE(*generator.step([&](const TokenEvent&) { ++tokens; }));
    counts[silent] = generator.drafts();
    calls[silent] = generator.draft_work().calls;
    const cache::Snapshot snapshot = engine->store().snapshot(SequenceId{static_cast<int32_t>(silent)}).value();
    EXPECT_GT(snapshot.draft_length, 190);
    for (const cache::Snapshot::Part& part : snapshot.parts) {
      if (part.layer == engine->info().layers && part.family == "draft.latent") latents[silent] = part.planes[0];
    }
  }
  ASSERT_GT(latents[0].size(), 190u * 100);  // bytes of a row: 128 latents or codes of them
  const size_t bytes = std::min(latents[0].size(), latents[1].size()) / 210 * 190;
  EXPECT_EQ(std::memcmp(latents[0].data(), latents[1].data(), bytes), 0);
  EXPECT_GT(counts[1].windows, 10);
  EXPECT_LT(calls[1], calls[0] / 2);
}

/// Who has not drafted for as long as rows are kept drafts on only if following costs little; here every row of the draft layer costs a ninth of a step's.
TEST(Drafts, LongSilenceEndsDraftingWhereFollowingCostsMuch) {
  const auto engine = engine_of({.most = 2, .context = 620});
  Generator generator(*engine);
  ASSERT_TRUE(generator.add(request(kText, 600)).has_value());
  generator.set_draft_limit([&](int32_t, int64_t generated) { return generated < 10 || generated > 400 ? 2 : 0; });
  engine->draft_experience().times.step_took(1, 1, 1'000'000);
  for (int i = 0; i < 100; ++i) engine->draft_experience().times.draft_took(Drafter::kKeptRows, 256 * 500'000);
  const Outcome got = run(generator, 1)[0];
  EXPECT_LT(got.drafts.windows, 10);
  EXPECT_TRUE(got == run_one(*engine_of({.context = 620}), request(kText, 600)));
}

TEST(Drafts, EndsCutWindowsWhereTheyCutPlainAnswers) {
  const auto plain = engine_of({.context = 60});
  const auto drafted = engine_of({.most = kDraftsMax, .context = 60});
  const auto long_plain = engine_of({});
  const std::vector<TokenId> text = run_one(*long_plain, request(kText, 60)).tokens;
  const auto same = [&](const Request& one, Finish finish) {
    const Outcome want = run_one(*plain, one), got = run_one(*drafted, one);
    EXPECT_EQ(want.finish, finish);
    EXPECT_TRUE(got == want) << finish_name(finish) << " after " << want.tokens.size() << ", with drafts after " << got.tokens.size();
    EXPECT_LE(got.drafts.drafted, static_cast<int64_t>(5 * want.tokens.size()));
  };
  for (int64_t tokens = 1; tokens <= 16; ++tokens) same(request(kText, tokens), Finish::kLength);
  for (size_t at = 3; at < 24; ++at) {
    Request stopped = request(kText, 60);
    stopped.stop_tokens = {text[at]};
    same(stopped, Finish::kStop);
  }
  same(request(kText, 1000), Finish::kContext);
}

TEST(Drafts, WhoCancelsInTheMiddleOfAWindowHearsNothingMore) {
  const auto engine = engine_of({.most = kDraftsMax});
  const Outcomes plain = run_all(*engine_of({}), two_requests(60));
  for (size_t after = 1; after < 20; ++after) {
    Generator generator(*engine);
    add_all(generator, two_requests(60));
    std::array<std::vector<TokenId>, 2> tokens;
    for (bool more = true; more;) {
      const auto step = generator.step([&](const TokenEvent& event) {
        tokens[static_cast<size_t>(event.request)].push_back(event.token);
        if (tokens[0].size() == after) generator.cancel(0);
      });
      ASSERT_TRUE(step.has_value());
      more = *step;
    }
    EXPECT_EQ(tokens[0], std::vector<TokenId>(plain[0].tokens.begin(), plain[0].tokens.begin() + static_cast<ptrdiff_t>(after)));
    EXPECT_EQ(tokens[1], plain[1].tokens);
    EXPECT_EQ(engine->store().free_slots(), engine->store().options().slots);
  }
}

/// Counts of the third token over `seeds` seeds from `first` on.
std::map<TokenId, double> third_tokens(Engine& engine, uint64_t first, uint64_t seeds, double temperature) {
  std::map<TokenId, double> out;
  Generator generator(engine);
  for (uint64_t seed = first; seed < first + seeds; ++seed) EXPECT_TRUE(generator.add(request(kText, 3, temperature, seed)).has_value());
  for (const Outcome& one : run(generator, seeds)) out[one.tokens[2]] += 1;
  return out;
}

/// Two samples of the same size: chi-square over ids that occur ten times, per degree of freedom; near 1 where the distributions are one.
double chi_square(const std::map<TokenId, double>& a, const std::map<TokenId, double>& b) {
  double sum = 0, rest_a = 0, rest_b = 0;
  int cells = 0;
  const auto cell = [&](double x, double y) {
    if (x + y == 0) return;
    sum += (x - y) * (x - y) / (x + y);
    ++cells;
  };
  std::map<TokenId, std::pair<double, double>> joint;
  for (const auto& [id, n] : a) joint[id].first = n;
  for (const auto& [id, n] : b) joint[id].second = n;
  for (const auto& [id, n] : joint) {
    if (n.first + n.second >= 10) {
      cell(n.first, n.second);
    } else {
      rest_a += n.first;
      rest_b += n.second;
    }
  }
  cell(rest_a, rest_b);
  return sum / (cells - 1);
}

/// Other seeds with drafts than without: equality of texts is not what is tested.
TEST(Drafts, SampledTokensKeepTheirDistribution) {
  constexpr uint64_t kSeeds = 1000;
  const auto plain = engine_of({.batch_tokens = 256, .sequences = 32, .context = 64});
  const auto drafted = engine_of({.most = 2, .batch_tokens = 256, .sequences = 32, .context = 64});
  const auto want = third_tokens(*plain, 1, kSeeds, 0.8);
  const auto got = third_tokens(*drafted, 100'001, kSeeds, 0.8);
  EXPECT_LT(chi_square(want, got), 1.7);  // some 30 cells: beyond it in one of some hundred draws
  EXPECT_GT(chi_square(third_tokens(*drafted, 200'001, kSeeds, 0.4), want), 2.5) << "a sharper distribution would not be seen";
}

/// Makes the draft layer propose nonsense, by hidden states that are not those of the text.
class Corruptor final : public backend::OpObserver {
 public:
  explicit Corruptor(int64_t calls) : left_(calls) {}
  void after(backend::OpCall& call, backend::Device& /*device*/) override {
    if (std::string_view(call.site->name) != "draft.hidden_gather" || left_ <= 0) return;
    --left_;
    const View& out = static_cast<const ops::GatherRowsParams*>(call.params)->out;
    for (int64_t i = 0; i < out.dim(0); ++i) {
      for (int64_t j = 0; j < out.dim(1); ++j) out.f32()[i * out.step(0) + j] = static_cast<float>((i * 31 + j * 17 + left_) % 13) - 6;
    }
  }

 private:
  int64_t left_;
};

TEST(Drafts, HealthSignalBeginsAnewOnceAndThenReports) {
  const DraftHealth health{.on = true};
  const Outcome plain = run_one(*engine_of({}), request(kText, 280));
  const auto engine = engine_of({.most = 3, .health = health});
  const Outcome healthy = run_one(*engine, request(kText, 280));
  EXPECT_TRUE(healthy == plain);
  EXPECT_EQ(healthy.restarts, 0);

  const auto corrupted = [&](int64_t calls) {
    Corruptor corruptor(calls);
    engine->dispatch().set_observer(&corruptor);
    Generator generator(*engine);
    EXPECT_TRUE(generator.add(request(kText, 280)).has_value());
    Outcome out = run(generator, 1)[0];
    engine->dispatch().set_observer(nullptr);
    return std::pair(out, generator.error(0));
  };
  const auto [healed, no_error] = corrupted(260);  // about as many calls as the first judgement sees
  EXPECT_EQ(healed.restarts, 1);
  EXPECT_TRUE(healed == plain) << no_error.message;
  const auto [lost, error] = corrupted(INT64_MAX);
  EXPECT_EQ(lost.restarts, 1);
  EXPECT_EQ(lost.finish, Finish::kError);
  EXPECT_EQ(error.code, Code::kDataLoss);
  EXPECT_NE(error.message.find("expected at least 1.4"), std::string::npos) << error.message;
}

/// Gives the draft layer logits without numbers.
class Spoiler final : public backend::OpObserver {
 public:
  void after(backend::OpCall& call, backend::Device& /*device*/) override {
    if (std::string_view(call.site->name) != "draft.logits") return;
    const View& y = static_cast<const ops::MatmulParams*>(call.params)->parts[0].y;
    y.f32()[5] = std::numeric_limits<float>::quiet_NaN();
  }
};

TEST(Drafts, WhatTheDraftLayerBreaksCostsNoText) {
  const Outcomes plain = run_all(*engine_of({}), two_requests(40));
  const auto engine = engine_of({.most = 3});
  Spoiler spoiler;
  engine->dispatch().set_observer(&spoiler);
  const Outcomes got = run_all(*engine, two_requests(40));
  engine->dispatch().set_observer(nullptr);
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(got[i] == plain[i]) << i;
}

TEST(Drafts, ModelsWithoutDraftLayerGoWithoutOrSaySo) {
  EngineOptions options;
  options.model = std::string(LATHE_SOURCE_DIR) + "/data/builtin";
  options.draft = options.vision = false;
  options.context_tokens = 64;
  options.drafts = {.most = 3, .adaptive = true, .health = {}};
  const auto without = Engine::create(options);
  ASSERT_TRUE(without.has_value()) << without.error().message;
  EXPECT_EQ((*without)->store().options().tentative_max, 0);
  EXPECT_EQ((*without)->options().drafts.most, 0);
  options.drafts.adaptive = false;
  const auto refused = Engine::create(options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("no draft layer"), std::string::npos) << refused.error().message;
  options.drafts.most = 6;
  EXPECT_FALSE(Engine::create(options).has_value());
}

TEST(Drafts, SteadyDraftingAllocatesNothing) {
#ifdef LATHE_DCHECKS
  GTEST_SKIP() << "this build validates every call, and messages allocate";
#endif
  for (const bool adaptive : {false, true}) {
    const auto engine = engine_of({.most = 3, .adaptive = adaptive});
    Generator generator(*engine);
    for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(generator.add(request(i == 1 ? kChat : kText, 290, i == 0 ? 0 : 0.8, i)).has_value());
    generator.set_draft_limit([](int32_t, int64_t generated) {
      return generated < 100 ? static_cast<int32_t>(generated % 4) : generated % 90 < 50 ? 0 : 3;
    });
    SCOPED_TRACE(adaptive ? "adaptive" : "fixed");
    expect_steady(generator, 3 * 100, 3 * 100);
  }
}

}  // namespace
}  // namespace lathe::engine
