#include "weights/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "base/file.h"
#include "base/limits.h"

namespace lathe::weights {
namespace {

/// The bytes of a file with this header and `data_bytes` of data.
std::string make_file(std::string_view json, size_t data_bytes) {
  const uint64_t length = json.size();
  std::string out(sizeof(length), '\0');
  std::memcpy(out.data(), &length, sizeof(length));
  out += json;
  out.append(data_bytes, 'x');
  return out;
}

Result<SafetensorsHeader> parse_text(const std::string& file) {
  return parse_safetensors({reinterpret_cast<const std::byte*>(file.data()), file.size()}, "f.safetensors");
}

/// The error text of a file that must be refused.
std::string refused(const std::string& file) {
  const auto header = parse_text(file);
  EXPECT_FALSE(header.has_value());
  if (header) return "";
  EXPECT_EQ(header.error().message.find("f.safetensors: "), 0u) << header.error().message;
  return header.error().message;
}

void expect_parts(const std::string& message, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
}

TEST(Safetensors, ReadsEveryDtypeInFileOrder) {
  const auto header = parse_text(make_file(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[8,11]},"a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},
          "c":{"dtype":"U8","shape":[1],"data_offsets":[11,12]},"d":{"dtype":"F16","shape":[2,0],"data_offsets":[12,12]},
          "e":{"dtype":"I8","shape":[1],"data_offsets":[12,13]},"f":{"dtype":"BF16","shape":[1,1,1,1,1],"data_offsets":[13,15]},
          "g":{"dtype":"F32","shape":[1],"data_offsets":[15,19]},"h":{"dtype":"I32","shape":[1],"data_offsets":[19,23]}})",
      23));
  ASSERT_TRUE(header.has_value()) << header.error().message;
  ASSERT_EQ(header->tensors.size(), 8u);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[1].name, "b");
  EXPECT_EQ(header->tensors[1].dtype, DType::kF8E4M3);
  EXPECT_TRUE(header->tensors[0].shape.empty());
  EXPECT_EQ(header->metadata.at(0), (std::pair<std::string, std::string>("format", "pt")));
}

TEST(Safetensors, RefusesTruncatedFiles) {
  expect_parts(refused("abc"), {"3 bytes"});
  expect_parts(refused(make_file("{}", 0).substr(0, 9)), {"needs 2 bytes", "only 1"});
  expect_parts(refused(make_file(R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", 15)), {"'w'", "16", "15 bytes", "truncated"});
}

TEST(Safetensors, RefusesAHugeHeader) {
  std::string file = make_file("{}", 100);
  const uint64_t length = base::kLimits.safetensors_header_bytes + 1;
  std::memcpy(file.data(), &length, sizeof(length));
  expect_parts(refused(file), {std::to_string(length), std::to_string(base::kLimits.safetensors_header_bytes)});
  const uint64_t all_ones = ~uint64_t{0};
  std::memcpy(file.data(), &all_ones, sizeof(all_ones));
  refused(file);
}

TEST(Safetensors, RefusesBadHeaders) {
  refused(make_file("{", 0));
  expect_parts(refused(make_file("[]", 0)), {"an array"});
  expect_parts(refused(make_file(R"({"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0)),
               {"duplicate key 'w'"});
  expect_parts(refused(make_file(R"({"w":{"dtype":"F8_E5M2","shape":[1],"data_offsets":[0,1]}})", 1)), {"'w'", "F8_E5M2", "F8_E4M3"});
  expect_parts(refused(make_file(R"({"w":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", 8)), {"'w'", "F64"});
  expect_parts(refused(make_file(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1)), {"'w'", "[begin, end]"});
  expect_parts(refused(make_file(R"({"w":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1)), {"'w'", "-1"});
  expect_parts(refused(make_file(R"({"w":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})", 1)), {"'w'", "1.5"});
  expect_parts(refused(make_file(R"({"w":{"dtype":"U8","shape":[1,1,1,1,1,1],"data_offsets":[0,1]}})", 1)), {"'w'", "6 dimensions"});
  expect_parts(refused(make_file(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1)), {"'w'", "[1, 0]"});
  expect_parts(refused(make_file(R"({"w":{"shape":[1],"data_offsets":[0,1]}})", 1)), {"'w'", "dtype"});
  expect_parts(refused(make_file(R"({"w":7})", 0)), {"'w'"});
  expect_parts(refused(make_file(R"({"__metadata__":{"a":1}})", 0)), {"__metadata__", "'a'"});
}

TEST(Safetensors, RefusesShapesThatDoNotFitTheirBytes) {
  expect_parts(refused(make_file(R"({"w":{"dtype":"BF16","shape":[3,5],"data_offsets":[0,28]}})", 28)), {"'w'", "bf16[3, 5]", "30", "28"});
  expect_parts(refused(make_file(R"({"w":{"dtype":"BF16","shape":[3,5],"data_offsets":[0,32]}})", 32)), {"'w'", "bf16[3, 5]", "30", "32"});
  expect_parts(refused(make_file(R"({"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0)), {"'w'", "too large"});
  expect_parts(refused(make_file(R"({"w":{"dtype":"F32","shape":[9223372036854775807],"data_offsets":[0,0]}})", 0)), {"'w'", "too large"});
  // A dimension of 0 does not make the others harmless: their product is a stride.
  for (const char* shape : {"0,4611686018427387904,4611686018427387904", "4611686018427387904,0,4611686018427387904", "4611686018427387904,4,0"}) {
    const std::string json = fmt::format(R"({{"w":{{"dtype":"U8","shape":[{}],"data_offsets":[0,0]}}}})", shape);
    expect_parts(refused(make_file(json, 0)), {"'w'", "too large"});
  }
}

TEST(Safetensors, RefusesOverlapsHolesAndRests) {
  const auto two = [](std::string_view a, std::string_view b) {
    return fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":[{}]}},"b":{{"dtype":"U8","shape":[4],"data_offsets":[{}]}}}})", a, b);
  };
  EXPECT_TRUE(parse_text(make_file(two("0,4", "4,8"), 8)).has_value());
  expect_parts(refused(make_file(two("0,4", "3,7"), 7)), {"'b'", "[3, 7]", "overlaps 'a'", "4"});
  expect_parts(refused(make_file(two("0,4", "0,4"), 4)), {"overlaps"});
  expect_parts(refused(make_file(two("0,4", "6,10"), 10)), {"2 bytes", "'a'", "'b'"});
  expect_parts(refused(make_file(two("1,5", "5,9"), 9)), {"1 bytes", "'a'"});
  expect_parts(refused(make_file(two("0,4", "4,8"), 11)), {"3 bytes follow", "'b'"});
}

TEST(Safetensors, SurvivesRandomDamage) {
  const std::string good = make_file(
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})",
      32);
  ASSERT_TRUE(parse_text(good).has_value());
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string bad = good;
    const size_t changes = 1 + random() % 4;
    for (size_t i = 0; i < changes; ++i) bad[random() % bad.size()] = static_cast<char>(random());
    if (random() % 4 == 0) bad.resize(random() % bad.size());
    const auto header = parse_text(bad);
    if (!header) continue;
    for (const TensorEntry& entry : header->tensors) ASSERT_LE(header->data_begin + entry.end, bad.size());
  }
}

TEST(Safetensors, WritesWhatItReads) {
  const std::string path = std::filesystem::temp_directory_path() / fmt::format("lathe_writer_{}.safetensors", ::getpid());
  std::vector<float> f32 = {1, 2, 3, 4, 5, 6};
  std::vector<uint8_t> u8 = {7, 8, 9};
  std::vector<uint16_t> bf16 = {0x3F80};
  const std::vector<NamedView> tensors = {{"bytes", tensor::make_view(u8.data(), DType::kU8, {3})},
                                          {"half", tensor::make_view(bf16.data(), DType::kBF16, {1})},
                                          {"wide", tensor::make_view(f32.data(), DType::kF32, {2, 3})}};
  const std::vector<std::pair<std::string, std::string>> metadata = {{"made", "here"}};
  ASSERT_TRUE(write_safetensors(path, tensors, metadata).has_value());
  const auto mapped = base::MappedFile::open(path);
  ASSERT_TRUE(mapped.has_value());
  const auto header = parse_safetensors(mapped->bytes(), path);
  ASSERT_TRUE(header.has_value()) << header.error().message;
  ASSERT_EQ(header->tensors.size(), 3u);
  EXPECT_EQ(header->tensors[0].name, "wide");
  EXPECT_EQ(header->tensors[2].name, "bytes");
  EXPECT_EQ(header->data_begin % 8, 0u);
  EXPECT_EQ(std::memcmp(mapped->bytes().data() + header->data_begin, f32.data(), 24), 0);
  EXPECT_EQ(header->metadata, metadata);
  std::filesystem::remove(path);

  const std::vector<NamedView> twice = {tensors[0], tensors[0]};
  EXPECT_FALSE(write_safetensors(path, twice).has_value());
  EXPECT_EQ(write_safetensors("/nonexistent/x.safetensors", tensors).error().code, Code::kUnavailable);
  EXPECT_FALSE(base::file_exists(path));
}

}  // namespace
}  // namespace lathe::weights
