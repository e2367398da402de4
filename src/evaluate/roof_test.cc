// Roofs: what counts as a sample, and what is said when something is faster than its roof.
#include <gtest/gtest.h>

#include <algorithm>

#include "evaluate/bench_model.h"
#include "evaluate/bench_ops.h"
#include "evaluate/machine.h"
#include "evaluate/roof_sampling.h"

namespace lathe::evaluate {
namespace {

constexpr int64_t kRoundNs = 1000;

/// A machine of two threads that does what it is told, run by run: 'g' both run, 's' the second one sleeps and the first runs both parts, 'h' the second
/// one gets half a processor, 'f' both run a little faster.
class FakeMachine {
 public:
  explicit FakeMachine(std::string moods) : moods_(std::move(moods)) {}
  std::vector<PartTime> operator()(int64_t rounds) {
    const char mood = moods_[std::min(next_++, moods_.size() - 1)];
    const int64_t start = now_;
    const int64_t work = rounds * kRoundNs * (mood == 'f' ? 9 : 10) / 10;
    now_ += 3 * work;
    if (mood == 's') return {{start, start + work, 0}, {start + work, start + 2 * work, 0}};
    if (mood == 'h') return {{start, start + work, 0}, {start, start + 2 * work, 1}};
    return {{start, start + work, 0}, {start + 10, start + 10 + work, 1}};
  }
  size_t runs() const { return next_; }

 private:
  std::string moods_;
  size_t next_ = 0;
  int64_t now_ = 0;
};

// Warm-up is one run that is good, sizing takes runs of 1, 64 and 4096 rounds: four runs before the samples.
TEST(RoofSampling, AThreadThatSleepsDoesNotHalveThePeak) {
  FakeMachine machine(
      "gggg"
      "shgshhg"
      "s");
  const Peak peak = measure_peak(machine, 2.0);
  EXPECT_TRUE(peak.together);
  EXPECT_EQ(peak.samples.size(), 2u);
  EXPECT_EQ(peak.rejected, 26);
  EXPECT_NEAR(peak.value, 2e9 / kRoundNs, 1e4);
}

TEST(RoofSampling, TheBestSampleCounts) {
  FakeMachine machine(
      "gggg"
      "ggfgggg"
      "g");
  const Peak peak = measure_peak(machine, 2.0);
  EXPECT_EQ(peak.samples.size(), 7u);
  EXPECT_NEAR(peak.value, 2e9 / kRoundNs / 0.9, 1e5);
  EXPECT_EQ(machine.runs(), 11u);
}

TEST(RoofSampling, WarmsUpUntilBothThreadsRun) {
  FakeMachine machine(
      "ssssssss"
      "g");
  const Peak peak = measure_peak(machine, 2.0);
  EXPECT_EQ(peak.rejected, 0);
  EXPECT_EQ(peak.samples.size(), 7u);
}

TEST(RoofSampling, SaysWhenTheThreadsNeverRanTogether) {
  FakeMachine machine("h");
  const Peak peak = measure_peak(machine, 2.0);
  EXPECT_FALSE(peak.together);
  EXPECT_EQ(peak.rejected, 28);
  EXPECT_NEAR(peak.value, 1e9 / kRoundNs, 1e4);
  // A later measurement that counts wins, even if it is lower.
  const Peak good{.value = 5, .samples = {5}};
  EXPECT_EQ(merged(peak, good).value, 5);
  EXPECT_TRUE(merged(good, peak).together);
  EXPECT_EQ(merged(good, Peak{.value = 7, .samples = {6, 7}}).value, 7);
  EXPECT_EQ(merged(good, Peak{.value = 7, .samples = {6, 7}}).samples.size(), 3u);
}

TEST(RoofSampling, Together) {
  EXPECT_FALSE(ran_together({}));
  EXPECT_TRUE(ran_together({{0, 100, 0}}));
  EXPECT_TRUE(ran_together({{0, 100, 0}, {5, 104, 1}}));
  EXPECT_FALSE(ran_together({{0, 100, 0}, {5, 104, 0}}));
  EXPECT_FALSE(ran_together({{0, 100, 0}, {20, 120, 1}}));
  EXPECT_FALSE(ran_together({{0, 100, 0}, {100, 200, 1}}));
}

TEST(Roofs, AgainNeverSinks) {
  Roofs roofs(1);  // of one thread every sample counts
  const double f32 = roofs.f32_flops();
  const double read = roofs.read_bandwidth(1 << 20);
  roofs.measure_again();
  EXPECT_GE(roofs.f32_flops(), f32);
  EXPECT_GE(roofs.read_bandwidth(1 << 20), read);
  EXPECT_GE(roofs.json().find("f32_flops")->find("samples")->as_array().size(), 2u);
}

TEST(Roofs, AShareAboveOneIsNeverPrintedWithoutARemark) {
  EXPECT_EQ(share_text(0.5), "50.0");
  EXPECT_EQ(share_text(1.0), "100.0");
  EXPECT_EQ(share_text(1.031), "103.1*");
  OpBench op;
  op.shapes = "model", op.op = "add", op.name = "x", op.tokens = 1, op.variant = "v", op.floor_ns = 200;
  op.samples.resize(3);
  for (Sample& sample : op.samples) sample.wall_ns = 100, sample.units = 1;
  const std::string page = ops_page({op});
  EXPECT_NE(page.find("200.0*"), std::string::npos) << page;
  EXPECT_NE(page.find(kAboveRoof), std::string::npos) << page;
  op.floor_ns = 50;
  EXPECT_EQ(ops_page({op}).find('*'), std::string::npos);
  EXPECT_EQ(ops_page({op}).find(kAboveRoof), std::string::npos);
}

}  // namespace
}  // namespace lathe::evaluate
