// Goal: the canvas rule gives the published sizes, patches have the reference processor's order and values, and hostile files end in a sentence.
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/log.h"
#include "media/image.h"

namespace lathe::media {
namespace {

struct CanvasCase {
  int64_t h, w, canvas_h, canvas_w, content_h, content_w, tokens;
};

TEST(Canvas, PublishedVectors) {
  const CanvasCase cases[] = {{448, 448, 448, 448, 448, 448, 256},        {1, 1, 112, 112, 112, 112, 16},
                              {224, 224, 224, 224, 224, 224, 64},         {10, 1000, 28, 1008, 10, 1008, 36},
                              {100, 100, 112, 112, 112, 112, 16},         {720, 1280, 728, 1288, 720, 1280, 1196},
                              {200, 400, 224, 420, 200, 400, 120},        {3000, 3000, 2492, 2492, 2492, 2492, 7921},
                              {50, 60, 112, 140, 112, 134, 20},           {2500, 2500, 2492, 2492, 2492, 2492, 7921},
                              {1080, 1920, 1092, 1932, 1080, 1920, 2691}, {111, 111, 112, 112, 111, 111, 16},
                              {4000, 6000, 2044, 3052, 2034, 3052, 7957}, {113, 113, 140, 140, 113, 113, 25},
                              {768, 1024, 784, 1036, 768, 1024, 1036},    {20, 5000, 28, 5012, 20, 5000, 179},
                              {9000, 30, 9016, 56, 9000, 30, 644},        {5, 3, 168, 112, 168, 100, 24}};
  for (const CanvasCase& c : cases) {
    const CanvasSize size = choose_canvas(c.h, c.w, {});
    SCOPED_TRACE(testing::Message() << c.h << "x" << c.w);
    EXPECT_EQ(size.canvas_height, c.canvas_h);
    EXPECT_EQ(size.canvas_width, c.canvas_w);
    EXPECT_EQ(size.content_height, c.content_h);
    EXPECT_EQ(size.content_width, c.content_w);
    EXPECT_EQ(size.tokens({}), c.tokens);
  }
}

TEST(Resize, KeepsConstantsAndIdentity) {
  Image flat{.width = 9, .height = 7, .rgb = std::vector<uint8_t>(9 * 7 * 3, 200)};
  for (const uint8_t value : resize_bicubic(flat, 20, 4).rgb) EXPECT_EQ(value, 200);
  for (size_t i = 0; i < flat.rgb.size(); ++i) flat.rgb[i] = static_cast<uint8_t>(i * 37);
  EXPECT_EQ(resize_bicubic(flat, 7, 9).rgb, flat.rgb);
}

TEST(Png, GoldenPictureDecodesAndPads) {
  const Image image = read_image(LATHE_SOURCE_DIR "/data/golden/tiny/apple.png").value();
  const auto json = config::read_json_file(LATHE_SOURCE_DIR "/data/builtin/preprocessor_config.json").value();
  const PreprocessConfig config = parse_preprocess_config(json).value();
  const Patches patches = preprocess(image, config);
  EXPECT_EQ(patches.grid_height % 2, 0);
  EXPECT_EQ(static_cast<int64_t>(patches.values.size()), patches.grid_height * patches.grid_width * 1176);
}

TEST(Png, BadFilesEndInASentence) {
  const std::string good = base::read_file(LATHE_SOURCE_DIR "/data/golden/tiny/number.png", 1 << 20).value();
  const auto decode = [](const std::string& bytes) { return decode_png(std::as_bytes(std::span(bytes))); };
  ASSERT_TRUE(decode(good).has_value());
  for (size_t cut = 0; cut < good.size(); cut += 61) EXPECT_FALSE(decode(good.substr(0, cut)).has_value()) << cut;
  for (size_t at = 8; at < good.size(); at += 17) {
    std::string flipped = good;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x55);
    (void)decode(flipped);  // may or may not decode, must not crash
  }
  EXPECT_NE(decode("\xFF\xD8\xFF\xE0 jpeg").error().message.find("JPEG"), std::string::npos);
  EXPECT_NE(decode(std::string("RIFF\0\0\0\0WEBPVP8 ", 16)).error().message.find("WebP"), std::string::npos);
  for (const char* stub : {"", "RIFF", "RIFF8", "GIF8", "\xFF\xD8"}) EXPECT_FALSE(decode(stub).has_value()) << stub;
  EXPECT_NE(read_image("/nonexistent.png").error().message.find("/nonexistent.png"), std::string::npos);
}

TEST(Config, ErrorsNameTheKey) {
  const auto parse = [](const std::string& text) { return parse_preprocess_config(config::parse_json(text).value()); };
  struct Bad {
    const char *key, *value;
  };
  for (const Bad& bad : {Bad{"patch_size", "0"},
                         Bad{"image_std", "[1,0,1]"},
                         Bad{"image_std", "[1,-1,1]"},
                         Bad{"image_std", "[1,1e-50,1]"},
                         Bad{"image_std", "[1,1]"},
                         Bad{"image_mean", "[1,1e300,1]"},
                         Bad{"image_mean", "0.5"},
                         Bad{"rescale_factor", "0"},
                         Bad{"rescale_factor", "-0.0039"},
                         Bad{"rescale_factor", "255"},
                         Bad{"rescale_factor", "1e-300"},
                         Bad{"rescale_factor", "\"x\""},
                         Bad{"resample", "2"},
                         Bad{"resample", "\"bicubic\""},
                         Bad{"do_resize", "false"},
                         Bad{"do_rescale", "false"},
                         Bad{"do_normalize", "false"},
                         Bad{"do_normalize", "1"},
                         Bad{"do_convert_rgb", "false"},
                         Bad{"do_convert_rgb", "null"},
                         Bad{"min_image_tokens", "9000"},
                         Bad{"max_image_tokens", "8"}}) {
    const auto parsed = parse(std::string("{\"") + bad.key + "\":" + bad.value + "}");
    ASSERT_FALSE(parsed) << bad.key << bad.value;
    EXPECT_NE(parsed.error().message.find(std::string("'") + bad.key + "'"), std::string::npos) << parsed.error().message;
  }
  EXPECT_NE(parse(R"({"resample":2})").error().message.find("is 2"), std::string::npos);
  EXPECT_TRUE(parse(R"({"resample":3,"do_resize":true,"do_rescale":true,"do_normalize":true,"do_convert_rgb":true,"rescale_factor":0.0039})"));
}

TEST(Config, UnknownKeysAreWarnedOf) {
  struct Sink final : base::LogSink {
    void write(base::LogLevel, std::string_view message) override { lines += std::string(message) + "\n"; }
    std::string lines;
  } sink;
  base::set_log_sink(&sink);
  const auto parsed = parse_preprocess_config(config::parse_json(R"({"crop_size":{"height":224},"processor_class":"X","patch_size":14})").value());
  base::set_log_sink(nullptr);
  EXPECT_TRUE(parsed);
  EXPECT_NE(sink.lines.find("'crop_size'"), std::string::npos);
  EXPECT_EQ(sink.lines.find("processor_class"), std::string::npos);
}

}  // namespace
}  // namespace lathe::media
