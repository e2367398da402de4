#include "models/glm5_next_totals.h"

#include <gtest/gtest.h>

#include "models/glm5_next_test_config.h"

namespace lathe::models {
namespace {

using config::Json;

Glm5NextConfig release(bool fp8 = true) {
  Json json = release_config();
  if (!fp8) erase(json, "quantization_config");
  return parse_glm5_next_config(json)->config;
}

int64_t parameters(const KindTotals& kinds, std::initializer_list<TensorKind> wanted) {
  int64_t total = 0;
  for (const TensorKind kind : wanted) total += at(kinds, kind).parameters;
  return total;
}
int64_t bytes(const KindTotals& kinds, std::initializer_list<TensorKind> wanted) {
  int64_t total = 0;
  for (const TensorKind kind : wanted) total += at(kinds, kind).bytes;
  return total;
}

TEST(Glm5NextTotals, Fp8ReleaseExactly) {
  const Glm5NextTotals totals = totals_from_config(release());
  EXPECT_EQ(totals.all().parameters, 321'323'031'390);
  EXPECT_EQ(totals.all().bytes, 328'326'771'576);
  EXPECT_EQ(totals.all().tensors, 76'108);
  EXPECT_EQ(totals.all().fp8_matrices, 37'338);
  EXPECT_EQ(sum(totals.vision).tensors, 347);
  EXPECT_EQ(sum(totals.text).parameters, 313'326'811'966);
  EXPECT_EQ(sum(totals.draft).parameters, 7'432'592'416);
  EXPECT_EQ(sum(totals.draft).fp8_matrices, 871);
  EXPECT_EQ(sum(totals.vision).parameters, 563'627'008);
  EXPECT_EQ(sum(totals.vision).bytes, 1'127'254'016);
}

TEST(Glm5NextTotals, Bf16ReleaseExactly) {
  const Glm5NextTotals totals = totals_from_config(release(false));
  EXPECT_EQ(totals.all().parameters, 321'323'031'390);
  EXPECT_EQ(totals.all().bytes, 642'646'653'816);
  EXPECT_EQ(totals.all().tensors, 38'770);
  EXPECT_EQ(totals.all().fp8_matrices, 0);
}

TEST(Glm5NextTotals, Blocks) {
  const Glm5NextTotals totals = totals_from_config(release());
  const KindTotals& kda_moe = totals.layers[4];
  const KindTotals& dsa_moe = totals.layers[3];
  const KindTotals& kda_dense = totals.layers[0];
  EXPECT_EQ(parameters(kda_moe, {TensorKind::kKda}), 137'732'288);
  EXPECT_EQ(bytes(kda_moe, {TensorKind::kKda}), 275'481'088);
  EXPECT_EQ(parameters(dsa_moe, {TensorKind::kDsa}), 117'442'560);
  EXPECT_EQ(bytes(dsa_moe, {TensorKind::kDsa}), 134'246'400);
  EXPECT_EQ(parameters(dsa_moe, {TensorKind::kIndexer}), 7'471'872);
  EXPECT_EQ(bytes(dsa_moe, {TensorKind::kIndexer}), 14'943'744);
  EXPECT_EQ(parameters(dsa_moe, {TensorKind::kMhc}), 786'486);
  EXPECT_EQ(bytes(dsa_moe, {TensorKind::kMhc}), 1'573'080);
  EXPECT_EQ(parameters(kda_dense, {TensorKind::kDense}), 150'994'944);
  EXPECT_EQ(bytes(kda_dense, {TensorKind::kDense}), 151'031'808);
  EXPECT_EQ(parameters(kda_moe, {TensorKind::kShared}), 25'165'824);
  EXPECT_EQ(bytes(kda_moe, {TensorKind::kShared}), 25'171'968);
  EXPECT_EQ(bytes(kda_moe, {TensorKind::kExpert}), 288 * 25'171'968LL);
  EXPECT_EQ(parameters(kda_moe, {TensorKind::kShared, TensorKind::kExpert, TensorKind::kRouter}), 7'274'103'072);
  EXPECT_EQ(bytes(kda_moe, {TensorKind::kShared, TensorKind::kExpert, TensorKind::kRouter}), 7'277'059'200);
  EXPECT_EQ(totals.kind(TensorKind::kEmbedding).bytes, 1'268'776'960);
  EXPECT_EQ(totals.kind(TensorKind::kHead).parameters, 634'388'480);
  EXPECT_EQ(totals.layers.size(), 46u);
}

TEST(Glm5NextTotals, ExclusionsOnlyTakeMatricesOut) {
  const auto fp8_with = [](std::initializer_list<const char*> modules) {
    Json json = release_config();
    Json::Array list;
    for (const char* module : modules) list.emplace_back(module);
    section(json, "quantization_config").set("modules_to_not_convert", std::move(list));
    return totals_from_config(parse_glm5_next_config(json)->config).all().fp8_matrices;
  };
  constexpr int64_t kAll = 37'338;
  EXPECT_EQ(fp8_with({}), kAll);
  EXPECT_EQ(fp8_with({"lm_head", "model.embed_tokens", "model.visual"}), kAll);
  EXPECT_EQ(fp8_with({"model.layers.0.mlp.gate_proj"}), kAll - 1);
  EXPECT_EQ(fp8_with({"model.language_model.layers.0.mlp.gate_proj"}), kAll - 1);
  EXPECT_EQ(fp8_with({"model.layers.0.mlp.gate_proj", "model.language_model.layers.0.mlp.gate_proj"}), kAll - 1);
  EXPECT_EQ(fp8_with({"model.layers.0.mlp"}), kAll - 3);
  EXPECT_EQ(fp8_with({"model.layers.4"}), kAll - 867);
  EXPECT_EQ(fp8_with({"model.layers.0.mlp.gate"}), kAll);  // a module's name, not the start of one
}

TEST(Glm5NextTotals, FlopsOfTheSpec) {
  const Glm5NextConfig c = release();
  const auto row = [&](std::string_view part, const FlopPoint& point) {
    for (const FlopRow& r : flop_rows(c, point)) {
      if (r.part == part) return r.per_layer;
    }
    ADD_FAILURE() << part;
    return 0.0;
  };
  const FlopPoint zero = {.context = 1};
  EXPECT_NEAR(row("KDA projections", zero), 275.25e6, 0.005e6);
  EXPECT_NEAR(row("KDA conv", zero), 0.20e6, 0.005e6);
  EXPECT_NEAR(row("KDA recurrence", zero), 7.34e6, 0.005e6);
  EXPECT_NEAR(row("KDA chunks", {.context = 1, .prefill = true}), 11.7e6, 0.05e6);
  EXPECT_NEAR(row("DSA projections", zero), 201.3e6, 0.05e6);
  EXPECT_NEAR(row("MLA absorption", zero), 33.55e6, 0.005e6);
  EXPECT_NEAR(row("MLA expansion", {.context = 1, .expanded = true}), 33.55e6, 0.005e6);
  EXPECT_NEAR(row("indexer projections", zero), 14.94e6, 0.005e6);
  EXPECT_EQ(row("index score", {.context = 4}), 8256);
  EXPECT_EQ(row("attention", {.context = 1}), 131072);
  EXPECT_EQ(row("attention", {.context = 1, .expanded = true}), 65536);
  EXPECT_NEAR(row("attention", {.context = 1 << 20}), 268.8e6, 0.05e6);
  EXPECT_NEAR(row("mHC", zero), 1.57e6, 0.005e6);
  EXPECT_NEAR(row("mHC mixing", zero), 0.4e6, 0.05e6);
  EXPECT_NEAR(row("dense MLP", zero), 302.0e6, 0.05e6);
  EXPECT_NEAR(row("MoE", zero), 455.3e6, 0.05e6);
  EXPECT_NEAR(row("head", zero), 1268.8e6, 0.05e6);
  const double base = flops_without_head(flop_rows(c, {.context = 0}));
  EXPECT_NEAR(base, 32.46e9, 0.005e9);
  EXPECT_NEAR(base + row("head", zero), 33.73e9, 0.005e9);
  const std::pair<int64_t, double> extra[] = {{2048, 3.0e9}, {32768, 3.7e9}, {131072, 5.9e9}, {1 << 20, 26.8e9}};
  for (const auto& [context, flops] : extra) EXPECT_NEAR(flops_without_head(flop_rows(c, {.context = context})) - base, flops, 0.05e9) << context;
}

TEST(Glm5NextTotals, PrefillIsTheMeanOverItsTokens) {
  const Glm5NextConfig c = release();
  for (const int64_t tokens : {1, 5, 2050, 2051, 2055, 9001}) {
    const auto dynamic = [&](const FlopPoint& point) {
      double sum = 0;
      for (const FlopRow& row : flop_rows(c, point)) {
        if (row.part == "attention" || row.part == "index score") sum += row.per_layer;
      }
      return sum;
    };
    double sum = 0;
    for (int64_t t = 1; t <= tokens; ++t) sum += dynamic({.context = t});
    const double mean = sum / static_cast<double>(tokens);
    EXPECT_NEAR(dynamic({.context = tokens, .prefill = true}), mean, mean * 1e-12) << tokens;
  }
}

TEST(Glm5NextTotals, LayersAddUp) {
  const Glm5NextConfig c = release();
  const auto rows = flop_rows(c, {.context = 5000});
  double sum = 0;
  double mixing = 0;
  for (int64_t layer = 0; layer < c.layers; ++layer) sum += flops_of_layer(c, rows, layer);
  for (const FlopRow& row : rows) mixing += row.part == "mHC mixing" ? row.per_layer * static_cast<double>(row.layers) : 0;
  EXPECT_NEAR(sum - mixing, flops_without_head(rows), 1.0);
  EXPECT_GT(flops_of_layer(c, rows, c.layers), 2 * 4096.0 * 8192 + 455.3e6);
}

TEST(Glm5NextTotals, StepBytesOfTheSpec) {
  const Glm5NextConfig c = release();
  const Glm5NextTotals totals = totals_from_config(c);
  const std::pair<int64_t, double> experts[] = {{1, 8}, {8, 58}, {32, 171}, {64, 240.5}, {128, 280}, {256, 288}};
  for (const auto& [batch, count] : experts) EXPECT_NEAR(distinct_experts(c.moe, batch), count, 0.51) << batch;
  const std::pair<int64_t, double> weights[] = {{1, 22.41e9}, {8, 75.4e9}, {32, 194.8e9}, {64, 268.3e9}, {128, 310.2e9}, {256, 318.2e9}};
  for (const auto& [batch, expected] : weights) {
    EXPECT_NEAR(decode_step_bytes(c, totals, {.batch = batch}).weights(), expected, 0.051e9) << batch;
  }
  EXPECT_NEAR(decode_step_bytes(c, totals, {}).fixed_weights, 13.957e9, 0.0005e9);
  EXPECT_NEAR(decode_step_bytes(c, totals, {}).expert_weights / 8, 1.0572e9, 0.00005e9);
  EXPECT_NEAR(decode_step_bytes(c, totals_from_config(release(false)), {}).weights(), 33.48e9, 0.0055e9);
  EXPECT_NEAR(draft_step_weight_bytes(c, totals, 1), 1.714e9, 0.0005e9);
  const DecodeBytes bytes = decode_bytes(c, totals);
  for (const int64_t batch : {1, 8, 64}) {
    const StepBytes step = decode_step_bytes(c, totals, {.batch = batch, .context = 4096});
    const auto rows = static_cast<double>(batch);
    EXPECT_NEAR(bytes.step(rows, rows) / (step.total() - step.attention), 1, 1e-12) << batch;
    EXPECT_NEAR(bytes.draft(rows) / draft_step_weight_bytes(c, totals, batch), 1, 1e-12) << batch;
  }
  constexpr double kMiB = 1 << 20;
  EXPECT_EQ(decode_step_bytes(c, totals, {}).kda_state, 272 * kMiB);
  EXPECT_NEAR(decode_step_bytes(c, totals, {.batch = 3}).conv, 3 * 9.56 * kMiB, 0.02 * kMiB);
  const CacheFormats fp8 = {.latent = DType::kF8E4M3, .index = DType::kF8E4M3, .conv = DType::kBF16};
  const std::tuple<int64_t, double, double> reads[] = {
      {2048, 24.5e6, 12.6e6}, {32768, 46.2e6, 23.8e6}, {131072, 115.4e6, 59.5e6}, {1 << 20, 761e6, 392.5e6}};
  for (const auto& [context, bf16_bytes, fp8_bytes] : reads) {
    EXPECT_NEAR(decode_step_bytes(c, totals, {.context = context}).attention, bf16_bytes, bf16_bytes * 0.002) << context;
    EXPECT_NEAR(decode_step_bytes(c, totals, {.context = context, .formats = fp8}).attention, fp8_bytes, 0.051e6) << context;
  }
}

TEST(Glm5NextTotals, PrefillBytesOfATokenAreSharesOfChunks) {
  const Glm5NextConfig c = release();
  const Glm5NextTotals totals = totals_from_config(c);
  constexpr double kTokens = 2048;
  constexpr double kMiB = 1 << 20;
  const PrefillBytes whole = prefill_token_bytes(c, totals, {.context = 2048, .chunk = 2048});
  EXPECT_NEAR((whole.fixed_weights + whole.head) * kTokens, 13.957e9, 0.0005e9) << "every weight once";
  EXPECT_EQ(whole.head * kTokens, 1'268'776'960);
  EXPECT_NEAR(whole.expert_weights * kTokens, 1.0572e9 * 288, 0.02e9) << "as many tokens touch all experts";
  EXPECT_EQ(whole.kda_state * kTokens, 272 * kMiB);
  EXPECT_EQ(whole.written, 11'968);
  EXPECT_EQ(whole.attention, 11'968) << "each latent and index key once";
  const PrefillBytes quarters = prefill_token_bytes(c, totals, {.context = 2048, .chunk = 512});
  EXPECT_EQ(quarters.fixed_weights, 4 * whole.fixed_weights);
  EXPECT_EQ(quarters.head, whole.head);
  EXPECT_EQ(quarters.kda_state, 4 * whole.kda_state);
  EXPECT_EQ(quarters.attention, 11'968 * (0.25 + 0.5 + 0.75 + 1));
  EXPECT_EQ(quarters.written, whole.written);
  EXPECT_LT(quarters.expert_weights, 4 * whole.expert_weights + 1);
  // Far out, a token alone reads what it selects; many of them, everything.
  const double alone = prefill_token_bytes(c, totals, {.context = 1 << 15, .chunk = 1}).attention;
  EXPECT_LT(alone, 11 * (1024.0 * 2051 + 256.0 * 8192));
  EXPECT_GT(alone, 11 * (1024.0 * 1900 + 256.0 * 4000));
  // One token: a decode step and the token's own rows.
  const PrefillBytes one = prefill_token_bytes(c, totals, {.context = 1, .chunk = 512});
  EXPECT_NEAR(one.total(), decode_step_bytes(c, totals, {}).total() + 11 * 1024, 1.0);
}

TEST(Glm5NextTotals, OnlyThePromptsLastTokenNeedsTheHead) {
  const Glm5NextConfig c = release();
  const auto head = [&](const FlopPoint& point) { return flop_rows(c, point).back().per_layer; };
  EXPECT_EQ(head({.context = 1000, .prefill = true}) * 1000, head({.context = 1000}));
}

TEST(Glm5NextTotals, CachesOfTheSpec) {
  const Glm5NextConfig c = release();
  constexpr int64_t kContext = 1 << 20;
  const auto per_token = [&](const CacheFormats& formats) {
    const CacheBytes bytes = cache_bytes(c, kContext, formats);
    return (bytes.latent + bytes.index) / kContext;
  };
  const auto draft_per_token = [&](const CacheFormats& formats) {
    const CacheBytes bytes = draft_cache_bytes(c, kContext, formats);
    return (bytes.latent + bytes.index) / kContext;
  };
  const CacheFormats fp8 = {.latent = DType::kF8E4M3, .index = DType::kF8E4M3, .conv = DType::kBF16};
  const CacheFormats mixed = {.latent = DType::kBF16, .index = DType::kF8E4M3, .conv = DType::kBF16};
  EXPECT_EQ(per_token(kPlainCaches), 11'968);
  EXPECT_EQ(per_token(fp8), 6'171);
  EXPECT_EQ(per_token(mixed), 11'627);
  EXPECT_EQ(per_token(kPlainCaches) + draft_per_token(kPlainCaches), 13'056);
  EXPECT_EQ(per_token(fp8) + draft_per_token(fp8), 6'732);
  EXPECT_EQ(per_token(mixed) + draft_per_token(mixed), 12'684);
  const CacheBytes fixed = cache_bytes(c, 0);
  EXPECT_EQ(fixed.kda_state, 34 * (4LL << 20));
  EXPECT_EQ(fixed.conv, 34 * 147'456);
  EXPECT_EQ(fixed.tail, 11 * 2'048);
  EXPECT_EQ(fixed.latent + fixed.index, 0);
  const auto states = [&](DType dtype) { return cache_bytes(c, 0, {.state = dtype}).kda_state; };
  EXPECT_EQ(states(DType::kF16), fixed.kda_state / 2);
  EXPECT_EQ(states(DType::kI8), 34 * 64 * 16'896);  // a head of 128 x 128 with its scales
}

TEST(Glm5NextTotals, VisionFlops) {
  EXPECT_NEAR(vision_flops(*release().vision, 1, 32, 32), 0.825e12 + 0.103e12 + 0.082e12 + 1024 * 2.4e6, 0.002e12);
}

}  // namespace
}  // namespace lathe::models
