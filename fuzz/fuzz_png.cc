// Any bytes as a PNG: an error with one sentence, or a picture whose pixels are all there; small ones go through preprocessing.

#include "input.h"
#include "media/image.h"

namespace {

// Larger pictures only cost time here; the limit of the decoder itself lies higher.
constexpr uint64_t kPixels = 1 << 20;

uint64_t declared_pixels(const uint8_t* data, size_t size) {
  if (size < 24) return 0;
  const auto number = [&](size_t at) { return uint64_t{data[at]} << 24 | uint64_t{data[at + 1]} << 16 | uint64_t{data[at + 2]} << 8 | data[at + 3]; };
  return number(16) * number(20);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lathe;
  const uint64_t pixels = declared_pixels(data, size);
  if (pixels > kPixels && pixels <= uint64_t{1} << 26) return 0;
  const auto image = media::decode_png({reinterpret_cast<const std::byte*>(data), size});
  if (!image) {
    fuzz::expect_message(image.error().message);
    return 0;
  }
  fuzz::expect(image->width > 0 && image->height > 0, "a picture has pixels");
  fuzz::expect(image->rgb.size() == static_cast<size_t>(image->width) * static_cast<size_t>(image->height) * 3, "three bytes a pixel");
  if (image->width > 64 || image->height > 64) return 0;
  const media::PreprocessConfig config{.max_image_tokens = 64};
  const media::Patches patches = media::preprocess(*image, config);
  fuzz::expect(patches.values.size() == static_cast<size_t>(patches.grid_height * patches.grid_width * 3 * config.temporal_patch_size *
                                                            config.patch_size * config.patch_size),
               "a patch has all its values");
  return 0;
}
