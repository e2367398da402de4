// Goal: rows are rounded to the nearest value that a reader gets; what the format cannot hold is an error; a vocabulary has a token for every row.
// Whole files are read back in tests/models/gguf_export_test.cc.
#include "weights/gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tensor/dtype.h"
#include "weights/gguf_vocabulary.h"

namespace lathe::weights {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<std::byte> encoded(GgufType type, const std::vector<float>& row) {
  std::vector<std::byte> out(gguf_row_bytes(type, static_cast<int64_t>(row.size())));
  const auto done = gguf_encode_row(type, row, out);
  EXPECT_TRUE(done.has_value()) << done.error().message;
  return out;
}

TEST(Gguf, BytesOfRows) {
  EXPECT_EQ(gguf_row_bytes(GgufType::kF32, 64), 256u);
  EXPECT_EQ(gguf_row_bytes(GgufType::kF16, 64), 128u);
  EXPECT_EQ(gguf_row_bytes(GgufType::kBF16, 64), 128u);
  EXPECT_EQ(gguf_row_bytes(GgufType::kQ8, 64), 68u);
}

TEST(Gguf, BlocksOfEightBits) {
  std::vector<float> row(64);
  for (size_t i = 0; i < 32; ++i) row[i] = static_cast<float>(i) - 100.0f;  // largest 100; the second block is zero
  const std::vector<std::byte> bytes = encoded(GgufType::kQ8, row);
  uint16_t bits = 0;
  std::memcpy(&bits, bytes.data(), 2);
  const float scale = tensor::f16_to_float(bits);
  EXPECT_NEAR(scale, 100.0f / 127, 100.0f / 127 * 0x1p-11);
  for (size_t i = 0; i < 32; ++i) {
    const auto code = static_cast<int8_t>(bytes[2 + i]);
    EXPECT_LE(std::abs(code * scale - row[i]), scale / 2 * 1.0001f) << i;
  }
  for (size_t i = 34; i < 68; ++i) EXPECT_EQ(bytes[i], std::byte{0}) << i;
}

TEST(Gguf, ScalesThatRoundDownDoNotOverflowTheCodes) {
  std::vector<float> row(32, 0.0f);
  for (int step = 0; step < 1000; ++step) {
    row[3] = -1.0f - static_cast<float>(step) * 0.0017f;
    const std::vector<std::byte> bytes = encoded(GgufType::kQ8, row);
    EXPECT_EQ(static_cast<int8_t>(bytes[5]), -127) << row[3];
  }
}

TEST(Gguf, ValuesThatATypeCannotHold) {
  std::vector<std::byte> out(256);
  const auto refused = [&](GgufType type, float value) {
    std::vector<float> row(32, 1.0f);
    row[7] = value;
    const auto done = gguf_encode_row(type, row, std::span(out).first(gguf_row_bytes(type, 32)));
    return done ? "" : done.error().message;
  };
  for (const GgufType type : {GgufType::kF32, GgufType::kF16, GgufType::kBF16, GgufType::kQ8}) {
    EXPECT_EQ(refused(type, 65504.0f), "") << gguf_type_name(type);
    EXPECT_EQ(refused(type, kInfinity), "value 7 is inf, expected a finite number");
    EXPECT_NE(refused(type, std::nanf("")).find("value 7 is nan"), std::string::npos);
  }
  EXPECT_EQ(refused(GgufType::kF16, -70000.0f), "value 7 is -70000, beyond the numbers of f16");
  EXPECT_NE(refused(GgufType::kQ8, 1e9f).find("reaches 1000000000"), std::string::npos);
  EXPECT_NE(refused(GgufType::kBF16, std::numeric_limits<float>::max()).find("bf16"), std::string::npos);
}

TEST(Gguf, NamesAreCheckedBeforeAnythingIsWritten) {
  const std::string path = testing::TempDir() + "lathe_gguf_names";
  const auto fill = [](size_t, uint64_t, std::span<std::byte>) -> Result<void> { return {}; };
  const std::vector<GgufKey> keys = {{"a", uint32_t{1}}, {"a", true}};
  EXPECT_EQ(write_gguf(path, keys, {}, fill, {}).error().message, "two keys of a GGUF file are called 'a'");
  const GgufTensor tensor{.name = "w", .shape = {2, 3}};
  const std::vector<GgufTensor> twice = {tensor, tensor};
  EXPECT_EQ(write_gguf(path, {}, twice, fill, {}).error().message, "two tensors of a GGUF file are called 'w'");
  const std::vector<GgufTensor> longest = {{.name = std::string(64, 'n'), .shape = {2}}};
  EXPECT_NE(write_gguf(path, {}, longest, fill, {}).error().message.find("64 bytes"), std::string::npos);
}

TEST(GgufVocabulary, HasATokenForEveryRow) {
  GgufVocabulary vocabulary;
  vocabulary.tokens = {"a", "", "<|x|>"};
  vocabulary.kinds = {GgufTokenKind::kNormal, GgufTokenKind::kUnused, GgufTokenKind::kControl};
  vocabulary.eos = 2;
  const auto keys = gguf_vocabulary_keys(vocabulary, 5);
  ASSERT_TRUE(keys.has_value());
  const auto value = [&](const char* name) {
    for (const GgufKey& key : *keys) {
      if (key.name == std::string("tokenizer.ggml.") + name) return key.value;
    }
    return decltype(GgufKey::value)(std::string("missing"));
  };
  EXPECT_EQ(std::get<std::vector<std::string>>(value("tokens")), (std::vector<std::string>{"a", "[PAD1]", "<|x|>", "[PAD3]", "[PAD4]"}));
  EXPECT_EQ(std::get<std::vector<int32_t>>(value("token_type")), (std::vector<int32_t>{1, 5, 3, 5, 5}));
  EXPECT_EQ(std::get<uint32_t>(value("eos_token_id")), 2u);
  EXPECT_EQ(std::get<std::string>(value("bos_token_id")), "missing");
  EXPECT_EQ(gguf_vocabulary_keys(vocabulary, 2).error().message, "the tokenizer has ids up to 2, the model has only 2 rows");
}

}  // namespace
}  // namespace lathe::weights
