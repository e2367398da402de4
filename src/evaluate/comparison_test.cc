// Two models over the same rows: nothing differs where nothing can, what differs is found, and the gate sees a loss.
#include "evaluate/comparison.h"

#include <gtest/gtest.h>

#include <cmath>

#include "evaluate/comparison_report.h"
#include "evaluate/text_logits.h"

namespace lathe::evaluate {
namespace {

constexpr const char* kModel = LATHE_SOURCE_DIR "/data/builtin";

std::unique_ptr<engine::Engine> make_engine(models::Precision precision, int64_t batch_tokens = 300) {
  engine::EngineOptions options{.model = kModel,
                                .precision = precision,
                                .cpu = {.threads = 1, .isa = ""},
                                .kernels = {},
                                .context_tokens = 1200,
                                .sequences = 8,
                                .batch_tokens = batch_tokens,
                                .sampled_vocabulary = 3580};
  return engine::Engine::create(options).value();
}

const EvalSets& few_rows() {
  static const EvalSets kSets = read_eval_sets(LATHE_SOURCE_DIR "/data/eval/sets",
                                               {.names = {"add_2_digits", "recall_512", "heldout"}, .every = 20, .rows_max = 4, .heldout_max = 2})
                                    .value();
  return kSets;
}

ModelComparison compare(engine::Engine& here, engine::Engine& there, const EvalSets& sets) {
  const media::PreprocessConfig preprocess = media::read_preprocess_config(kModel).value();
  auto result = run_comparison({here, preprocess}, {there, preprocess}, sets, [](const std::string&, int64_t, int64_t) {});
  EXPECT_TRUE(result.has_value()) << result.error().message;
  return std::move(*result);
}

SetScore score(const std::string& rows) {
  SetScore out{.right = 0, .numbers = {}, .rows = rows};
  for (size_t i = 0; i < rows.size(); ++i) out.numbers.push_back(static_cast<int64_t>(i));
  return out;
}

TEST(Comparison, AModelAgainstItselfDiffersInNothing) {
  const auto here = make_engine(models::Precision::kFast);
  const auto there = make_engine(models::Precision::kFast);
  const ModelComparison same = compare(*here, *there, few_rows());
  EXPECT_EQ(same.heldout.rows, 2);
  EXPECT_EQ(same.heldout.tokens, 2046);
  EXPECT_EQ(same.heldout.kl.value, 0);
  EXPECT_EQ(same.heldout.worst.kl, 0);
  EXPECT_EQ(same.heldout.agreement.value, 1);
  EXPECT_EQ(same.heldout.difference.value, 0);
  EXPECT_EQ(same.heldout.here.nll_nats, same.heldout.there.nll_nats);
  ASSERT_EQ(same.sets.size(), 2u);
  for (const auto& [name, rows] : same.sets) EXPECT_EQ(rows.here_only + rows.there_only, 0) << name;
  for (const GateCheck& check : check_gate(same, {})) EXPECT_TRUE(check.passed()) << gate_sentence(check);
}

TEST(Comparison, SidesWithStepsOfDifferentSizesAreComparedPositionByPosition) {
  const auto large = make_engine(models::Precision::kFast, 300);
  const auto small = make_engine(models::Precision::kFast, 37);
  EvalSets sets = few_rows();
  sets.tasks.clear();
  sets.heldout.resize(1);
  for (const auto& [here, there] : {std::pair(large.get(), small.get()), std::pair(small.get(), large.get())}) {
    const HeldoutComparison same = compare(*here, *there, sets).heldout;
    EXPECT_EQ(same.kl.value, 0);
    EXPECT_EQ(same.agreement.value, 1);
    EXPECT_EQ(same.here.nll_nats, same.there.nll_nats);
  }
}

TEST(Comparison, FastModeIsNearTheExactOneAndNotTheSame) {
  const auto here = make_engine(models::Precision::kFast);
  const auto there = make_engine(models::Precision::kExact);
  EvalSets sets = few_rows();
  sets.tasks.clear();
  const HeldoutComparison found = compare(*here, *there, sets).heldout;
  EXPECT_GT(found.kl.value, 0);
  EXPECT_LT(found.kl.value, 1e-3);
  EXPECT_GT(found.worst.kl, found.kl.value);
  EXPECT_GT(found.agreement.value, 0.97);
  EXPECT_LT(std::abs(found.relative()), 1e-3);
  EXPECT_GT(*found.kl.half_width, 0);
  // The worst token is where it is said to be.
  const std::vector<TokenId>& ids = sets.heldout[static_cast<size_t>(found.worst.row)].ids;
  TextLogits text_here(*here, ids);
  TextLogits text_there(*there, ids);
  for (int64_t at = 0; at <= found.worst.position; ++at) {
    const auto logits_here = text_here.next(1).value();
    const auto logits_there = text_there.next(1).value();
    if (at < found.worst.position) continue;
    const TokenComparison token = compare_token({.here = logits_here, .there = logits_there}, 0, 3580);
    EXPECT_EQ(token.kl, found.worst.kl);
    EXPECT_EQ(token.best_here, found.worst.here);
    EXPECT_EQ(token.best_there, found.worst.there);
  }
}

TEST(Comparison, VocabulariesOfDifferentSizesAreRefused) {
  const auto here = make_engine(models::Precision::kFast);
  const auto there = engine::Engine::create({.model = LATHE_SOURCE_DIR "/data/golden/base", .cpu = {.threads = 1, .isa = ""}, .kernels = {}}).value();
  const media::PreprocessConfig preprocess;
  const auto result = run_comparison({*here, preprocess}, {*there, preprocess}, {}, [](const std::string&, int64_t, int64_t) {});
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Code::kFailedPrecondition);
  EXPECT_NE(result.error().message.find("vocabularies of 3584 and 512 ids"), std::string::npos) << result.error().message;
}

TEST(Comparison, TokensAsByHand) {
  const std::vector<float> here = {0, 0, 0};
  const std::vector<float> there = {std::log(2.0f), 0, 0};
  const TokenComparison token = compare_token({.here = here, .there = there}, 1, 3);
  // p = (1/2, 1/4, 1/4), q = (1/3, 1/3, 1/3)
  EXPECT_NEAR(token.kl, 0.5 * std::log(1.5) + 0.5 * std::log(0.75), 1e-7);
  EXPECT_NEAR(token.nll_here, std::log(3.0), 1e-7);
  EXPECT_NEAR(token.nll_there, std::log(4.0), 1e-7);
  EXPECT_EQ(token.best_here, 0);
  const std::vector<float> padded = {0, 1, 9};
  EXPECT_EQ(compare_token({.here = padded, .there = padded}, 0, 2).best_here, 1) << "ids that are never chosen do not count";
}

TEST(Comparison, RatioOverRows) {
  const std::vector<double> sums = {2, 6};
  const std::vector<double> counts = {1, 3};
  EXPECT_EQ(ratio_over_rows(sums, counts).value, 2);
  EXPECT_EQ(*ratio_over_rows(sums, counts).half_width, 0);
  EXPECT_FALSE(ratio_over_rows(std::span(sums).first(1), std::span(counts).first(1)).half_width.has_value());
  // Equal counts: the interval of a mean. Values 1, 2, 3: standard error 1 / √3.
  EXPECT_NEAR(*ratio_over_rows(std::vector<double>{1, 2, 3}, std::vector<double>{1, 1, 1}).half_width, 1.96 / std::sqrt(3.0), 1e-12);
}

TEST(Comparison, RowsArePairedByNumber) {
  const PairedRows rows = pair_rows(score("110100"), score("101100"));
  EXPECT_EQ(rows.both_right, 2);
  EXPECT_EQ(rows.here_only, 1);
  EXPECT_EQ(rows.there_only, 1);
  EXPECT_EQ(rows.both_wrong, 2);
  EXPECT_EQ(rows.difference(), 0);
  SetScore few = score("01");
  few.numbers = {3, 9};
  EXPECT_EQ(pair_rows(score("110100"), few).rows(), 1);
  EXPECT_EQ(pair_rows(score("110100"), few).here_only, 1);
  const auto [low, high] = PairedRows{.both_right = 4}.interval();
  EXPECT_LT(low, -0.2) << "four rows prove little";
  EXPECT_NEAR(high, -low, 1e-12);
  const auto [less, more] = PairedRows{.both_right = 100, .here_only = 0, .there_only = 40, .both_wrong = 0}.interval();
  EXPECT_LT(more, 0);
  EXPECT_GT(less, -0.5);
}

/// All rows right there; `lost` of them wrong here.
PairedRows rows_that_lost(int64_t rows, int64_t lost) { return {.both_right = rows - lost, .here_only = 0, .there_only = lost, .both_wrong = 0}; }

ModelComparison whole(double bits_here) {
  ModelComparison out;
  out.heldout.rows = 59;
  out.heldout.here.bits_per_byte = bits_here;
  out.heldout.there.bits_per_byte = 1;
  out.sets = {{"add", rows_that_lost(500, 0)},
              {"sort", rows_that_lost(500, 0)},
              {"recall_512", rows_that_lost(95, 0)},
              {"recall_2048", rows_that_lost(95, 0)}};
  return out;
}

std::string failures(const ModelComparison& comparison, const GateLimits& limits = {}) {
  std::string out;
  for (const GateCheck& check : check_gate(comparison, limits)) out += check.failed() ? check.name + ";" : "";
  return out;
}

TEST(Gate, EachLimitHoldsAtItsEndAndFailsBehindIt) {
  EXPECT_EQ(failures(whole(1.0049)), "");
  EXPECT_EQ(failures(whole(0.9)), "") << "better is no loss";
  EXPECT_EQ(failures(whole(1.0051)), "bits per byte;");
  ModelComparison recall = whole(1);
  recall.sets["recall_512"] = rows_that_lost(95, 1);
  recall.sets["recall_2048"] = rows_that_lost(95, 1);
  EXPECT_EQ(failures(recall), "");
  recall.sets["recall_2048"] = rows_that_lost(95, 2);
  EXPECT_EQ(failures(recall), "recall;");
  ModelComparison tasks = whole(1);
  tasks.sets["add"] = rows_that_lost(500, 3);
  EXPECT_EQ(failures(tasks), "");
  tasks.sets["add"] = rows_that_lost(500, 4);
  EXPECT_EQ(failures(tasks), "set add;");
  const GateLimits close{.could_turn = {{"add", 6}, {"sort", 6}}};
  tasks.sets["add"] = rows_that_lost(500, 6);
  tasks.sets["sort"] = rows_that_lost(500, 4);
  EXPECT_EQ(failures(tasks, close), "") << "10 of 1000 rows are one point";
  tasks.sets["sort"] = rows_that_lost(500, 5);
  EXPECT_EQ(failures(tasks, close), "tasks;");
}

TEST(Gate, WhatWasNotMeasuredIsSaid) {
  const auto checks = check_gate({}, {});
  ASSERT_EQ(checks.size(), 3u);
  for (const GateCheck& check : checks) EXPECT_EQ(gate_sentence(check), check.name + ": not measured");
  EXPECT_EQ(judge(checks).measured, 0);
  EXPECT_EQ(judge(checks).not_measured, "bits per byte, recall, tasks");
  EXPECT_NE(gate_page(checks).find("Not judged as a whole: bits per byte, recall, tasks not measured"), std::string::npos) << gate_page(checks);
  EXPECT_EQ(gate_sentence(check_gate(whole(1.01), {})[0]), "bits per byte: 1.00 % worse over 59 rows, at most 0.50 % worse is allowed");
}

TEST(Gate, OnlyAWholeGateIsPassed) {
  const auto verdict = [](const ModelComparison& comparison) {
    const config::Json json = gate_json(check_gate(comparison, {}));
    return json.find("passed")->dump() + " " + json.find("complete")->dump();
  };
  EXPECT_EQ(verdict(whole(1)), "true true");
  EXPECT_EQ(verdict(whole(1.1)), "false true");
  ModelComparison no_recall = whole(1);
  no_recall.sets.erase("recall_512");
  no_recall.sets.erase("recall_2048");
  EXPECT_EQ(verdict(no_recall), "null false");
  EXPECT_EQ(judge(check_gate(no_recall, {})).not_measured, "recall");
  no_recall.heldout.here.bits_per_byte = 1.1;
  EXPECT_EQ(verdict(no_recall), "false false");
  EXPECT_EQ(verdict(whole(std::nan(""))), "false true") << "no number is no pass";
}

}  // namespace
}  // namespace lathe::evaluate
