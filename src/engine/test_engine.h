#pragma once
// What the tests of generation share: an engine with the built-in model, and the check that steady decoding takes no memory.

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "backend/allocations.h"
#include "engine/generate.h"

namespace lathe::engine {

/// Two threads, three sequences, prompts in pieces of 16 tokens; without draft layer and pictures.
inline EngineOptions builtin_options(int64_t context_tokens) {
  EngineOptions options;
  options.model = std::string(LATHE_SOURCE_DIR) + "/data/builtin";
  options.cpu.threads = 2;
  options.context_tokens = context_tokens;
  options.sequences = 3;
  options.batch_tokens = 16;
  options.draft = options.vision = false;
  return options;
}

inline std::unique_ptr<Engine> engine_of(const EngineOptions& options) {
  auto engine = Engine::create(options);
  EXPECT_TRUE(engine.has_value()) << (engine ? "" : engine.error().message);
  return std::move(*engine);
}

/// Steps until `settled` tokens have come, with the sizes of buffers, then until `more` have: those take no memory. Returns how many steps they took.
inline int64_t expect_steady(Generator& generator, int64_t settled, int64_t more) {
  int64_t tokens = 0;
  const auto until = [&](int64_t wanted) {
    while (tokens < wanted) {
      const Result<bool> stepped = generator.step([&](const TokenEvent& event) { tokens += event.token >= 0 ? 1 : 0; });
      ASSERT_TRUE(stepped.has_value() && *stepped) << tokens << " tokens";
    }
  };
  until(settled);
  const int64_t before = backend::allocation_count(), steps = generator.steps();
  until(tokens + more);
  EXPECT_EQ(backend::allocation_count(), before);
  return generator.steps() - steps;
}

}  // namespace lathe::engine
