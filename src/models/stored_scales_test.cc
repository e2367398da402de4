// Goal: codes without their scales, scales without codes, and scales that mean nothing are one sentence with tensor and numbers.

#include "models/stored_scales.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "weights/safetensors.h"

namespace lathe::models {
namespace {

using weights::Checkpoint;
using weights::NamedView;

void expect_parts(const std::string& message, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
}

/// A checkpoint of a matrix "w" of codes [3, 4] with what belongs to it.
class StoredScalesTest : public ::testing::Test {
 protected:
  StoredScalesTest() {
    config_.weights = WeightFormat::kInt8;
    path_ = (std::filesystem::temp_directory_path() / fmt::format("lathe_scales_{}_{}.safetensors", ::getpid(), ++count)).string();
  }

 public:
  ~StoredScalesTest() override { std::filesystem::remove(path_); }

 protected:
  /// Stores the matrix with the given views and binds it.
  Result<MatrixView> bind(DType dtype, std::vector<NamedView> more) {
    more.push_back({"w", tensor::make_view(codes_.data(), dtype, {3, 4})});
    EXPECT_TRUE(weights::write_safetensors(path_, more).has_value());
    auto opened = Checkpoint::open(path_);
    EXPECT_TRUE(opened.has_value());
    checkpoint_.emplace(std::move(*opened));
    StoredScales scales(config_, *checkpoint_);
    LATHE_TRY_VOID(scales.check_description("w"));
    LATHE_TRY(const View view, scales.take("w", 3, 4));
    LATHE_TRY(const View values, checkpoint_->take("w"));
    const MatrixView matrix = dtype == DType::kI8 ? int8_matrix(values, view) : fp8_matrix(values, view);
    LATHE_TRY_VOID(scales.check_values("w", matrix));
    LATHE_TRY_VOID(checkpoint_->finish());
    return matrix;
  }
  Result<MatrixView> bind_scales(std::vector<float> values) {
    scales_ = std::move(values);
    return bind(DType::kI8, {{"w_scale", tensor::make_view(scales_.data(), DType::kF32, {3, 1})}});
  }
  std::string refused(const Result<MatrixView>& result) {
    EXPECT_FALSE(result.has_value());
    return result ? "" : result.error().message;
  }

  static inline int count = 0;
  std::string path_;
  QuantizationConfig config_;
  std::vector<int8_t> codes_ = {1, -2, 3, 4, 0, 0, 0, 0, -128, 127, 5, 6};
  std::vector<float> scales_ = {0.5f, 0.25f, 2.0f};
  std::optional<Checkpoint> checkpoint_;
};

TEST_F(StoredScalesTest, OnePerRow) {
  const auto matrix = bind_scales({0.5f, 0.0f, 2.0f});  // the row of zeros may have the scale 0
  ASSERT_TRUE(matrix.has_value()) << matrix.error().message;
  EXPECT_EQ(matrix->block_rows, 1);
  EXPECT_EQ(matrix->block_cols, 4);
  EXPECT_EQ(matrix->scales.f32()[2], 2.0f);
}

TEST_F(StoredScalesTest, Bf16WithoutASecondDimensionAndZeroOffsets) {
  std::vector<uint16_t> half(3);
  for (size_t i = 0; i < 3; ++i) half[i] = tensor::float_to_bf16(scales_[i]);
  std::vector<uint16_t> offsets(3, 0);
  const std::vector<NamedView> more = {{"w_scale", tensor::make_view(half.data(), DType::kBF16, {3})},
                                       {"w_offset", tensor::make_view(offsets.data(), DType::kBF16, {3, 1})}};
  const auto matrix = bind(DType::kI8, more);
  ASSERT_TRUE(matrix.has_value()) << matrix.error().message;
  EXPECT_EQ(matrix->scales.dtype, DType::kF32);
  EXPECT_EQ(matrix->scales.rank, 2);
  EXPECT_EQ(matrix->scales.f32()[1], 0.25f);
  offsets[1] = tensor::float_to_bf16(3.0f);
  expect_parts(refused(bind(DType::kI8, more)), {"w_offset", "is 3 in row 1", "symmetric"});
}

TEST_F(StoredScalesTest, CodesAndScalesBelongTogether) {
  expect_parts(refused(bind(DType::kI8, {})), {"'w'", "i8", "has no 'w_scale'"});
  const NamedView scale = {"w_scale", tensor::make_view(scales_.data(), DType::kF32, {3, 1})};
  expect_parts(refused(bind(DType::kF8E4M3, {scale})), {"'w'", "f8_e4m3", "'w_scale'", "only i8"});
  expect_parts(refused(bind(DType::kI8, {scale, {"w_scale_inv", tensor::make_view(scales_.data(), DType::kF32, {1, 1})}})),
               {"'w'", "i8", "'w_scale_inv'", "only f8_e4m3"});
  expect_parts(refused(bind(DType::kI8, {{"w_scale", tensor::make_view(scales_.data(), DType::kF32, {1, 1})}})),
               {"'w_scale'", "f32[1, 1]", "[3, 1]", "each row of 'w'"});
  expect_parts(refused(bind(DType::kI8, {{"w_scale", tensor::make_view(scales_.data(), DType::kI32, {3, 1})}})), {"'w_scale'", "i32[3, 1]", "f32"});
  config_.weights = WeightFormat::kFp8;
  expect_parts(refused(bind(DType::kI8, {scale})), {"'w'", "i8", "quantization_config", "quant_model_description.json"});
}

TEST_F(StoredScalesTest, ScalesArePositiveNumbers) {
  expect_parts(refused(bind_scales({0.5f, 1, std::numeric_limits<float>::quiet_NaN()})), {"'w'", "nan", "[2, 0]", "positive"});
  expect_parts(refused(bind_scales({-0.5f, 1, 1})), {"-0.5", "[0, 0]"});
  expect_parts(refused(bind_scales({1, std::numeric_limits<float>::infinity(), 1})), {"inf", "[1, 0]"});
  expect_parts(refused(bind_scales({0, 1, 1})), {"scale 0 at [0, 0]", "not all its codes are 0"});
  scales_ = {0};
  const NamedView fp8 = {"w_scale_inv", tensor::make_view(scales_.data(), DType::kF32, {1, 1})};
  expect_parts(refused(bind(DType::kF8E4M3, {fp8})), {"scale 0", "not all its codes are 0"});
  codes_.assign(12, static_cast<int8_t>(-128));  // −0 as E4M3
  EXPECT_TRUE(bind(DType::kF8E4M3, {fp8}).has_value());
}

TEST_F(StoredScalesTest, TheDescriptionDecides) {
  auto& described = config_.described.emplace();
  expect_parts(refused(bind_scales({1, 1, 1})), {"'w'", "i8", "does not name it"});
  described["w"] = false;
  expect_parts(refused(bind_scales({1, 1, 1})), {"'w'", "i8", "FLOAT"});
  described["w"] = true;
  EXPECT_TRUE(bind_scales({1, 1, 1}).has_value());
  expect_parts(refused(bind(DType::kF8E4M3, {})), {"'w'", "f8_e4m3", "W8A8_DYNAMIC"});
}

}  // namespace
}  // namespace lathe::models
