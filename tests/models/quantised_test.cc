// Goal: the built-in model with INT8 weights and activations gives what the reference kernels give, and its bits depend on its own sequence alone.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "base/file.h"
#include "models/quantize.h"
#include "ops/basic.h"
#include "rig.h"

namespace lathe::models::golden {
namespace {

/// The built-in model in another format, made once for all tests.
class Quantised : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_folder = (std::filesystem::temp_directory_path() / fmt::format("lathe_int8_{}", ::getpid())).string();
    const QuantizeOptions options{.weights = WeightFormat::kInt8, .int8_activations = true, .keep = {}, .threads = 2};
    shared_report = must(quantize_model(data_path("builtin"), shared_folder, options, [](uint64_t, uint64_t) { return true; }), "quantise");
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(shared_folder); }

  static RigOptions options(Precision precision) {
    return {.directory = shared_folder,
            .model = {.precision = precision, .max_batch_tokens = 512, .shards = {}, .groups = {}},
            .isa = "",
            .blocks = 60,
            .slots = 12,
            .dispatch = {}};
  }
  static std::vector<TokenId> prompt(size_t length) {
    std::vector<TokenId> ids = GoldenFile(data_path("golden/tiny/golden_fp8.safetensors")).tokens("ids.10");
    ids.resize(length);
    return ids;
  }

  static inline std::string shared_folder;
  static inline QuantizeReport shared_report;
};

TEST_F(Quantised, ErrorsAreThoseOfEightBits) {
  // q, k, v, o of 6 linear layers; q_a, q_b, kv_a, o and wq_b of 2 sparse layers and the draft layer; 2 dense MLPs; 9 experts of 6 layers and the draft.
  EXPECT_EQ(shared_report.matrices.size(), static_cast<size_t>(6 * 4 + 3 * 5 + 2 * 3 + 7 * 9 * 3));
  for (const QuantizedMatrix& m : shared_report.matrices) {
    EXPECT_GT(m.relative_rms, 1e-3) << m.name;
    EXPECT_LT(m.relative_rms, 0.03) << m.name;
    EXPECT_GE(m.worst_channel_rms, m.relative_rms) << m.name;
  }
}

std::string bytes_of(const std::string& file) { return must(base::read_file(file, 1u << 30), "file"); }

TEST_F(Quantised, StoppedAndResumedIsTheSame) {
  const std::string folder = shared_folder + "_stopped";
  QuantizeOptions small{.weights = WeightFormat::kInt8, .int8_activations = true, .keep = {}, .threads = 1, .shard_bytes = 4u << 20};
  const auto run = [&](uint64_t most) {
    return quantize_model(data_path("builtin"), folder, small, [&](uint64_t done, uint64_t) { return done < most; });
  };
  const auto stopped = run(13u << 20);
  ASSERT_FALSE(stopped.has_value());
  EXPECT_EQ(stopped.error().code, Code::kCancelled);
  EXPECT_FALSE(std::filesystem::exists(folder));
  small.threads = 3;
  const QuantizeReport resumed = must(run(uint64_t{1} << 40), "resumed");
  EXPECT_GE(resumed.shards_kept, 2);
  EXPECT_LT(resumed.shards_kept, resumed.shards);
  EXPECT_EQ(resumed.matrices.size(), shared_report.matrices.size());
  EXPECT_EQ(bytes_of(folder + "/" + kQuantizationReport), bytes_of(shared_folder + "/" + kQuantizationReport));
  const auto logits = [](const std::string& directory) {
    RigOptions mine = options(Precision::kFast);
    mine.directory = directory;
    return Rig(mine).prefill(prompt(8));
  };
  EXPECT_TRUE(same_bits(logits(folder), logits(shared_folder)));
  std::filesystem::remove_all(folder);
}

/// Root of the mean squared difference, relative to the wanted values.
double relative_rms(const std::vector<float>& got, const std::vector<float>& wanted) {
  double error = 0, square = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double difference = static_cast<double>(got[i]) - static_cast<double>(wanted[i]);
    error += difference * difference;
    square += static_cast<double>(wanted[i]) * static_cast<double>(wanted[i]);
  }
  return std::sqrt(error / square);
}

/// Exact mode differs by the order of sums alone. In fast mode INT8 sums are exact as well, but another order elsewhere turns the rounding of some codes,
/// each a step of 1/127 of its row: the logits move by less than what all roundings together cost (measured 7.5e-3 and 1.7e-2).
TEST_F(Quantised, KernelsAgreeWithTheReference) {
  std::vector<std::vector<float>> modes;
  for (const Precision precision : {Precision::kExact, Precision::kFast}) {
    RigOptions slow = options(precision);
    slow.reference = true;
    Rig reference(slow);
    Rig fast(options(precision));
    modes.push_back(fast.prefill(prompt(48)));
    EXPECT_LE(relative_rms(modes.back(), reference.prefill(prompt(48))), precision == Precision::kExact ? 1e-5 : 1.2e-2);
  }
  const double cost = relative_rms(modes[1], modes[0]);
  EXPECT_GT(cost, 4e-3);  // more than BF16 rounding costs: the activations were codes
  EXPECT_LE(cost, 3e-2);
}

/// Counts products whose activations become INT8 codes.
class CodesSeen final : public backend::OpObserver {
 public:
  void after(backend::OpCall& call, backend::Device&) override {
    if (call.info->id != ops::OpId::kMatmul) return;
    const auto& p = *static_cast<const ops::MatmulParams*>(call.params);
    for (int32_t i = 0; i < p.part_count; ++i) {
      const MatrixView& weight = p.parts[static_cast<size_t>(i)].weight;
      const bool codes = ops::int8_product(weight, p.compute);
      (weight.values.dtype == DType::kI8 ? int8 : others) += 1;
      products += codes ? 1 : 0;
    }
  }
  int64_t int8 = 0, others = 0, products = 0;
};

TEST_F(Quantised, ActivationsAreCodesInFastModeAlone) {
  for (const Precision precision : {Precision::kExact, Precision::kFast}) {
    Rig rig(options(precision));
    CodesSeen seen;
    rig.dispatch().set_observer(&seen);
    rig.prefill(prompt(3));
    rig.dispatch().set_observer(nullptr);
    EXPECT_GT(seen.int8, 0);
    EXPECT_GT(seen.others, 0);  // router, small projections, head
    EXPECT_EQ(seen.products, precision == Precision::kFast ? seen.int8 : 0);
  }
}

Calibration calibrated(size_t tokens, int64_t batch) {
  std::vector<TokenId> ids = GoldenFile(data_path("golden/tiny/golden_fp8.safetensors")).tokens("ids.10");
  ids.resize(tokens);
  return must(calibrate_model(data_path("builtin"), ids, {.threads = 2, .batch_tokens = batch}, [](int64_t, int64_t) { return true; }), "calibrate");
}

/// Input rows of one matrix, added up by hand.
class InputsOf final : public backend::OpObserver {
 public:
  explicit InputsOf(std::string site) : site_(std::move(site)) {}
  void before(backend::OpCall& call, backend::Device&) override {
    if (call.site->layer != 0 || site_ != call.site->name) return;
    const View& x = static_cast<const ops::MatmulParams*>(call.params)->x;
    square.resize(static_cast<size_t>(x.dim(1)));
    for (int64_t t = 0; t < x.dim(0); ++t, ++rows) {
      double amax = 0;
      for (int64_t c = 0; c < x.dim(1); ++c) {
        const double value = static_cast<double>(x.f32()[t * x.step(0) + c]);
        square[static_cast<size_t>(c)] += value * value;
        amax = std::max(amax, std::fabs(value));
      }
      amax_square += amax * amax;
    }
  }
  std::vector<double> square;
  double amax_square = 0;
  int64_t rows = 0;

 private:
  std::string site_;
};

TEST_F(Quantised, CalibrationSeesTheInputsOfEveryMatrix) {
  const Calibration whole = calibrated(150, 512), pieces = calibrated(150, 64);
  EXPECT_EQ(whole.tokens, 150);
  EXPECT_EQ(whole.of.size(), shared_report.matrices.size());
  for (const QuantizedMatrix& m : shared_report.matrices) {
    const ChannelStats* const stats = whole.find(m.name);
    ASSERT_NE(stats, nullptr) << m.name;
    EXPECT_EQ(static_cast<int64_t>(stats->square.size()), m.cols) << m.name;
    EXPECT_GT(stats->amax_square, 0) << m.name;
    EXPECT_EQ(stats->rows, pieces.find(m.name)->rows) << m.name;
  }
  const ChannelStats& q = *whole.find("model.language_model.layers.0.self_attn.q_proj.weight");
  const ChannelStats& o = *whole.find("model.language_model.layers.0.self_attn.o_proj.weight");
  Rig rig({.directory = data_path("builtin"),
           .model = {.precision = Precision::kExact, .max_batch_tokens = 512, .shards = {}, .groups = {}},
           .isa = "",
           .blocks = 10,
           .slots = 1,
           .dispatch = {}});
  for (const auto& [site, stats] : {std::pair("kda.projections", &q), std::pair("kda.output", &o)}) {
    InputsOf inputs(site);
    rig.dispatch().set_observer(&inputs);
    SequenceId sequence;
    rig.prefill(prompt(150), {}, &sequence);
    rig.dispatch().set_observer(nullptr);
    rig.store().close(sequence);
    ASSERT_EQ(inputs.rows, 150);
    EXPECT_EQ(stats->rows, 150);
    EXPECT_NEAR(stats->amax_square, inputs.amax_square / 150, 1e-6 * stats->amax_square);
    double mean = 0;
    for (const double square : inputs.square) mean += square / 150 / static_cast<double>(inputs.square.size());
    for (size_t c = 0; c < inputs.square.size(); ++c)
      EXPECT_NEAR(static_cast<double>(stats->square[c]), inputs.square[c] / 150 + mean / 100, 1e-5 * mean);
  }
  // Experts of a layer share their input; each has its own inner activations, or those of the layer where few tokens came.
  const auto expert = [&](int e, const char* part) {
    return whole.of.at(fmt::format("model.language_model.layers.2.mlp.experts.{}.{}_proj.weight", e, part));
  };
  EXPECT_EQ(expert(0, "gate"), expert(5, "up"));
  EXPECT_NE(expert(0, "down"), expert(5, "down"));
  EXPECT_EQ(whole.stats[expert(0, "gate")].rows, 150);
  for (int e = 0; e < 8; ++e) EXPECT_GE(whole.stats[expert(e, "down")].rows, kFewRows);
}

TEST_F(Quantised, CalibratedScalesLoseLessAndOutliersStay) {
  Calibration calibration = calibrated(150, 512);
  const std::string spoilt = "model.language_model.layers.0.self_attn.o_proj.weight";
  calibration.stats[calibration.of.at(spoilt)].amax_square *= 1e6;  // a channel far above all others
  QuantizeOptions job{.weights = WeightFormat::kInt8, .int8_activations = true, .keep = {}, .calibration = &calibration, .threads = 2};
  const std::string folder = shared_folder + "_calibrated";
  const auto write = [&] { return must(quantize_model(data_path("builtin"), folder, job, [](uint64_t, uint64_t) { return true; }), "quantise"); };
  QuantizeReport report = write();
  EXPECT_EQ(report.calibrated_tokens, 150);
  const auto found = std::find_if(report.outliers.begin(), report.outliers.end(), [&](const OutlierMatrix& m) { return m.name == spoilt; });
  ASSERT_NE(found, report.outliers.end());
  EXPECT_GT(found->activations, kKeptAbove);
  EXPECT_LT(found->weights, kKeptAbove);
  EXPECT_LE(report.outliers.size(), 4u);  // the model has some of its own: the last shared experts
  EXPECT_EQ(report.matrices.size() + report.outliers.size(), shared_report.matrices.size());
  for (const QuantizedMatrix& m : report.matrices) EXPECT_NE(m.name, spoilt);
  int64_t clipped = 0;
  for (const QuantizedMatrix& m : report.matrices) {
    EXPECT_GT(m.output_rms, 0) << m.name;
    EXPECT_LE(m.output_rms, m.output_rms_plain) << m.name;
    EXPECT_LE(m.channels_clipped, m.rows) << m.name;
    clipped += m.channels_clipped;
  }
  EXPECT_GT(clipped, 0);
  RigOptions mine = options(Precision::kFast);
  mine.directory = folder;
  EXPECT_LE(relative_rms(Rig(mine).prefill(prompt(48)), Rig(options(Precision::kFast)).prefill(prompt(48))), 3e-2);
  std::filesystem::remove_all(folder);
  // Without INT8 activations nothing meets that channel's codes.
  job.int8_activations = false;
  report = write();
  EXPECT_TRUE(report.outliers.empty());
  std::filesystem::remove_all(folder);
}

TEST_F(Quantised, CalibrationNeedsTokensAndCanBeStopped) {
  const auto none = calibrate_model(data_path("builtin"), {}, {.threads = 1}, [](int64_t, int64_t) { return true; });
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, Code::kInvalidArgument);
  const auto stopped =
      calibrate_model(data_path("builtin"), prompt(20), {.threads = 1, .batch_tokens = 8}, [](int64_t done, int64_t) { return done < 16; });
  ASSERT_FALSE(stopped.has_value());
  EXPECT_EQ(stopped.error().code, Code::kCancelled);
  EXPECT_NE(stopped.error().message.find("16 of 20 tokens"), std::string::npos) << stopped.error().message;
}

TEST_F(Quantised, ChunksAndStepsChangeNoBit) {
  Rig rig(options(Precision::kFast));
  SequenceId sequence;
  const std::vector<TokenId> ids = prompt(150);
  const std::vector<float> whole = rig.prefill(ids, {}, &sequence);
  const std::vector<float> kept = rig.caches(sequence);
  rig.store().close(sequence);
  EXPECT_TRUE(same_bits(rig.prefill(ids, {65, 1, 1, 7, 3, 2, 64}, &sequence), whole));
  EXPECT_TRUE(same_bits(rig.caches(sequence), kept));
  rig.store().close(sequence);
  rig.prefill({ids.begin(), ids.end() - 10}, {}, &sequence);
  std::vector<float> steps;
  for (size_t i = ids.size() - 10; i < ids.size(); ++i) {
    const std::vector<float> logits = rig.feed(sequence, {ids[i]}, ItemKind::kDecode);
    steps.insert(steps.end(), logits.begin(), logits.end());
  }
  EXPECT_TRUE(same_bits(steps, slice_rows(whole, rig.vocabulary(), 140, 150)));
  EXPECT_TRUE(same_bits(rig.caches(sequence), kept));
}

TEST_F(Quantised, AloneAsInABatch) {
  Rig rig(options(Precision::kFast));
  std::mt19937 random(20261130);
  const std::vector<TokenId> mine = prompt(20);
  const SequenceId lonely = rig.open();
  const std::vector<float> alone = rig.feed(lonely, mine);
  for (const size_t others : {1u, 3u, 8u}) {
    std::vector<SequenceId> sequences;
    std::vector<std::vector<TokenId>> tokens;
    std::vector<StepItem> items;
    for (size_t i = 0; i <= others; ++i) {
      sequences.push_back(rig.open());
      tokens.push_back(i == others / 2 ? mine : std::vector<TokenId>(1 + random() % 13, static_cast<TokenId>(random() % 3000)));
    }
    for (size_t i = 0; i <= others; ++i) {
      must(rig.store().append(sequences[i], static_cast<int64_t>(tokens[i].size()), 0), "append");
      items.push_back({.sequence = sequences[i], .kind = ItemKind::kPrefill, .tokens = tokens[i], .rows = {}, .logits = Logits::kAll, .at = {}});
    }
    const StepResult result = must(rig.model().step(items, rig.store()), "step");
    const ItemRows& rows = result.items[others / 2];
    EXPECT_TRUE(same_bits(rig.host(result.logits.rows(rows.logits_begin, rows.logits_begin + rows.logits_count)), alone)) << others << " others";
    for (const SequenceId sequence : sequences) {
      rig.store().commit(sequence, 0);
      rig.store().close(sequence);
    }
  }
}

}  // namespace
}  // namespace lathe::models::golden
