// Goal: the statistics behind "faster", the roofs behind "% of the floor", and that every op of the table has a bench case.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/file.h"
#include "evaluate/bench_ab.h"
#include "evaluate/bench_baseline.h"
#include "evaluate/bench_cases.h"
#include "evaluate/bench_drafts.h"
#include "evaluate/bench_model.h"
#include "evaluate/bench_ops.h"
#include "evaluate/bench_statistics.h"
#include "evaluate/machine.h"

namespace lathe::evaluate {
namespace {

TEST(Statistics, MedianOfOddAndEven) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  const Summary summary = summarise({{.wall_ns = 10, .units = 2}, {.wall_ns = 30, .units = 2}, {.wall_ns = 8, .units = 1}});
  EXPECT_EQ(summary.median, 8);
  EXPECT_EQ(summary.low, 5);
  EXPECT_EQ(summary.high, 15);
}

TEST(Statistics, StudentTNearsTheNormal) {
  EXPECT_NEAR(student_t95(1), 12.706, 1e-3);
  EXPECT_NEAR(student_t95(4), 2.776, 1e-3);
  EXPECT_NEAR(student_t95(40), 2.021, 2e-3);
  EXPECT_NEAR(student_t95(1000), 1.962, 1e-3);
  for (int64_t n = 1; n < 100; ++n) EXPECT_GT(student_t95(n), student_t95(n + 1)) << n;
}

TEST(Statistics, RatioOfPairs) {
  const RatioInterval exact = ratio_interval({1, 2, 3}, {2, 4, 6});
  EXPECT_NEAR(exact.ratio, 2, 1e-12);
  EXPECT_NEAR(exact.low, 2, 1e-9);
  EXPECT_NEAR(exact.high, 2, 1e-9);
  // Logs of the ratios are ±ln 2 about 0: half width t(1)·ln 2·√2/√2.
  const RatioInterval wide = ratio_interval({1, 1}, {2, 0.5});
  EXPECT_NEAR(wide.ratio, 1, 1e-12);
  EXPECT_NEAR(std::log(wide.high), 12.706 * std::log(2), 1e-3);
  EXPECT_NEAR(wide.low * wide.high, 1, 1e-9);
}

/// The 95 % interval of 2,000 experiments with a known ratio holds it in about 95 % of them.
TEST(Statistics, IntervalHoldsTheTruth) {
  uint64_t state = 7;
  const auto normal = [&] {
    double sum = 0;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(ops::cases::mix(state++) >> 11) * 0x1p-53;
    return sum - 6;
  };
  int held = 0;
  for (int experiment = 0; experiment < 2000; ++experiment) {
    std::vector<double> a, b;
    for (int pair = 0; pair < 5; ++pair) {
      const double mood = std::exp(0.5 * normal());  // of the machine, the same for both
      a.push_back(mood * std::exp(0.1 * normal()));
      b.push_back(1.3 * mood * std::exp(0.1 * normal()));
    }
    const RatioInterval interval = ratio_interval(a, b);
    held += interval.low <= 1.3 && 1.3 <= interval.high ? 1 : 0;
  }
  EXPECT_GT(held, 1860);
  EXPECT_LT(held, 1940);
}

TEST(Samples, AreNumberedAndTimed) {
  SampleClock clock;
  std::vector<Sample> samples;
  for (int i = 0; i < 3; ++i) samples.push_back(clock.take(4, [] { process_cpu_ns(); }));
  EXPECT_EQ(samples[2].order, 2);
  EXPECT_GE(samples[2].start_ns, samples[1].start_ns + samples[1].wall_ns);
  EXPECT_EQ(samples_json(samples).as_array().size(), 3u);
  EXPECT_EQ(samples_json(samples).as_array()[1].find("units")->as_int(), 4);
}

TEST(Machine, HasFacts) {
  const MachineFacts facts = machine_facts();
  EXPECT_GE(facts.processors, 1);
  EXPECT_GT(facts.memory_bytes, 0);
  EXPECT_GT(facts.available_bytes, 0);
  EXPECT_NE(facts.id.find("cpu"), std::string::npos) << facts.id;
  EXPECT_EQ(facts.id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"), std::string::npos) << facts.id;
  EXPECT_EQ(facts.binary.size(), std::string("fnv1a64:").size() + 16);
}

TEST(Roofs, ArePositiveAndKept) {
  Roofs roofs(1);
  const double near = roofs.read_bandwidth(1 << 15);
  EXPECT_GT(near, 1e8);
  EXPECT_EQ(roofs.read_bandwidth(1 << 15), near);
  EXPECT_GT(roofs.copy_bandwidth(1 << 20), 1e8);
  EXPECT_GT(roofs.f32_flops(), 1e8);
  EXPECT_GT(roofs.bf16_flops(), 1e8);
  EXPECT_GE(roofs.int8_operations(), 0);
  // Both sides of the floor.
  const double moving = roofs.floor_ns({.bytes_read = 1 << 15});
  EXPECT_NEAR(moving, (1 << 15) / near * 1e9, 1e-6 * moving);
  EXPECT_GT(roofs.floor_ns({.bytes_read = 1 << 15, .flops = 1e12}), 100 * moving);
  EXPECT_GT(roofs.floor_ns({.bytes_read = 1 << 15, .bytes_written = 1 << 15}), 0);
  EXPECT_EQ(roofs.json().find("read")->as_array().size(), 2u);  // of 32 KiB, and of 64 for what was also written
}

TEST(Cases, CoverEveryOpAndAreValid) {
  const auto cases = bench_cases({.name = "model", .tokens = 3, .memory_bytes = int64_t{1} << 30});
  ASSERT_TRUE(cases.has_value());
  std::set<ops::OpId> seen;
  for (const BenchCase& item : *cases) {
    seen.insert(item.op);
    ops::cases::Problem problem;
    item.built.build(problem);
    const auto valid = ops::op_info(item.op).validate(problem.params());
    EXPECT_TRUE(valid.has_value()) << item.name << ": " << valid.error().message;
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(ops::kOpCount));
  EXPECT_FALSE(bench_cases({.name = "imaginary"}).has_value());
  const auto small = bench_cases({.name = "published", .tokens = 1, .memory_bytes = int64_t{1} << 30});
  ASSERT_TRUE(small.has_value());
  const auto moe = std::find_if(small->begin(), small->end(), [](const BenchCase& c) { return c.op == ops::OpId::kMoe; });
  EXPECT_NE(moe->note.find("of 288 experts"), std::string::npos) << moe->note;
}

TEST(Ops, MeasuresOneOp) {
  Roofs roofs(1);
  BenchOpsOptions options{.op = "rms_norm", .tokens = {2}, .cpu = {.threads = 1, .isa = ""}, .kernels = {}};
  const auto progress = [](const std::string&, int64_t, int64_t) {};
  const auto benches = bench_ops(options, roofs, progress);
  ASSERT_TRUE(benches.has_value()) << benches.error().message;
  ASSERT_EQ(benches->size(), 1u);
  const OpBench& bench = benches->front();
  EXPECT_GE(bench.samples.size(), 5u);
  EXPECT_GT(bench.time_ns(), 0);
  EXPECT_GT(bench.share_of_floor(), 0);
  EXPECT_GT(bench.over_reference(), 0);
  ASSERT_TRUE(bench.counted);
  EXPECT_EQ(bench.done[static_cast<size_t>(ops::Counter::kRowsNormalised)], 2);
  const config::Json json = ops_json(*benches);
  EXPECT_EQ(json.as_array()[0].find("samples")->as_array().size(), bench.samples.size());
  EXPECT_NE(ops_page(*benches).find("rms_norm/hidden"), std::string::npos);
  // A call without its scratch does nothing: no speed.
  options.op = "matmul", options.tokens = {64}, options.cpu.scratch_max = 64;
  const auto starved = bench_ops(options, roofs, progress);
  ASSERT_FALSE(starved.has_value()) << ops_page(*starved);
  EXPECT_NE(starved.error().message.find("bytes of scratch"), std::string::npos) << starved.error().message;
  options.tokens = {2}, options.cpu.scratch_max = 0;
  options.op = "imaginary";
  EXPECT_FALSE(bench_ops(options, roofs, progress).has_value());
  options.op = "rms_norm", options.kernels = {{"rms_norm", "imaginary"}};
  EXPECT_FALSE(bench_ops(options, roofs, progress).has_value());
}

TEST(Drafts, MeasuresTheBuiltInModel) {
  engine::EngineOptions engine_options{.model = LATHE_SOURCE_DIR "/data/builtin", .cpu = {.threads = 1, .isa = ""}, .kernels = {}};
  engine_options.sequences = 2;
  engine_options.context_tokens = 64;
  BenchDraftsOptions options{.prompts = {{3546, 3548, 1767, 923, 258, 549, 506, 313, 258, 542, 2150, 559, 864, 303, 260, 1614, 13}},
                             .batches = {1, 2},
                             .tokens = 24,
                             .samples = 2,
                             .stop_tokens = {}};
  const auto no_progress = [](const std::string&, int64_t, int64_t) {};
  const auto plain = engine::Engine::create(engine_options).value();
  EXPECT_EQ(bench_drafts(*plain, options, no_progress).error().code, Code::kInvalidArgument);
  engine_options.drafts.most = 2;
  const auto engine = engine::Engine::create(engine_options).value();
  const auto result = bench_drafts(*engine, options, no_progress);
  ASSERT_TRUE(result.has_value()) << result.error().message;
  ASSERT_EQ(result->size(), 2u);
  for (const DraftsBench& bench : *result) {
    ASSERT_EQ(bench.plain.size(), 2u);
    ASSERT_EQ(bench.drafted.size(), 2u);
    EXPECT_EQ(bench.plain[0].units, 23 * bench.batch);
    EXPECT_GT(bench.counts.accepted, 8 * bench.batch);
    EXPECT_LT(bench.steps, 2 * 23);
    EXPECT_GT(bench.gain().ratio, 0);
    EXPECT_GT(bench.drafting_share, 0);
    EXPECT_LT(bench.drafting_share, 1);
  }
  EXPECT_NE(drafts_page(*result).find("2 sequences"), std::string::npos);
  EXPECT_EQ(drafts_json(*result).find("drafts")->as_array().size(), 2u);
  options.batches = {3};
  EXPECT_NE(bench_drafts(*engine, options, no_progress).error().message.find("a batch of 3"), std::string::npos);
}

TEST(Model, MeasuresTheBuiltInModel) {
  const BenchModelOptions options{.prompts = {24}, .batches = {1, 3}, .decode_context = 8, .samples = 1};
  engine::EngineOptions engine_options{.model = LATHE_SOURCE_DIR "/data/builtin", .cpu = {.threads = 1, .isa = ""}, .kernels = {}};
  engine_options.context_tokens = bench_model_context(options), engine_options.sequences = bench_model_sequences(options);
  const auto engine = engine::Engine::create(engine_options);
  ASSERT_TRUE(engine.has_value()) << engine.error().message;
  Roofs roofs(1);
  const auto progress = [](const std::string&, int64_t, int64_t) {};
  const auto bench = bench_model(**engine, options, roofs, progress);
  ASSERT_TRUE(bench.has_value()) << bench.error().message;
  ASSERT_EQ(bench->prefill.size(), 1u);
  ASSERT_EQ(bench->decode.size(), 2u);
  EXPECT_GT(bench->prefill[0].rate(), 0);
  EXPECT_GT(bench->prefill[0].scan_share(), 0);
  EXPECT_LT(bench->prefill[0].scan_share(), 1);
  EXPECT_EQ((*engine)->store().free_slots(), engine_options.sequences);  // everything was closed again
  for (const DecodeBench& decode : bench->decode) {
    EXPECT_GT(decode.floor_ns, 0);
    // A step reads most of the weights, none of them twice.
    EXPECT_LE(decode.weight_bytes_done, decode.weight_bytes_needed);
    EXPECT_GT(decode.weight_bytes_done, 0.4 * static_cast<double>((*engine)->info().weight_bytes));
    EXPECT_GT(decode.bytes, decode.weight_bytes_done);
    EXPECT_GT(decode.profile.time_of("matmul"), 0);
    EXPECT_GT(decode.profile.linear_flops(), 0);
    EXPECT_LE(decode.profile.time_ns(), decode.profile.wall_ns);
    // At least the ops of a layer, in each of 8; and a share that follows from what stands beside it.
    EXPECT_GT(decode.calls, 8 * 10);
    EXPECT_EQ(decode.calls, std::floor(decode.calls)) << "every step makes the same calls";
    EXPECT_GT(bench->dispatch_ns, 0);
    EXPECT_NEAR(bench->dispatch_share(decode) * decode.step_ns(), decode.calls * bench->dispatch_ns, 1.0);
  }
  EXPECT_GT(bench->decode[1].bytes, bench->decode[0].bytes);
  EXPECT_EQ(model_json(*bench).find("decode")->as_array().size(), 2u);
  EXPECT_NE(model_page(*bench).find("Where a decode step of 1 goes"), std::string::npos);
  EXPECT_NE(model_page(*bench).find("observation, switched off: "), std::string::npos);
  EXPECT_GT(model_json(*bench).find("decode")->as_array()[0].find("observation_off_share")->as_double(), 0);
  EXPECT_EQ(model_json(*bench).find("dispatch_call_ns")->as_double(), bench->dispatch_ns);
  BenchModelOptions larger = options;
  larger.batches = {64};
  EXPECT_FALSE(bench_model(**engine, larger, roofs, progress).has_value());
}

TEST(Ab, ReadsArms) {
  const auto flags = parse_arm("--isa  avx2", "self");
  ASSERT_TRUE(flags.has_value());
  EXPECT_EQ(flags->program, "self");
  EXPECT_EQ(flags->arguments, (std::vector<std::string>{"--isa", "avx2"}));
  const auto program = parse_arm("other/lathe -t 1", "self");
  ASSERT_TRUE(program.has_value());
  EXPECT_EQ(program->program, "other/lathe");
  EXPECT_EQ(program->arguments.size(), 2u);
  EXPECT_FALSE(parse_arm("  ", "self").has_value());
}

/// Programs that print a report: ratios come out, and what is no report is an error.
TEST(Ab, RunsPairs) {
  const auto progress = [](int, int) {};
  const std::string slow = R"({"prefill":[],"decode":[{"batch":1,"tokens_per_second":10}]})";
  const std::string fast = R"({"prefill":[],"decode":[{"batch":1,"tokens_per_second":25}]})";
  BenchAbOptions options{
      .a = {.name = "a", .program = "echo", .arguments = {}}, .b = {.name = "b", .program = "echo", .arguments = {}}, .common = {}, .pairs = 5};
  const auto words = bench_ab(options, progress);  // echo repeats the flags: no JSON
  ASSERT_FALSE(words.has_value());
  EXPECT_NE(words.error().message.find("output of"), std::string::npos);
  const auto shell = [](const std::string& text) {
    return BenchArm{.name = text, .program = LATHE_SOURCE_DIR "/src/evaluate/testdata/print_last.sh", .arguments = {text}};
  };
  options.a = shell(slow), options.b = shell(fast);
  const auto bench = bench_ab(options, progress);
  ASSERT_TRUE(bench.has_value()) << bench.error().message;
  ASSERT_EQ(bench->metrics.size(), 1u);
  EXPECT_EQ(bench->metrics[0].name, "decode 1");
  EXPECT_NEAR(bench->metrics[0].ratio.ratio, 2.5, 1e-9);
  EXPECT_EQ(bench->runs.size(), 10u);
  // The order inside the pairs is drawn: not always the same arm first.
  int b_first = 0;
  for (size_t i = 0; i < bench->runs.size(); i += 2) b_first += bench->runs[i].is_b ? 1 : 0;
  EXPECT_GT(b_first, 0);
  EXPECT_LT(b_first, 5);
  EXPECT_NE(ab_page(options, *bench).find("B is faster"), std::string::npos);
  // Nothing is measured when an arm cannot be.
  int steps = 0;
  const auto counted = [&](int, int) { ++steps; };
  for (const char* program : {"false", "/nonexistent/lathe"}) {
    options.b = {.name = "bad", .program = program, .arguments = {}};
    const auto refused = bench_ab(options, counted);
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(refused.error().message.find("arm 'bad'"), std::string::npos) << refused.error().message;
  }
  EXPECT_EQ(steps, 0);
}

TEST(Baseline, ComparesWhatBothHave) {
  const auto parse = [](const char* text) { return *config::parse_json(text); };
  const config::Json then = parse(R"({"decode":[{"batch":1,"tokens_per_second":100,"share_of_floor":0.2},{"batch":4,"tokens_per_second":9}]})");
  const config::Json now = parse(R"({"decode":[{"batch":1,"tokens_per_second":150,"share_of_floor":0.3}]})");
  const auto page = baseline_page(now, then, "FILE");
  ASSERT_TRUE(page.has_value());
  EXPECT_NE(page->find("decode 1"), std::string::npos);
  EXPECT_NE(page->find("1.50"), std::string::npos) << *page;
  EXPECT_EQ(page->find("decode 4"), std::string::npos);
  EXPECT_FALSE(baseline_page(now, parse("{}"), "FILE").has_value());
}

TEST(Baseline, IsReadWithItsErrors) {
  const std::string path = testing::TempDir() + "/lathe_baseline.json";
  const auto message = [&](const std::string& text) {
    EXPECT_TRUE(base::write_file(path, text));
    const auto report = read_baseline(path, "model");
    return report ? std::string() : report.error().message;
  };
  const std::string figures = R"("decode":[{"batch":1,"tokens_per_second":100}])";
  EXPECT_EQ(message("{\"suite\":\"model\"," + figures + "}"), "");
  EXPECT_NE(message("{\"suite\":\"ops\"," + figures + "}").find("expected one of bench model"), std::string::npos);
  EXPECT_NE(message("{" + figures + "}").find("suite nothing"), std::string::npos);
  EXPECT_NE(message("{\"suite\":\"model\"}").find("no figures"), std::string::npos);
  EXPECT_NE(message("{").find("lathe_baseline.json"), std::string::npos);
  EXPECT_NE(read_baseline("/nonexistent.json", "model").error().message.find("/nonexistent.json"), std::string::npos);
}

}  // namespace
}  // namespace lathe::evaluate
