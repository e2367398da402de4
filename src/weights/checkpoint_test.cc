#include "weights/checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

namespace lathe::weights {
namespace {

namespace fs = std::filesystem;

/// An empty folder of its own for every test.
class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() /
              fmt::format("lathe_checkpoint_{}_{}", ::getpid(), ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& file, std::initializer_list<const char*> names) {
    std::vector<NamedView> tensors;
    for (const char* name : names) tensors.push_back({name, tensor::make_view(values_, DType::kF32, {2, 3})});
    ASSERT_TRUE(write_safetensors(folder_ / file, tensors).has_value());
  }
  void write_text(const std::string& file, const std::string& text) { ASSERT_TRUE(base::write_file(folder_ / file, text).has_value()); }
  std::string refused() {
    const auto checkpoint = Checkpoint::open(folder_);
    EXPECT_FALSE(checkpoint.has_value());
    return checkpoint ? "" : checkpoint.error().message;
  }

  fs::path folder_;
  float values_[6] = {1, 2, 3, 4, 5, 6};
};

void expect_parts(const std::string& message, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
}

TEST_F(CheckpointTest, SingleFileEveryTensorOnce) {
  write("model.safetensors", {"a", "b"});
  auto checkpoint = Checkpoint::open(folder_);
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->size(), 2u);
  EXPECT_EQ(checkpoint->data_bytes(), 48u);
  const auto a = checkpoint->take("a");
  ASSERT_TRUE(a.has_value());
  EXPECT_EQ(a->dim(1), 3);
  EXPECT_EQ(a->f32()[5], 6.0f);
  expect_parts(checkpoint->finish().error().message, {"1 of 2", "'b'", "f32[2, 3]", "model.safetensors"});
  expect_parts(checkpoint->take("a").error().message, {"'a'", "used twice"});
  EXPECT_EQ(checkpoint->take("c").error().code, Code::kNotFound);
  ASSERT_TRUE(checkpoint->take("b").has_value());
  EXPECT_TRUE(checkpoint->finish().has_value());
}

TEST_F(CheckpointTest, ShardsWithIndex) {
  write("model-1.safetensors", {"a"});
  write("model-2.safetensors", {"b", "c"});
  write_text("model.safetensors.index.json",
             R"({"metadata":{"total_size":72},"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors","c":"model-2.safetensors"}})");
  auto checkpoint = Checkpoint::open(folder_);
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(checkpoint->file_of("b"), (folder_ / "model-2.safetensors").string());
  for (const char* name : {"a", "b", "c"}) EXPECT_TRUE(checkpoint->take(name).has_value());
  EXPECT_TRUE(checkpoint->finish().has_value());
}

TEST_F(CheckpointTest, IndexAndShardsMustAgree) {
  write("model-1.safetensors", {"a"});
  write("model-2.safetensors", {"b"});
  const auto index = [&](const char* map) { write_text("model.safetensors.index.json", fmt::format(R"({{"weight_map":{}}})", map)); };
  index(R"({"a":"model-1.safetensors","b":"model-3.safetensors"})");
  expect_parts(refused(), {"model-3.safetensors", "does not exist"});
  index(R"({"a":"model-2.safetensors","b":"model-1.safetensors"})");
  expect_parts(refused(), {"'a'", "model-1.safetensors", "model-2.safetensors"});
  index(R"({"a":"model-1.safetensors","b":"model-2.safetensors","c":"model-2.safetensors"})");
  expect_parts(refused(), {"'c'", "not in its shard", "model-2.safetensors"});
  write("model-2.safetensors", {"b", "z"});
  index(R"({"a":"model-1.safetensors","b":"model-2.safetensors"})");
  expect_parts(refused(), {"'z'", "not in the index"});
  write("model-2.safetensors", {"b", "a"});
  expect_parts(refused(), {"'a'", "also in"});
  index(R"({"a":"../model-1.safetensors"})");
  expect_parts(refused(), {"'a'", "file name"});
  write_text("model.safetensors.index.json", "{}");
  expect_parts(refused(), {"weight_map"});
}

TEST_F(CheckpointTest, MissingAndBrokenFiles) {
  expect_parts(refused(), {folder_.string(), "model.safetensors"});
  write_text("model.safetensors", "short");
  expect_parts(refused(), {"model.safetensors: ", "5 bytes"});
  EXPECT_EQ(Checkpoint::open(folder_ / "no_such_folder").error().code, Code::kNotFound);
}

TEST_F(CheckpointTest, UnalignedTensorsAreCopied) {
  // A header of odd length puts every float at an odd address.
  const std::string json = R"({"w":{"dtype":"F32","shape":[],"data_offsets":[0,4]}} )";
  const std::string padded = json.size() % 2 == 0 ? json + " " : json;
  const uint64_t length = padded.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  file += padded;
  const float value = 2.5f;
  file.append(reinterpret_cast<const char*>(&value), 4);
  write_text("model.safetensors", file);
  auto checkpoint = Checkpoint::open(folder_);
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  const auto view = checkpoint->take("w");
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view->data) % 4, 0u);
  EXPECT_EQ(view->rank, 1);
  EXPECT_EQ(view->f32()[0], 2.5f);
}

}  // namespace
}  // namespace lathe::weights
