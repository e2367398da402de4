// Goal: the forward pass is the one of the public reference, value by value: golden/base on the reference table and on this machine's best kernels.

#include <gtest/gtest.h>

#include <set>

#include "rig.h"

namespace lathe::models::golden {
namespace {

constexpr int kPrompts = 7;
constexpr int kLayers = 8;
constexpr double kLogits = 1e-3;
constexpr double kStreams = 1e-4;
constexpr double kStates = 5e-5;

class GoldenBase : public testing::TestWithParam<bool> {
 protected:
  static RigOptions options(bool reference) { return {.directory = data_path("golden/base"), .reference = reference, .isa = "", .dispatch = {}}; }
  GoldenBase() : gold_(data_path("golden/base.safetensors")), rig_(options(GetParam())) {}
  static std::string name(const char* tensor, int prompt) { return std::string(tensor) + "." + std::to_string(prompt); }
  static std::string name(const char* tensor, int prompt, int layer) { return name(tensor, prompt) + "." + std::to_string(layer); }

  GoldenFile gold_;
  Rig rig_;
};

TEST_P(GoldenBase, FullPrefill) {
  for (int p = 0; p < kPrompts; ++p) {
    const std::vector<TokenId> ids = gold_.tokens(name("ids", p));
    EXPECT_LE(worst_difference(rig_.prefill(ids), gold_.floats(name("logits", p))), kLogits) << "prompt " << p;
  }
}

TEST_P(GoldenBase, ChunkedPrefill) {
  for (const int p : {4, 5, 6}) {
    const std::vector<float> logits = rig_.prefill(gold_.tokens(name("ids", p)), gold_.integers(name("chunks", p)));
    EXPECT_LE(worst_difference(logits, gold_.floats(name("chunked_logits", p))), kLogits) << "prompt " << p;
  }
}

TEST_P(GoldenBase, CachedDecodeIsGreedyAsTheReference) {
  const int64_t width = rig_.vocabulary();
  for (int p = 0; p < kPrompts; ++p) {
    const std::vector<TokenId> ids = gold_.tokens(name("ids", p));
    const std::vector<TokenId> greedy = gold_.tokens(name("greedy", p));
    SequenceId sequence;
    std::vector<float> last = rig_.prefill(ids, {}, &sequence);
    last = slice_rows(last, width, static_cast<int64_t>(ids.size()) - 1, static_cast<int64_t>(ids.size()));
    std::vector<float> all;
    for (size_t i = ids.size(); i < greedy.size(); ++i) {
      ASSERT_EQ(arg_max(last, 0, width), greedy[i]) << "prompt " << p << " token " << i;
      all.insert(all.end(), last.begin(), last.end());
      last = rig_.feed(sequence, {greedy[i]}, ItemKind::kDecode);
    }
    EXPECT_LE(worst_difference(all, gold_.floats(name("greedy_logits", p))), kLogits) << "prompt " << p;
    rig_.store().close(sequence);
  }
}

TEST_P(GoldenBase, StreamsOfEveryLayer) {
  Capture capture;
  capture.want("mhc.ffn_out", "out");
  capture.want("final.norm", "out");
  rig_.dispatch().set_observer(&capture);
  for (const int p : {3, 5}) {
    capture.clear();
    rig_.prefill(gold_.tokens(name("ids", p)));
    for (int layer = 0; layer < kLayers; ++layer) {
      EXPECT_LE(relative_frobenius(capture.at("mhc.ffn_out", layer), gold_.floats(name("hidden", p, layer))), kStreams)
          << "prompt " << p << " layer " << layer;
    }
    EXPECT_LE(relative_frobenius(capture.at("final.norm", -1), gold_.floats(name("final", p))), kStreams) << "prompt " << p;
  }
  rig_.dispatch().set_observer(nullptr);
}

TEST_P(GoldenBase, SelectionsAreTheSameSets) {
  constexpr int64_t kPool = 4;
  constexpr int64_t kPoolsMax = 4;
  Capture capture;
  capture.want("dsa.select", "selection");
  rig_.dispatch().set_observer(&capture);
  for (const int p : {3, 5, 6}) {
    capture.clear();
    rig_.prefill(gold_.tokens(name("ids", p)));
    for (const int layer : {3, 7}) {
      const std::vector<int64_t> wanted = gold_.integers(name("topk", p, layer));
      const int64_t width = gold_.dim(name("topk", p, layer), 1);
      const std::vector<float>& chosen = capture.at("dsa.select", layer);
      const int64_t rows = gold_.dim(name("topk", p, layer), 0);
      ASSERT_EQ(static_cast<int64_t>(chosen.size()), rows * kPoolsMax);
      for (int64_t t = 0; t < rows; ++t) {
        std::set<int64_t> mine;
        for (int64_t i = 0; i < kPoolsMax; ++i) {
          const auto pool = static_cast<int64_t>(chosen[static_cast<size_t>(t * kPoolsMax + i)]);
          for (int64_t j = 0; pool >= 0 && j < kPool; ++j) mine.insert(pool * kPool + j);
        }
        for (int64_t token = (t + 1) / kPool * kPool; token <= t; ++token) mine.insert(token);
        std::set<int64_t> theirs(wanted.begin() + t * width, wanted.begin() + (t + 1) * width);
        theirs.erase(-1);
        EXPECT_EQ(mine, theirs) << "prompt " << p << " layer " << layer << " token " << t;
      }
    }
  }
  rig_.dispatch().set_observer(nullptr);
}

TEST_P(GoldenBase, StatesAndWindows) {
  constexpr int64_t kTaps = 4;
  for (const int p : {1, 3, 5}) {
    const std::vector<TokenId> ids = gold_.tokens(name("ids", p));
    const auto length = static_cast<int64_t>(ids.size());
    SequenceId sequence;
    rig_.prefill(ids, {}, &sequence);
    for (const int layer : {0, 1, 2, 4, 5, 6}) {
      EXPECT_LE(relative_frobenius(rig_.state(sequence, layer, "kda.state"), gold_.floats(name("kda_state", p, layer))), kStates)
          << "prompt " << p << " layer " << layer;
      // Ours: ring rows of all channels; theirs: four columns a channel, oldest first, of which the last three matter.
      const std::vector<float> ring = rig_.state(sequence, layer, "kda.conv");
      const std::vector<float> columns = gold_.floats(name("conv_state", p, layer));
      const int64_t channels = gold_.dim(name("conv_state", p, layer), 0);
      const int64_t rows = static_cast<int64_t>(ring.size()) / channels;
      std::vector<float> mine;
      std::vector<float> theirs;
      for (int64_t back = 1; back < kTaps && back <= length; ++back) {
        for (int64_t c = 0; c < channels; ++c) {
          mine.push_back(ring[static_cast<size_t>((length - back) % rows * channels + c)]);
          theirs.push_back(columns[static_cast<size_t>(c * kTaps + kTaps - back)]);
        }
      }
      EXPECT_LE(relative_frobenius(mine, theirs), kStates) << "prompt " << p << " layer " << layer;
    }
    rig_.store().close(sequence);
  }
}

TEST_P(GoldenBase, Pictures) {
  Capture capture;
  capture.want("vision.downsample", "y");
  for (int i = 0; i < 3; ++i) {
    const auto tensor = [i](const char* what) { return "image." + std::to_string(i) + "." + what; };
    const std::vector<float> pixels = gold_.floats(tensor("pixels"));
    const std::vector<int64_t> grid = gold_.integers(tensor("grid"));
    rig_.dispatch().set_observer(&capture);
    capture.clear();
    const ImageRows image = must(rig_.model().encode_image({.patches = pixels, .steps = grid[0], .height = grid[1], .width = grid[2]}), "picture");
    rig_.dispatch().set_observer(nullptr);
    EXPECT_LE(relative_frobenius(capture.at("vision.downsample", -1), gold_.floats(tensor("hidden"))), 1e-4) << i;
    EXPECT_LE(relative_frobenius(rig_.host(image.rows), gold_.floats(tensor("embeds"))), 1e-4) << i;
    const std::vector<TokenId> ids = gold_.tokens(tensor("ids"));
    const auto first = std::find(ids.begin(), ids.end(), rig_.model().info().image_token);
    const SequenceId sequence = rig_.open();
    const std::vector<float> logits =
        rig_.feed(sequence, ids, ItemKind::kPrefill, Logits::kAll, {{.begin = first - ids.begin(), .rows = image.rows}});
    EXPECT_LE(worst_difference(logits, gold_.floats(tensor("logits"))), kLogits) << i;
    rig_.store().close(sequence);
  }
}

TEST_P(GoldenBase, TemporalStepsDoNotSeeEachOther) {
  const std::vector<float> pixels = gold_.floats("image.2.pixels");  // 6 x 8 patches
  const auto encode = [&](std::span<const float> patches, int64_t steps, int64_t height) {
    const ImageRows rows = must(rig_.model().encode_image({.patches = patches, .steps = steps, .height = height, .width = 4}), "picture");
    return rig_.host(rows.rows);
  };
  // Read as three steps of 4 x 4 patches, and each of them alone.
  const std::vector<float> together = encode(pixels, 3, 4);
  std::vector<float> apart;
  const size_t step = pixels.size() / 3;
  for (size_t i = 0; i < 3; ++i) {
    const std::vector<float> one = encode(std::span(pixels).subspan(i * step, step), 1, 4);
    apart.insert(apart.end(), one.begin(), one.end());
  }
  EXPECT_TRUE(same_bits(together, apart));
  EXPECT_GT(worst_difference(together, encode(pixels, 1, 12)), 1e-3);
  EXPECT_FALSE(rig_.model().encode_image({.patches = pixels, .steps = 1, .height = 5, .width = 8}).has_value());
  EXPECT_FALSE(rig_.model().encode_image({.patches = pixels, .steps = 1, .height = 4, .width = 8}).has_value());
}

INSTANTIATE_TEST_SUITE_P(Tables, GoldenBase, testing::Values(true, false), [](const auto& test) { return test.param ? "reference" : "best"; });

}  // namespace
}  // namespace lathe::models::golden
