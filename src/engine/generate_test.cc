// Goal: what happens to one request leaves the others as they are, a step without its memory ends with an error, and steady decoding allocates nothing.
#include "engine/generate.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "engine/test_engine.h"
#include "ops/basic.h"

namespace lathe::engine {
namespace {

EngineOptions builtin() { return builtin_options(320); }

Request request(TokenId first, int64_t tokens) {
  Request out;
  for (TokenId i = 0; i < 20; ++i) out.prompt.push_back(300 + 7 * first + i);
  out.sampling.temperature = first % 2 == 0 ? 0 : 0.8;
  out.sampling.seed = static_cast<uint64_t>(first);
  out.max_tokens = tokens;
  return out;
}

struct Outcome {
  std::vector<TokenId> tokens;
  Finish finish = Finish::kNone;
};

/// All steps until nothing is left to do.
std::map<int32_t, Outcome> run(Generator& generator) {
  std::map<int32_t, Outcome> out;
  for (;;) {
    const Result<bool> more = generator.step([&](const TokenEvent& event) {
      if (event.finish != Finish::kError) out[event.request].tokens.push_back(event.token);
      out[event.request].finish = event.finish;
    });
    EXPECT_TRUE(more.has_value()) << (more ? "" : more.error().message);
    if (!more || !*more) return out;
  }
}

std::map<int32_t, Outcome> run_three(Engine& engine) {
  Generator generator(engine);
  for (TokenId i = 0; i < 3; ++i) EXPECT_EQ(*generator.add(request(i, 12)), i);
  return run(generator);
}

/// Once all three requests decode, the logits of the second one turn into NaN, once.
class Spoiler final : public backend::OpObserver {
 public:
  void after(backend::OpCall& call, backend::Device& /*device*/) override {
    if (std::string_view(call.site->name) != "head.logits") return;
    const View& y = static_cast<const ops::MatmulParams*>(call.params)->parts[0].y;
    if (y.dim(0) != 3 || ++steps_ != 4) return;
    y.f32()[y.step(0) + 5] = std::numeric_limits<float>::quiet_NaN();
  }
  int steps() const { return steps_; }

 private:
  int steps_ = 0;
};

TEST(Generator, ErrorOfARequestEndsThatRequestAlone) {
  const auto engine = engine_of(builtin());
  const auto want = run_three(*engine);
  for (const auto& [number, outcome] : want) EXPECT_EQ(outcome.finish, Finish::kLength) << number;
  Generator generator(*engine);
  for (TokenId i = 0; i < 3; ++i) ASSERT_TRUE(generator.add(request(i, 12)).has_value());
  const int32_t waiting = *generator.add(request(0, 12));  // gets the place of the one that ends early
  Spoiler spoiler;
  engine->dispatch().set_observer(&spoiler);
  const auto got = run(generator);
  engine->dispatch().set_observer(nullptr);
  ASSERT_GE(spoiler.steps(), 4);
  EXPECT_EQ(got.at(1).finish, Finish::kError);
  EXPECT_EQ(generator.error(1).code, Code::kDataLoss) << generator.error(1).message;
  ASSERT_LT(got.at(1).tokens.size(), want.at(1).tokens.size());
  EXPECT_TRUE(std::equal(got.at(1).tokens.begin(), got.at(1).tokens.end(), want.at(1).tokens.begin()));
  for (const int32_t other : {0, 2}) {
    EXPECT_EQ(got.at(other).finish, Finish::kLength);
    EXPECT_EQ(got.at(other).tokens, want.at(other).tokens) << other;
  }
  EXPECT_EQ(got.at(waiting).tokens, want.at(0).tokens);
  EXPECT_EQ(engine->store().free_blocks(), engine->store().options().blocks);
}

TEST(Generator, BadRequestsAreRefusedAndTheOthersGoOn) {
  const auto engine = engine_of(builtin());
  const auto want = run_three(*engine);
  Generator generator(*engine);
  for (TokenId i = 0; i < 3; ++i) ASSERT_TRUE(generator.add(request(i, 12)).has_value());
  ASSERT_TRUE(*generator.step([](const TokenEvent&) {}));
  Request bad = request(1, 12);
  bad.prompt.push_back(static_cast<TokenId>(engine->info().vocabulary));
  EXPECT_FALSE(generator.add(std::move(bad)).has_value());
  bad = request(1, 12);
  bad.prompt.assign(320, 5);
  EXPECT_FALSE(generator.add(std::move(bad)).has_value());
  const auto got = run(generator);
  for (const int32_t number : {0, 1, 2}) EXPECT_EQ(got.at(number).tokens, want.at(number).tokens) << number;
}

TEST(Generator, StepWithoutScratchEndsWithAnErrorAndTheNextOneRuns) {
  EngineOptions options = builtin();
  options.cpu.scratch_max = 1 << 12;
  const auto engine = engine_of(options);
  Generator generator(*engine);
  const int32_t number = *generator.add(request(0, 4));
  const Result<bool> step = generator.step([](const TokenEvent&) { FAIL() << "a token of a step that failed"; });
  ASSERT_FALSE(step.has_value());
  EXPECT_EQ(step.error().code, Code::kResourceExhausted);
  EXPECT_NE(step.error().message.find("bytes of scratch"), std::string::npos) << step.error().message;
  EXPECT_FALSE(*generator.step([](const TokenEvent&) {})) << "request " << number << " did not end";
  EXPECT_EQ(engine->store().free_blocks(), engine->store().options().blocks);
}

/// Contexts grow over several cache blocks, tokens are drawn with and without temperature.
TEST(Generator, SteadyDecodeAllocatesNothing) {
#ifdef LATHE_DCHECKS
  GTEST_SKIP() << "this build validates every call, and messages allocate";
#endif
  const auto engine = engine_of(builtin());
  Generator generator(*engine);
  for (TokenId i = 0; i < 3; ++i) ASSERT_TRUE(generator.add(request(i, 250)).has_value());
  EXPECT_EQ(expect_steady(generator, 12, 600), 200);
}

}  // namespace
}  // namespace lathe::engine
