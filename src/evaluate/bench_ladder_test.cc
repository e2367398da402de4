// Goal: a ladder measures every rung as often, counts bytes and memory as the store does, and judges accuracy by the first rung.

#include "evaluate/bench_ladder.h"

#include <gtest/gtest.h>

namespace lathe::evaluate {
namespace {

LadderRung rung(const char* name, const models::CacheFormats& caches) {
  engine::EngineOptions engine{.model = LATHE_SOURCE_DIR "/data/builtin", .cpu = {.threads = 1, .isa = ""}, .kernels = {}};
  engine.caches = caches;
  return {.name = name, .settings = models::cache_formats_text(caches), .engine = engine};
}

constexpr models::CacheFormats kHalfStates = {.state = DType::kF16};

LadderOptions small() {
  return {.rungs = {rung("wide", models::kFastCaches), rung("half states", kHalfStates)},
          .bench = {.prompts = {24}, .batches = {1, 3}, .decode_context = 8},
          .rounds = 2,
          .memory_bytes = int64_t{1} << 30};
}

EvalSets one_row() {
  HeldoutRow row{.ids = {}, .place = "row"};
  for (TokenId id = 0; id < 40; ++id) row.ids.push_back(100 + id * 3);
  return {.tasks = {}, .heldout = {row}, .drafts = {}, .bytes_per_token = 3.5, .stop_tokens = {}, .index_file = ""};
}

const auto kProgress = [](const std::string&, int64_t, int64_t) {};

TEST(Ladder, EveryRungIsMeasuredAndCounted) {
  const auto bench = bench_ladder(small(), one_row(), kProgress);
  ASSERT_TRUE(bench.has_value()) << bench.error().message;
  ASSERT_EQ(bench->rows.size(), 2u);
  for (const LadderRow& row : bench->rows) {
    ASSERT_EQ(row.figures.size(), 3u);
    for (const LadderFigure& figure : row.figures) {
      EXPECT_EQ(figure.rates.size(), 2u);
      EXPECT_GT(figure.rates.front(), 0);
      EXPECT_GT(figure.token_bytes, 0);
    }
    EXPECT_LE(row.largest_batch * row.sequence_bytes + row.weight_bytes, int64_t{1} << 30);
    EXPECT_GT(row.largest_batch, 100);
  }
  const LadderRow &wide = bench->rows[0], &half = bench->rows[1];
  // 6 layers of 4 heads of 128 x 128: 2 bytes of each value less to keep, and 4 less to move in a step.
  constexpr int64_t kValues = 6 * 4 * 128 * 128;
  EXPECT_EQ(wide.sequence_bytes - half.sequence_bytes, 2 * kValues);
  EXPECT_EQ(wide.figures[1].token_bytes - half.figures[1].token_bytes, 4.0 * kValues);
  EXPECT_GT(half.largest_batch, wide.largest_batch);
  EXPECT_FALSE(wide.accuracy.has_value());
  ASSERT_TRUE(half.accuracy.has_value());
  EXPECT_EQ(half.accuracy->tokens, 39);
  EXPECT_GT(half.accuracy->kl.value, 0);
  EXPECT_LT(half.accuracy->kl.value, 1e-2);
  const std::string page = ladder_page(small(), *bench);
  for (const char* words : {"half states", "prefill 24", "decode 3", "(", "state=fp16"}) EXPECT_NE(page.find(words), std::string::npos) << words;
  const config::Json json = ladder_json(small(), *bench);
  EXPECT_EQ(json.find("rungs")->as_array().size(), 2u);
  EXPECT_EQ(json.find("rungs")->as_array()[1].find("figures")->as_array()[2].find("name")->as_string(), "decode 3");
}

TEST(Ladder, WhatFitsBesideWhatIsFixed) {
  EXPECT_EQ(largest_batch(1000, 400, 100), 6);
  EXPECT_EQ(largest_batch(1000, 400, 601), 0);
  EXPECT_EQ(largest_batch(300, 400, 10), 0);
}

TEST(Ladder, AWrongRungIsToldBeforeAnythingIsMeasured) {
  LadderOptions options = small();
  options.rungs[1].engine.model = "/nowhere/model";
  auto bench = bench_ladder(options, {}, kProgress);
  ASSERT_FALSE(bench.has_value());
  EXPECT_NE(bench.error().message.find("rung 'half states'"), std::string::npos) << bench.error().message;
  options = small(), options.rounds = 1;
  EXPECT_EQ(bench_ladder(options, {}, kProgress).error().message, "1 rounds: expected 2 to 1000");
  options = small(), options.rungs.clear();
  EXPECT_EQ(bench_ladder(options, {}, kProgress).error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace lathe::evaluate
