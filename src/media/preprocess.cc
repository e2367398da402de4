#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "media/image.h"

namespace lathe::media {
namespace {

using base::kLimits;

template <class T>
struct Range {
  T low, high;
};

Result<void> read_int(const config::Json& json, const char* key, Range<int64_t> range, int64_t& out) {
  const auto [low, high] = range;
  const config::Json* value = json.find(key);
  if (value == nullptr) return {};
  if (!value->is_int() || value->as_int() < low || value->as_int() > high) {
    return err(Code::kInvalidArgument, "preprocessor config: '{}' is {}, expected an integer from {} to {}", key, value->dump(), low, high);
  }
  out = value->as_int();
  return {};
}

Result<void> read_triple(const config::Json& json, const char* key, Range<double> range, float (&out)[3]) {
  const config::Json* value = json.find(key);
  if (value == nullptr) return {};
  const bool fits = value->is_array() && value->as_array().size() == 3 &&
                    std::all_of(value->as_array().begin(), value->as_array().end(),
                                [&](const config::Json& v) { return v.is_number() && v.as_double() >= range.low && v.as_double() <= range.high; });
  if (!fits)
    return err(Code::kInvalidArgument, "preprocessor config: '{}' is {}, expected three numbers from {} to {}", key, value->dump(), range.low,
               range.high);
  for (size_t i = 0; i < 3; ++i) out[i] = static_cast<float>(value->as_array()[i].as_double());
  return {};
}

/// Steps of the pipeline that this program always takes: a file that switches one off means other pixels than these.
Result<void> check_fixed(const config::Json& json) {
  for (const char* key : {"do_resize", "do_rescale", "do_normalize", "do_convert_rgb"}) {
    const config::Json* value = json.find(key);
    if (value != nullptr && !(value->is_bool() && value->as_bool()))
      return err(Code::kInvalidArgument, "preprocessor config: '{}' is {}, only true is supported", key, value->dump());
  }
  constexpr int64_t kBicubic = 3;
  const config::Json* resample = json.find("resample");
  if (resample != nullptr && !(resample->is_int() && resample->as_int() == kBicubic))
    return err(Code::kInvalidArgument, "preprocessor config: 'resample' is {}, only {} (bicubic) is supported", resample->dump(), kBicubic);
  return {};
}

/// Keys that nothing here reads. Those of other processors change the pixels (crop_size, min_pixels …), names of classes do not.
void warn_unknown(const config::Json& json) {
  static constexpr std::string_view kKnown[] = {"patch_size",       "temporal_patch_size",  "merge_size",      "min_image_tokens",
                                                "max_image_tokens", "image_mean",           "image_std",       "rescale_factor",
                                                "do_resize",        "do_rescale",           "do_normalize",    "do_convert_rgb",
                                                "resample",         "image_processor_type", "processor_class", "feature_extractor_type"};
  for (const auto& [key, value] : json.as_object()) {
    if (std::find(std::begin(kKnown), std::end(kKnown), key) != std::end(kKnown)) continue;
    base::log(base::LogLevel::kWarning, "preprocessor config: '{}' is not known and has no effect", base::one_line(key));
  }
}

int64_t floor_int(double value) { return static_cast<int64_t>(std::floor(value)); }

/// Weights of one output pixel: source range and its normalised cubic weights.
struct Taps {
  int64_t begin = 0;
  std::vector<double> weight;
};

double cubic(double x) {
  constexpr double a = -0.5;  // the value that antialiased bicubic uses everywhere
  x = std::fabs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

std::vector<Taps> make_taps(int64_t from, int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double stretch = std::max(scale, 1.0);  // antialias: the kernel grows when shrinking
  std::vector<Taps> taps(static_cast<size_t>(to));
  for (int64_t i = 0; i < to; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const int64_t begin = std::max<int64_t>(0, floor_int(center - 2 * stretch + 0.5));
    const int64_t end = std::min<int64_t>(from, floor_int(center + 2 * stretch + 0.5));
    Taps& tap = taps[static_cast<size_t>(i)];
    tap.begin = begin;
    double sum = 0;
    for (int64_t j = begin; j < end; ++j) {
      tap.weight.push_back(cubic((static_cast<double>(j) - center + 0.5) / stretch));
      sum += tap.weight.back();
    }
    for (double& weight : tap.weight) weight /= sum;
  }
  return taps;
}

uint8_t to_byte(double value) { return static_cast<uint8_t>(std::clamp(std::floor(value + 0.5), 0.0, 255.0)); }

}  // namespace

Result<PreprocessConfig> parse_preprocess_config(const config::Json& json) {
  if (!json.is_object()) return err(Code::kInvalidArgument, "preprocessor config is {}, expected an object", json.kind_name());
  PreprocessConfig config;
  int64_t patch = config.patch_size;
  int64_t temporal = config.temporal_patch_size;
  int64_t merge = config.merge_size;
  LATHE_TRY_VOID(read_int(json, "patch_size", {1, kLimits.image_patch}, patch));
  LATHE_TRY_VOID(read_int(json, "temporal_patch_size", {1, kLimits.image_group}, temporal));
  LATHE_TRY_VOID(read_int(json, "merge_size", {1, kLimits.image_group}, merge));
  LATHE_TRY_VOID(read_int(json, "min_image_tokens", {1, kLimits.image_tokens}, config.min_image_tokens));
  LATHE_TRY_VOID(read_int(json, "max_image_tokens", {config.min_image_tokens, kLimits.image_tokens}, config.max_image_tokens));
  if (config.max_image_tokens < config.min_image_tokens) {
    return err(Code::kInvalidArgument, "preprocessor config: 'min_image_tokens' is {}, more than max_image_tokens, {}", config.min_image_tokens,
               config.max_image_tokens);
  }
  // Of rescaled pixels, which lie between 0 and 1.
  LATHE_TRY_VOID(read_triple(json, "image_mean", {-16, 16}, config.mean));
  LATHE_TRY_VOID(read_triple(json, "image_std", {1e-3, 16}, config.std));
  LATHE_TRY_VOID(check_fixed(json));
  if (const config::Json* rescale = json.find("rescale_factor"); rescale != nullptr) {
    // 1/255 in practice; 1/65535 to 1 is what could make sense.
    if (!rescale->is_number() || !(rescale->as_double() >= 1.0 / 65535) || !(rescale->as_double() <= 1))
      return err(Code::kInvalidArgument, "preprocessor config: 'rescale_factor' is {}, expected a number from 1/65535 to 1", rescale->dump());
    config.rescale = static_cast<float>(rescale->as_double());
  }
  config.patch_size = static_cast<int32_t>(patch);
  config.temporal_patch_size = static_cast<int32_t>(temporal);
  config.merge_size = static_cast<int32_t>(merge);
  warn_unknown(json);
  return config;
}

Result<PreprocessConfig> read_preprocess_config(const std::string& folder) {
  const std::string path = folder + "/preprocessor_config.json";
  if (!base::file_exists(path)) return PreprocessConfig{};
  LATHE_TRY(const config::Json json, config::read_json_file(path, base::kLimits.config_bytes));
  auto parsed = parse_preprocess_config(json);
  if (!parsed) return base::forward_error(parsed, path);
  return parsed;
}

CanvasSize choose_canvas(int64_t height, int64_t width, const PreprocessConfig& config) {
  const int64_t side = config.patch_size * config.merge_size;
  const auto up = [&](int64_t x) { return (x + side - 1) / side * side; };
  // The budget counts a single frame as a temporal pair.
  const int64_t token = config.temporal_patch_size * side * side;
  const int64_t low = config.min_image_tokens * token;
  const int64_t high = config.max_image_tokens * token;
  const auto budget = [&](int64_t h, int64_t w) { return config.temporal_patch_size * h * w; };
  int64_t canvas_h = up(height);
  int64_t canvas_w = up(width);
  if (budget(canvas_h, canvas_w) < low) {
    const double grow = std::sqrt(static_cast<double>(low) / static_cast<double>(budget(height, width)));
    canvas_h = up(std::max<int64_t>(1, static_cast<int64_t>(std::ceil(static_cast<double>(height) * grow))));
    canvas_w = up(std::max<int64_t>(1, static_cast<int64_t>(std::ceil(static_cast<double>(width) * grow))));
  }
  if (budget(canvas_h, canvas_w) > high) {
    canvas_h = canvas_w = side;
    for (int64_t lo = 1, hi = height; lo <= hi;) {
      const int64_t content_h = (lo + hi) / 2;
      const int64_t content_w = std::max<int64_t>(1, width * content_h / height);
      if (budget(up(content_h), up(content_w)) <= high) {
        canvas_h = up(content_h);
        canvas_w = up(content_w);
        lo = content_h + 1;
      } else {
        hi = content_h - 1;
      }
    }
  }
  double scale = std::min(static_cast<double>(canvas_h) / static_cast<double>(height), static_cast<double>(canvas_w) / static_cast<double>(width));
  if (budget(height, width) >= low) scale = std::min(scale, 1.0);
  return {.canvas_height = canvas_h,
          .canvas_width = canvas_w,
          .content_height = std::clamp<int64_t>(floor_int(static_cast<double>(height) * scale), 1, canvas_h),
          .content_width = std::clamp<int64_t>(floor_int(static_cast<double>(width) * scale), 1, canvas_w)};
}

Image resize_bicubic(const Image& image, int32_t height, int32_t width) {
  Image wide{.width = width, .height = image.height, .rgb = std::vector<uint8_t>(static_cast<size_t>(width) * static_cast<size_t>(image.height) * 3)};
  const std::vector<Taps> columns = make_taps(image.width, width);
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const Taps& tap = columns[static_cast<size_t>(x)];
      for (int64_t c = 0; c < 3; ++c) {
        double sum = 0;
        for (size_t j = 0; j < tap.weight.size(); ++j) {
          sum += tap.weight[j] * image.rgb[static_cast<size_t>((y * image.width + tap.begin + static_cast<int64_t>(j)) * 3 + c)];
        }
        wide.rgb[static_cast<size_t>((y * width + x) * 3 + c)] = to_byte(sum);
      }
    }
  }
  Image out{.width = width, .height = height, .rgb = std::vector<uint8_t>(static_cast<size_t>(width) * static_cast<size_t>(height) * 3)};
  const std::vector<Taps> rows = make_taps(image.height, height);
  for (int64_t y = 0; y < height; ++y) {
    const Taps& tap = rows[static_cast<size_t>(y)];
    for (int64_t i = 0; i < int64_t{width} * 3; ++i) {
      double sum = 0;
      for (size_t j = 0; j < tap.weight.size(); ++j)
        sum += tap.weight[j] * wide.rgb[static_cast<size_t>((tap.begin + static_cast<int64_t>(j)) * width * 3 + i)];
      out.rgb[static_cast<size_t>(y * width * 3 + i)] = to_byte(sum);
    }
  }
  return out;
}

Patches preprocess(const Image& image, const PreprocessConfig& config) {
  LATHE_CHECK(image.width > 0 && image.height > 0, "empty image");
  const CanvasSize size = choose_canvas(image.height, image.width, config);
  const bool same = size.content_height == image.height && size.content_width == image.width;
  const Image resized = same ? Image{} : resize_bicubic(image, static_cast<int32_t>(size.content_height), static_cast<int32_t>(size.content_width));
  const Image& content = same ? image : resized;
  const int64_t patch = config.patch_size;
  const int64_t merge = config.merge_size;
  Patches out{.grid_height = size.canvas_height / patch, .grid_width = size.canvas_width / patch, .values = {}};
  out.values.reserve(static_cast<size_t>(out.grid_height * out.grid_width * 3 * config.temporal_patch_size * patch * patch));
  const auto append_patch = [&](int64_t row, int64_t column) {
    for (int64_t c = 0; c < 3; ++c) {
      for (int64_t frame = 0; frame < config.temporal_patch_size; ++frame) {
        for (int64_t y = row * patch; y < (row + 1) * patch; ++y) {
          for (int64_t x = column * patch; x < (column + 1) * patch; ++x) {
            const bool inside = y < content.height && x < content.width;
            const float raw = inside ? static_cast<float>(content.rgb[static_cast<size_t>((y * content.width + x) * 3 + c)]) : 0.0f;
            out.values.push_back((raw * config.rescale - config.mean[c]) / config.std[c]);
          }
        }
      }
    }
  };
  for (int64_t block_row = 0; block_row < out.grid_height; block_row += merge) {
    for (int64_t block_column = 0; block_column < out.grid_width; block_column += merge) {
      for (int64_t row = block_row; row < block_row + merge; ++row) {
        for (int64_t column = block_column; column < block_column + merge; ++column) append_patch(row, column);
      }
    }
  }
  return out;
}

}  // namespace lathe::media
