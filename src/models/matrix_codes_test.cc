#include "models/matrix_codes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "models/glm5_next_tensors.h"
#include "models/quantize_report.h"
#include "models/stored_scales.h"
#include "tensor/quantised.h"
#include "tensor/rows.h"

namespace lathe::models {
namespace {

/// Normally distributed rows of different size, one of them zero.
class Random {
 public:
  Random(int64_t rows, int64_t cols) : values_(static_cast<size_t>(rows * cols)), rows_(rows), cols_(cols) {
    std::mt19937 random(20261130);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < values_.size(); ++i) {
      const int64_t row = static_cast<int64_t>(i) / cols;
      values_[i] = row == 3 ? 0.0f : normal(random) * std::ldexp(1.0f, static_cast<int>(row % 7) - 3);
    }
  }
  MatrixView view() { return {.values = tensor::make_view(values_.data(), DType::kF32, {rows_, cols_}), .scales = {}}; }
  float& at(int64_t row, int64_t col) { return values_[static_cast<size_t>(row * cols_ + col)]; }

 private:
  std::vector<float> values_;
  int64_t rows_, cols_;
};

/// All bytes, asked for in pieces of `piece` bytes.
std::vector<std::byte> values_of(MatrixCodes& codes, size_t bytes, size_t piece) {
  std::vector<std::byte> out(bytes);
  for (size_t at = 0; at < bytes; at += piece) {
    EXPECT_TRUE(codes.fill_values(at, std::span(out).subspan(at, std::min(piece, bytes - at))).has_value());
  }
  return out;
}
std::vector<float> scales_of(const MatrixCodes& codes, size_t count) {
  std::vector<float> out(count);
  EXPECT_TRUE(codes.fill_scales(0, std::as_writable_bytes(std::span(out))).has_value());
  return out;
}

TEST(MatrixCodes, ChannelsFollowTheRecipe) {
  constexpr int64_t kRows = 9, kCols = 40;
  Random source(kRows, kCols);
  MatrixCodes codes(source.view(), DType::kI8);
  const auto bytes = values_of(codes, kRows * kCols, 64);
  const auto scales = scales_of(codes, kRows);
  double worst = 0;
  for (int64_t r = 0; r < kRows; ++r) {
    const tensor::RunScale scale = tensor::run_scale(tensor::largest_magnitude(&source.at(r, 0), kCols), DType::kI8);
    EXPECT_EQ(scales[static_cast<size_t>(r)], scale.scale);
    double error = 0, square = 0;
    for (int64_t c = 0; c < kCols; ++c) {
      int8_t code = 0;
      tensor::store_code(DType::kI8, &code, 0, source.at(r, c), scale);
      EXPECT_EQ(static_cast<int8_t>(bytes[static_cast<size_t>(r * kCols + c)]), code);
      const double difference = static_cast<double>(static_cast<float>(code) * scale.scale) - static_cast<double>(source.at(r, c));
      error += difference * difference;
      square += static_cast<double>(source.at(r, c)) * static_cast<double>(source.at(r, c));
    }
    EXPECT_NEAR(codes.errors().error[static_cast<size_t>(r)], error, 1e-12 * square);
    EXPECT_NEAR(codes.errors().square[static_cast<size_t>(r)], square, 1e-12 * square);
    worst = std::max(worst, square > 0 ? std::sqrt(error / square) : 0);
  }
  EXPECT_EQ(matrix_errors(codes.errors()).worst_channel_rms, worst);
  EXPECT_LT(worst, 0.02);
  EXPECT_GT(worst, 0.001);
}

TEST(MatrixCodes, BlocksOfAMatrixThatFillsNone) {
  constexpr int64_t kRows = 130, kCols = 200;
  Random source(kRows, kCols);
  MatrixCodes codes(source.view(), DType::kF8E4M3);
  std::vector<std::byte> bytes = values_of(codes, kRows * kCols, 4096);
  std::vector<float> scales = scales_of(codes, 4);
  const MatrixView made =
      fp8_matrix(tensor::make_view(bytes.data(), DType::kF8E4M3, {kRows, kCols}), tensor::make_view(scales.data(), DType::kF32, {2, 2}));
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kCols; ++c) {
      const float scale = scales[static_cast<size_t>(r / kScaleBlock * 2 + c / kScaleBlock)];
      // Half a step of E4M3: 2^-4 of a normal code, 2^-10 in scales below that.
      EXPECT_LE(std::abs(tensor::value_as_float(made, r, c) - source.at(r, c)), std::max(std::abs(source.at(r, c)) / 15, scale / 1000))
          << r << " " << c;
    }
  }
}

TEST(MatrixCodes, PiecesChangeNoByte) {
  constexpr int64_t kRows = 150, kCols = 136;
  Random source(kRows, kCols);
  for (const DType to : {DType::kI8, DType::kF8E4M3, DType::kBF16}) {
    const size_t size = static_cast<size_t>(kRows * kCols) * tensor::dtype_bytes(to);
    MatrixCodes whole(source.view(), to);
    const auto expected = values_of(whole, size, size);
    for (const size_t piece : {8u, 24u, 1000u, 4096u}) {
      MatrixCodes codes(source.view(), to);
      EXPECT_EQ(values_of(codes, size, piece), expected) << tensor::dtype_name(to) << " " << piece;
      const QuantizedMatrix a = matrix_errors(codes.errors()), b = matrix_errors(whole.errors());
      EXPECT_NEAR(a.relative_rms, b.relative_rms, 1e-12);
      EXPECT_EQ(a.worst_channel, b.worst_channel);
    }
  }
}

TEST(MatrixCodes, NoNumbersAreRefused) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Random source(9, 40);
    source.at(5, 39) = bad;
    for (const DType to : {DType::kI8, DType::kF8E4M3, DType::kBF16}) {
      MatrixCodes codes(source.view(), to);
      std::vector<std::byte> out(9 * 40 * tensor::dtype_bytes(to));
      const auto done = codes.fill_values(0, out);
      ASSERT_FALSE(done.has_value());
      EXPECT_EQ(done.error().code, Code::kDataLoss);
      EXPECT_NE(done.error().message.find("row 5"), std::string::npos) << done.error().message;
    }
  }
}

TEST(MatrixCodes, ScalesFollowWhatChannelsAreWorth) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> row(256), weights(256, 1.0f);
  for (float& value : row) value = normal(random);
  // An outlier in a channel that carries nothing: the others get a finer scale, as fine as is tried.
  row[17] = 9, weights[17] = 0;
  RowClip clip = best_clip(row, weights);
  EXPECT_FLOAT_EQ(clip.amax, 9 * 0.7f);
  EXPECT_LT(clip.error, 0.6 * clip.error_plain);
  // The same outlier where it counts most keeps its place.
  weights[17] = 100;
  clip = best_clip(row, weights);
  EXPECT_GT(clip.amax, 8.8f);
  EXPECT_LE(clip.error, clip.error_plain);
  // No channel counts, and no value is there: nothing to gain.
  EXPECT_FLOAT_EQ(best_clip(row, std::vector<float>(256, 0.0f)).amax, 9);
  EXPECT_FLOAT_EQ(best_clip(std::vector<float>(4, 0.0f), std::vector<float>(4, 1.0f)).amax, 0);
  EXPECT_FALSE(std::isfinite(best_clip(std::vector<float>{1, std::numeric_limits<float>::quiet_NaN()}, std::vector<float>(2, 1.0f)).amax));
}

TEST(MatrixCodes, WeighedCodesAreWrittenAndCountedOnce) {
  constexpr int64_t kRows = 9, kCols = 40;
  Random source(kRows, kCols);
  source.at(2, 5) = 50;
  std::vector<float> weights(kCols, 1.0f);
  weights[5] = 0;
  MatrixCodes codes(source.view(), DType::kI8, weights), in_pieces(source.view(), DType::kI8, weights), plain(source.view(), DType::kI8);
  const auto bytes = values_of(codes, kRows * kCols, kRows * kCols);
  EXPECT_EQ(values_of(in_pieces, kRows * kCols, 7), bytes);
  const auto scales = scales_of(codes, kRows), plain_scales = scales_of(plain, kRows);
  double error = 0, square = 0;
  for (int64_t r = 0; r < kRows; ++r) {
    const RowClip clip = best_clip({&source.at(r, 0), static_cast<size_t>(kCols)}, weights);
    EXPECT_EQ(scales[static_cast<size_t>(r)], tensor::run_scale(clip.amax, DType::kI8).scale);
    error += clip.error, square += clip.square;
    double seen = 0;  // of the codes that were written
    for (int64_t c = 0; c < kCols; ++c) {
      const double value =
          static_cast<double>(static_cast<int8_t>(bytes[static_cast<size_t>(r * kCols + c)])) * static_cast<double>(scales[static_cast<size_t>(r)]);
      seen += static_cast<double>(weights[static_cast<size_t>(c)]) * (value - static_cast<double>(source.at(r, c))) *
              (value - static_cast<double>(source.at(r, c)));
    }
    EXPECT_NEAR(seen, clip.error, 1e-5 * clip.square);
  }
  EXPECT_LT(scales[2], plain_scales[2]);
  for (const MatrixCodes* one : {&codes, &in_pieces}) {
    const QuantizedMatrix report = matrix_errors(one->errors());
    EXPECT_DOUBLE_EQ(report.output_rms, std::sqrt(error / square));
    EXPECT_LT(report.output_rms, report.output_rms_plain);
    EXPECT_GE(report.channels_clipped, 1);
  }
  EXPECT_EQ(matrix_errors(plain.errors()).output_rms, 0);
}

TEST(QuantizeReport, IsReadAsWritten) {
  const std::vector<QuantizedMatrix> rows = {{.name = "a.weight",
                                              .kind = "kda",
                                              .from = DType::kBF16,
                                              .to = DType::kI8,
                                              .rows = 3,
                                              .cols = 4,
                                              .relative_rms = 0.01,
                                              .worst_channel = 2,
                                              .worst_channel_rms = 0.02,
                                              .error = 1e-4,
                                              .square = 1,
                                              .bytes_before = 24,
                                              .bytes_after = 24},
                                             {.name = "b.weight",
                                              .kind = "kda",
                                              .to = DType::kI8,
                                              .error = 3e-4,
                                              .square = 3,
                                              .output_rms = 0.01,
                                              .output_rms_plain = 0.02,
                                              .channels_clipped = 2}};
  const auto read = read_matrices(matrices_json(rows));
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(matrices_json(*read).dump(), matrices_json(rows).dump());
  const auto kinds = kinds_of(rows);
  ASSERT_EQ(kinds.size(), 1u);
  EXPECT_EQ(kinds[0].matrices, 2);
  EXPECT_NEAR(kinds[0].relative_rms, 0.01, 1e-12);
  EXPECT_FALSE(read_matrices(config::Json::Array{config::Json(1)}).has_value());
  EXPECT_FALSE(read_matrices(config::Json::Object{}).has_value());
}

}  // namespace
}  // namespace lathe::models
