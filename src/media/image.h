#pragma once
// Pictures: decoding within limits, and the preprocessing of the vision tower (spec glm5_next §3.1, §3.2).

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/json.h"

namespace lathe::media {

/// 8-bit RGB, rows top to bottom, pixels interleaved.
struct Image {
  int32_t width = 0;
  int32_t height = 0;
  std::vector<uint8_t> rgb;
};

/// Decodes a PNG: palettes and grey become RGB, alpha is dropped, 16 bits are cut to 8, no gamma is applied.
/// Errors: invalid_argument (no PNG, truncated, larger than base/limits.h allows), each with the reason.
Result<Image> decode_png(std::span<const std::byte> bytes);
/// Reads and decodes; messages name the file. Formats other than PNG are named as unsupported.
Result<Image> read_image(const std::string& path);

/// preprocessor_config.json.
struct PreprocessConfig {
  int32_t patch_size = 14;
  int32_t temporal_patch_size = 2;
  int32_t merge_size = 2;
  int64_t min_image_tokens = 16;
  int64_t max_image_tokens = 8000;
  float mean[3] = {0.48145466f, 0.4578275f, 0.40821073f};
  float std[3] = {0.26862954f, 0.26130258f, 0.27577711f};
  float rescale = 1.0f / 255.0f;
};
/// Steps that are switched off, other resampling than bicubic and numbers without sense are errors that name key and value; unknown keys are warned of.
Result<PreprocessConfig> parse_preprocess_config(const config::Json& json);
/// FOLDER/preprocessor_config.json; the released values if there is none. Messages name the file.
Result<PreprocessConfig> read_preprocess_config(const std::string& folder);

/// Sizes in pixels. The content is what the picture is resized to; the canvas around it is padded with zeros on the right and below.
struct CanvasSize {
  int64_t canvas_height = 0, canvas_width = 0;
  int64_t content_height = 0, content_width = 0;
  int64_t tokens(const PreprocessConfig& config) const {
    const int64_t side = config.patch_size * config.merge_size;
    return canvas_height / side * (canvas_width / side);
  }
};
/// The released rule, ratios in double. height, width ≥ 1.
CanvasSize choose_canvas(int64_t height, int64_t width, const PreprocessConfig& config);

/// Antialiased bicubic resize (a = −0.5), horizontal pass then vertical, each rounded to 8 bits.
Image resize_bicubic(const Image& image, int32_t height, int32_t width);

/// What the vision tower reads.
struct Patches {
  int64_t grid_height = 0, grid_width = 0;  ///< in patches
  /// [grid_height · grid_width, 3 · temporal · patch · patch]; values in order channel, time, row, column; patches in merge blocks of merge² that form one token.
  std::vector<float> values;
};
/// Resizes, pads with zeros before normalising, normalises, cuts into patches; the frame is repeated to fill the temporal patch.
Patches preprocess(const Image& image, const PreprocessConfig& config);

}  // namespace lathe::media
