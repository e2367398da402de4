// Products of INT8 codes over the emulation: all forms give the integers of the plain kernel, also where blocks share tokens or cut channels.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "kernels/cuda/codes_args.h"

namespace lathe::kernels::cuda {
namespace {

size_t size(int64_t n) { return static_cast<size_t>(n); }

/// Two matrices with the same x.
class Codes {
 public:
  Codes(int32_t tokens, int32_t cols, std::vector<int32_t> rows, uint32_t seed) : tokens_(tokens), cols_(cols), rows_(std::move(rows)) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<int> code(-128, 127);
    std::uniform_real_distribution<float> value(-1, 1);
    for (const int32_t n : rows_) {
      std::vector<int8_t>& weights = weights_.emplace_back(size(int64_t{n} * cols));
      for (int8_t& w : weights) w = static_cast<int8_t>(code(random));
      std::vector<float>& scales = scales_.emplace_back(size(n));
      for (float& s : scales) s = value(random);
    }
    for (int64_t i = 0; i < int64_t{tokens} * cols; ++i) x_.push_back(value(random));
    codes_.resize(size(codes_bytes(tokens, cols)));
    x_scales_.resize(size(tokens));
    launch_to_codes({.x = {x_.data(), cols},
                     .amax = nullptr,
                     .codes = codes_.data(),
                     .rows = codes_rows(tokens),
                     .scales = x_scales_.data(),
                     .counters = nullptr,
                     .tokens = tokens,
                     .cols = cols,
                     .counter_count = 0},
                    nullptr);
  }
  /// y of all parts, one after the other.
  std::vector<float> run(bool plain) {
    CodesArgs args{};
    args.x = codes_.data(), args.x_rows = codes_rows(tokens_), args.x_scales = x_scales_.data(), args.tokens = tokens_, args.cols = cols_;
    int64_t total = 0;
    for (const int32_t n : rows_) total += n;
    std::vector<float> y(size(total * tokens_), -1e30f);
    int64_t at = 0;
    for (size_t i = 0; i < rows_.size(); ++i) {
      args.parts[args.count++] = {.weight = weights_[i].data(),
                                  .stride = cols_,
                                  .scales = scales_[i].data(),
                                  .scale_stride = 1,
                                  .bias = {nullptr, Type::kF32},
                                  .y = y.data() + at,
                                  .y_stride = rows_[i],
                                  .rows = rows_[i],
                                  .integers = false};
      at += int64_t{rows_[i]} * tokens_;
    }
    if (plain) {
      launch_codes_plain(args, nullptr);
      return y;
    }
    cuts_ = codes_counters(args) > 0;
    std::vector<int32_t> counters(size(codes_counters(args))), partial(size(codes_partial_bytes(args) / 4));
    launch_codes_wgmma(args, counters.data(), partial.data(), nullptr);
    return y;
  }
  bool cuts() const { return cuts_; }

 private:
  int32_t tokens_, cols_;
  std::vector<int32_t> rows_;
  std::vector<std::vector<int8_t>> weights_;
  std::vector<std::vector<float>> scales_;
  std::vector<float> x_, x_scales_;
  std::vector<int8_t> codes_;
  bool cuts_ = false;
};

TEST(Codes, BlocksThatShareTokensGiveTheBitsOfThePlainKernel) {
  Codes codes(300, 272, {130, 40}, 1);
  EXPECT_EQ(codes.run(false), codes.run(true));
}

TEST(Codes, CutsOfTheChannelsChangeNoBit) {
  for (const int32_t tokens : {1, 11, 64}) {
    Codes codes(tokens, 1040, {70}, static_cast<uint32_t>(tokens));
    const std::vector<float> found = codes.run(false);
    EXPECT_TRUE(codes.cuts()) << tokens;
    EXPECT_EQ(found, codes.run(true)) << tokens;
  }
}

TEST(Codes, TilesOf128TokensGiveTheBitsOfThePlainKernel) {
  Codes codes(100, 144, {72}, 5);
  EXPECT_EQ(codes.run(false), codes.run(true));
}

}  // namespace
}  // namespace lathe::kernels::cuda
