// Goal: with states kept by replay a request's text is its own: alone, beside others, in whatever slot; and steady decoding allocates nothing.

#include <gtest/gtest.h>

#include <map>

#include "engine/test_engine.h"

namespace lathe::engine {
namespace {

std::unique_ptr<Engine> replaying(DType state) {
  EngineOptions options = builtin_options(192);
  options.caches = models::kFastCaches;
  options.caches->state = state;
  options.caches->keeping = models::StateKeeping::kReplay;
  return engine_of(options);
}

Request request(TokenId which, int64_t tokens) {
  Request out;
  for (TokenId i = 0; i < 11 + 5 * which; ++i) out.prompt.push_back(300 + 7 * which + i);
  out.sampling.temperature = which % 2 == 0 ? 0 : 1;
  out.sampling.seed = static_cast<uint64_t>(which);
  out.max_tokens = tokens;
  return out;
}

std::map<int32_t, std::vector<TokenId>> run(Generator& generator) {
  std::map<int32_t, std::vector<TokenId>> out;
  while (*generator.step([&](const TokenEvent& event) { out[event.request].push_back(event.token); })) {
  }
  return out;
}

TEST(GeneratorByReplay, AloneAsBesideOthersAndInAnySlot) {
  for (const DType state : {DType::kF32, DType::kF16}) {
    const auto engine = replaying(state);
    std::vector<std::vector<TokenId>> alone;
    for (TokenId i = 0; i < 5; ++i) {
      Generator generator(*engine);
      ASSERT_TRUE(generator.add(request(i, 24)).has_value());
      alone.push_back(run(generator).at(0));
    }
    // Five requests share three slots: two begin where others ended. Then the other way round.
    Generator forward(*engine), backward(*engine);
    for (TokenId i = 0; i < 5; ++i) ASSERT_TRUE(forward.add(request(i, 24)).has_value());
    for (const auto& [number, tokens] : run(forward)) EXPECT_EQ(tokens, alone[static_cast<size_t>(number)]) << number;
    for (TokenId i = 5; i-- > 0;) ASSERT_TRUE(backward.add(request(i, 24)).has_value());
    for (const auto& [number, tokens] : run(backward)) EXPECT_EQ(tokens, alone[static_cast<size_t>(4 - number)]) << number;
  }
}

TEST(GeneratorByReplay, SteadyDecodeAllocatesNothing) {
#ifdef LATHE_DCHECKS
  GTEST_SKIP() << "this build validates every call, and messages allocate";
#endif
  const auto engine = replaying(DType::kF16);
  Generator generator(*engine);
  for (TokenId i = 0; i < 3; ++i) ASSERT_TRUE(generator.add(request(i, 140)).has_value());
  EXPECT_EQ(expect_steady(generator, 60, 300), 100);  // prompts, and a flush of each, come before
}

}  // namespace
}  // namespace lathe::engine
