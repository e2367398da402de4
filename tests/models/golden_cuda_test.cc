// Goal: the model on a GPU computes what the references computed: golden/base in exact mode, the built-in model in exact and in fast mode. Compiled a second time
// over the emulation of the kernels, where only the short prompts run.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <set>

#include "backend/fake_device.h"
#include "base/file.h"
#include "kernels/cuda/cuda_variants.h"
#include "tiny_golden.h"
#ifndef LATHE_CUDA_EMULATED
#include "backend/cuda/cuda_device.h"
#endif

namespace lathe::models::golden {
namespace {

#ifdef LATHE_CUDA_EMULATED
constexpr bool kEmulated = true;
Result<std::unique_ptr<backend::Device>> device_under_test() {
  const std::span<const ops::Variant> table = kernels::cuda::cuda_variants();
  return std::unique_ptr<backend::Device>(std::move(*backend::FakeDevice::create({table.begin(), table.end()})));
}
#else
constexpr bool kEmulated = false;
Result<std::unique_ptr<backend::Device>> device_under_test() { return backend::make_cuda_device({}); }
#endif

RigOptions options(const std::string& directory, Precision precision) {
  RigOptions out{.directory = data_path(directory), .isa = "", .blocks = 256, .dispatch = {}};
  out.model.precision = precision;
  out.dispatch.host_reference = backend::reference_table();
  return out;
}

/// Call sites that no kernel of the device serves, once each.
void print_fallbacks(const backend::Dispatch& dispatch) {
  std::map<std::string, int> seen;
  for (const backend::OpSite* const site : dispatch.sites()) {
    if (site->route == backend::Route::kNative) continue;
    ++seen[std::string(ops::op_info(site->op).name) + " by " + (site->composition != nullptr ? site->composition->name : "the host reference")];
  }
  for (const auto& [what, sites] : seen) std::printf("  fallback: %s at %d sites\n", what.c_str(), sites);
  std::printf("  %lld fallback calls\n", static_cast<long long>(dispatch.fallback_calls()));
}

class GoldenCuda : public testing::Test {
 protected:
  /// Skips with a reason where there is no device.
  void open(const std::string& directory, Precision precision) {
    Result<std::unique_ptr<backend::Device>> device = device_under_test();
    if (!device) GTEST_SKIP() << device.error().message;
    rig_ = std::make_unique<Rig>(options(directory, precision), std::move(*device));
  }
  static std::string name(const char* tensor, int prompt) { return std::string(tensor) + "." + std::to_string(prompt); }

  /// Prefill and greedy decoding of one prompt of golden/base. Returns the largest difference of a logit.
  double prompt(GoldenFile& gold, int p) {
    const std::vector<TokenId> ids = gold.tokens(name("ids", p));
    const std::vector<TokenId> greedy = gold.tokens(name("greedy", p));
    const int64_t width = rig_->vocabulary();
    SequenceId sequence;
    std::vector<float> last = rig_->prefill(ids, {}, &sequence);
    double worst = worst_difference(last, gold.floats(name("logits", p)));
    last = slice_rows(last, width, static_cast<int64_t>(ids.size()) - 1, static_cast<int64_t>(ids.size()));
    std::vector<float> all;
    for (size_t i = ids.size(); i < greedy.size(); ++i) {
      EXPECT_EQ(arg_max(last, 0, width), greedy[i]) << "prompt " << p << " token " << i;
      all.insert(all.end(), last.begin(), last.end());
      last = rig_->feed(sequence, {greedy[i]}, ItemKind::kDecode);
    }
    worst = std::max(worst, worst_difference(all, gold.floats(name("greedy_logits", p))));
    rig_->store().close(sequence);
    return worst;
  }

  std::unique_ptr<Rig> rig_;
};

TEST_F(GoldenCuda, BaseExact) {
  open("golden/base", Precision::kExact);
  if (rig_ == nullptr) return;
  GoldenFile gold(data_path("golden/base.safetensors"));
  double worst = 0;
  for (int p = 0; p < (kEmulated ? 1 : 7); ++p) {
    const double here = prompt(gold, p);
    EXPECT_LE(here, 1e-3) << "prompt " << p;
    worst = std::max(worst, here);
  }
  std::printf("  golden/base exact: worst logit difference %.2e\n", worst);
  print_fallbacks(rig_->dispatch());
}

TEST_F(GoldenCuda, BasePicturesExact) {
  if (kEmulated) GTEST_SKIP() << "too slow over the emulation";
  open("golden/base", Precision::kExact);
  if (rig_ == nullptr) return;
  GoldenFile gold(data_path("golden/base.safetensors"));
  for (int i = 0; i < 3; ++i) {
    const auto tensor = [i](const char* what) { return "image." + std::to_string(i) + "." + what; };
    const std::vector<float> pixels = gold.floats(tensor("pixels"));
    const std::vector<int64_t> grid = gold.integers(tensor("grid"));
    const ImageRows image = must(rig_->model().encode_image({.patches = pixels, .steps = grid[0], .height = grid[1], .width = grid[2]}), "picture");
    const double error = relative_frobenius(rig_->host(image.rows), gold.floats(tensor("embeds")));
    EXPECT_LE(error, 1e-4) << i;
    std::printf("  picture %d: embeds %.2e\n", i, error);
  }
}

TEST_F(GoldenCuda, BuiltinExact) {
  if (kEmulated) GTEST_SKIP() << "too slow over the emulation";
  if (!base::file_exists(data_path("golden/tiny/golden_fp8.safetensors"))) GTEST_SKIP() << "no data/golden/tiny/golden_fp8.safetensors";
  open("builtin", Precision::kExact);
  if (rig_ == nullptr) return;
  GoldenFile gold(data_path("golden/tiny/golden_fp8.safetensors"));
  for (int number = 0; number < 6; ++number) TinyPrompt(gold, *rig_, number).check();
  print_fallbacks(rig_->dispatch());
}

/// The built-in model against the CPU in exact mode, and fast against exact; a decode step by the clock.
TEST_F(GoldenCuda, BuiltinAgainstCpuAndSpeed) {
  if (kEmulated) GTEST_SKIP() << "too slow over the emulation";
  std::vector<float> exact;
  for (const Precision precision : {Precision::kExact, Precision::kFast}) {
    open("builtin", precision);
    if (rig_ == nullptr) return;
    std::vector<TokenId> ids(300);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(1 + i * 37 % 3000);
    SequenceId sequence;
    const std::vector<float> logits = rig_->prefill(ids, {}, &sequence);
    if (precision == Precision::kExact) {
      exact = logits;
      Rig cpu(options("builtin", precision));
      const double worst = worst_difference(logits, cpu.prefill(ids));
      std::printf("  built-in model exact, GPU against CPU: worst logit difference %.2e\n", worst);
      EXPECT_LE(worst, 5e-4);
    }
    for (int i = 0; i < 5; ++i) rig_->feed(sequence, {9}, ItemKind::kDecode, Logits::kLast);
    const auto from = std::chrono::steady_clock::now();
    constexpr int kSteps = 50;
    for (int i = 0; i < kSteps; ++i) rig_->feed(sequence, {static_cast<TokenId>(10 + i)}, ItemKind::kDecode, Logits::kLast);
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - from).count() / kSteps;
    std::printf("  built-in model %s: %.2f ms a decode step (no graphs)\n", precision == Precision::kExact ? "exact" : "fast", ms);
    if (precision == Precision::kFast) {
      const double error = relative_frobenius(logits, exact);
      std::printf("  fast against exact: logits %.2e\n", error);
      EXPECT_LE(error, 5e-2);
      print_fallbacks(rig_->dispatch());
    }
  }
}

}  // namespace
}  // namespace lathe::models::golden
