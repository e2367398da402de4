#include <png.h>

#include <csetjmp>
#include <cstring>

#include "base/file.h"
#include "base/limits.h"
#include "media/image.h"

namespace lathe::media {
namespace {

/// State of one decode. The library reports errors by a jump, so everything with a destructor lives outside the jumping functions.
struct Decoder {
  std::span<const std::byte> bytes;
  size_t at = 0;
  char message[160] = {};
  png_structp png = nullptr;
  png_infop info = nullptr;
  Image image;
  std::vector<png_bytep> rows;
  ~Decoder() { png_destroy_read_struct(&png, &info, nullptr); }
};

void on_read(png_structp png, png_bytep out, size_t count) {
  auto& decoder = *static_cast<Decoder*>(png_get_io_ptr(png));
  if (count > decoder.bytes.size() - decoder.at) png_error(png, "file is truncated");
  std::memcpy(out, decoder.bytes.data() + decoder.at, count);
  decoder.at += count;
}

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto& decoder = *static_cast<Decoder*>(png_get_error_ptr(png));
  std::strncpy(decoder.message, message, sizeof(decoder.message) - 1);
  std::longjmp(png_jmpbuf(png), 1);
}

void on_warning(png_structp, png_const_charp) {}

/// Reads the header and asks for 8-bit RGB. False: decoder.message says why not.
bool read_header(Decoder& decoder) {
  if (setjmp(png_jmpbuf(decoder.png)) != 0) return false;
  png_set_read_fn(decoder.png, &decoder, on_read);
  const auto side = static_cast<png_uint_32>(base::kLimits.image_side);
  png_set_user_limits(decoder.png, side, side);
  png_set_chunk_malloc_max(decoder.png, base::kLimits.image_bytes);
  // Comments, profiles, times: skipped unread, so that none of them can ask for memory or unpack to more than it is.
  png_set_keep_unknown_chunks(decoder.png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_read_info(decoder.png, decoder.info);
  const int64_t width = png_get_image_width(decoder.png, decoder.info);
  const int64_t height = png_get_image_height(decoder.png, decoder.info);
  if (width * height > base::kLimits.image_pixels) png_error(decoder.png, "too many pixels");
  decoder.image.width = static_cast<int32_t>(width);
  decoder.image.height = static_cast<int32_t>(height);
  png_set_expand(decoder.png);
  png_set_strip_16(decoder.png);
  png_set_gray_to_rgb(decoder.png);
  png_set_strip_alpha(decoder.png);
  png_set_interlace_handling(decoder.png);
  png_read_update_info(decoder.png, decoder.info);
  if (png_get_rowbytes(decoder.png, decoder.info) != static_cast<size_t>(width) * 3) png_error(decoder.png, "unexpected row size");
  return true;
}

bool read_pixels(Decoder& decoder) {
  if (setjmp(png_jmpbuf(decoder.png)) != 0) return false;
  png_read_image(decoder.png, decoder.rows.data());
  png_read_end(decoder.png, nullptr);
  return true;
}

/// Width and height as the header says, before the library looks at them: it refuses large ones without a number.
Result<void> check_size(std::span<const std::byte> bytes) {
  constexpr size_t kAt = 16;  // behind signature, length and name of the first chunk
  if (bytes.size() < kAt + 8 || std::memcmp(bytes.data() + 12, "IHDR", 4) != 0) return {};
  const auto number = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | std::to_integer<uint32_t>(bytes[at + i]);
    return int64_t{value};
  };
  const int64_t width = number(kAt), height = number(kAt + 4), side = base::kLimits.image_side, pixels = base::kLimits.image_pixels;
  if (width <= side && height <= side && width * height <= pixels) return {};
  return err(Code::kInvalidArgument, "the picture is {} x {}, at most {} x {} and {} pixels are supported", width, height, side, side, pixels);
}

const char* other_format(std::span<const std::byte> bytes) {
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 12));
  if (head.starts_with("\xFF\xD8\xFF")) return "JPEG";
  if (head.starts_with("GIF8")) return "GIF";
  if (head.size() == 12 && head.starts_with("RIFF") && head.ends_with("WEBP")) return "WebP";
  return nullptr;
}

}  // namespace

Result<Image> decode_png(std::span<const std::byte> bytes) {
  if (bytes.size() > base::kLimits.image_bytes) {
    return err(Code::kInvalidArgument, "picture has {} bytes, the limit is {}", bytes.size(), base::kLimits.image_bytes);
  }
  if (bytes.size() < 8 || png_sig_cmp(reinterpret_cast<png_const_bytep>(bytes.data()), 0, 8) != 0) {
    const char* other = other_format(bytes);
    if (other != nullptr) return err(Code::kInvalidArgument, "picture is a {} file, only PNG is supported", other);
    return err(Code::kInvalidArgument, "picture is no PNG file (wrong signature)");
  }
  LATHE_TRY_VOID(check_size(bytes));
  Decoder decoder;
  decoder.bytes = bytes;
  decoder.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &decoder, on_error, on_warning);
  if (decoder.png != nullptr) decoder.info = png_create_info_struct(decoder.png);
  if (decoder.info == nullptr) return err(Code::kResourceExhausted, "no memory to decode a PNG");
  if (!read_header(decoder)) return err(Code::kInvalidArgument, "PNG cannot be read: {}", decoder.message);
  const auto row_bytes = static_cast<size_t>(decoder.image.width) * 3;
  decoder.image.rgb.resize(row_bytes * static_cast<size_t>(decoder.image.height));
  for (int32_t row = 0; row < decoder.image.height; ++row) decoder.rows.push_back(decoder.image.rgb.data() + static_cast<size_t>(row) * row_bytes);
  if (!read_pixels(decoder)) return err(Code::kInvalidArgument, "PNG cannot be read: {}", decoder.message);
  return std::move(decoder.image);
}

Result<Image> read_image(const std::string& path) {
  LATHE_TRY(const std::string bytes, base::read_file(path, base::kLimits.image_bytes));
  auto image = decode_png(std::as_bytes(std::span(bytes)));
  if (!image) return base::forward_error(image, path);
  return image;
}

}  // namespace lathe::media
