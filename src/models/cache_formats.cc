#include "models/cache_formats.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

namespace lathe::models {
namespace {

struct FormatName {
  std::string_view name;
  DType dtype;
};
constexpr std::array kRows = {FormatName{"fp32", DType::kF32}, FormatName{"bf16", DType::kBF16}, FormatName{"fp8", DType::kF8E4M3},
                              FormatName{"int8", DType::kI8}};
constexpr std::array kStates = {FormatName{"fp32", DType::kF32}, FormatName{"fp16", DType::kF16}, FormatName{"int8", DType::kI8}};
constexpr std::array kWindows = {FormatName{"fp32", DType::kF32}, FormatName{"bf16", DType::kBF16}};
constexpr std::string_view kReplaySuffix = "+replay";

/// A family as texts name it.
struct FamilySpec {
  std::string_view name;
  DType CacheFormats::* dtype;
  std::span<const FormatName> formats;
  std::string_view expected;
};
constexpr std::array kFamilies = {
    FamilySpec{"latent", &CacheFormats::latent, kRows, "fp32, bf16, fp8 or int8"},
    FamilySpec{"index", &CacheFormats::index, kRows, "fp32, bf16, fp8 or int8"},
    FamilySpec{"state", &CacheFormats::state, kStates, "fp32, fp16, fp32+replay, fp16+replay or int8+replay"},
    FamilySpec{"conv", &CacheFormats::conv, kWindows, "fp32 or bf16"},
};

struct Mix {
  std::string_view name;
  CacheFormats formats;
};
constexpr std::array kMixes = {Mix{"balanced", kBalancedCaches}, Mix{"plain", kPlainCaches}};

Result<void> apply(CacheFormats& out, const FamilySpec& family, std::string_view value) {
  std::string_view name = value;
  const bool state = family.dtype == &CacheFormats::state;
  const bool replay = state && name.ends_with(kReplaySuffix);
  if (replay) name.remove_suffix(kReplaySuffix.size());
  const auto found = std::find_if(family.formats.begin(), family.formats.end(), [&](const FormatName& format) { return format.name == name; });
  if (found == family.formats.end()) {
    return err(Code::kInvalidArgument, "cache family '{}' as '{}': expected {}", family.name, value, family.expected);
  }
  if (state && found->dtype == DType::kI8 && !replay) {
    return err(Code::kInvalidArgument, "cache family 'state' as '{}': rounded at every token it loses too much, expected int8+replay", value);
  }
  out.*family.dtype = found->dtype;
  if (state) out.keeping = replay ? StateKeeping::kReplay : StateKeeping::kPlain;
  return {};
}

}  // namespace

Result<CacheFormats> parse_cache_formats(std::string_view text, const CacheFormats& base) {
  CacheFormats out = base;
  std::vector<std::string_view> seen;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view part = text.substr(at, end - at);
    const size_t equals = part.find('=');
    const std::string_view name = part.substr(0, equals);
    const auto mix = std::find_if(kMixes.begin(), kMixes.end(), [&](const Mix& one) { return one.name == part; });
    const auto family = std::find_if(kFamilies.begin(), kFamilies.end(), [&](const FamilySpec& one) { return one.name == name; });
    if (mix != kMixes.end()) {
      if (at != 0) return err(Code::kInvalidArgument, "cache formats '{}': the mix '{}' says all families, expected it first", text, part);
      out = mix->formats;
    } else if (equals == std::string_view::npos || family == kFamilies.end()) {
      return err(Code::kInvalidArgument, "'{}' is no cache format: expected balanced, plain, or latent, index, state or conv with '=' and a format",
                 part);
    } else {
      if (std::find(seen.begin(), seen.end(), name) != seen.end()) {
        return err(Code::kInvalidArgument, "cache formats '{}': family '{}' is given twice", text, name);
      }
      seen.push_back(name);
      LATHE_TRY_VOID(apply(out, *family, part.substr(equals + 1)));
    }
    at = end + 1;
    if (end + 1 == text.size()) return err(Code::kInvalidArgument, "cache formats '{}': nothing follows the last comma", text);
  }
  return out;
}

std::string cache_formats_text(const CacheFormats& formats) {
  std::vector<std::string> parts;
  for (const FamilySpec& family : kFamilies) {
    const auto found =
        std::find_if(family.formats.begin(), family.formats.end(), [&](const FormatName& format) { return format.dtype == formats.*family.dtype; });
    std::string value(found == family.formats.end() ? tensor::dtype_name(formats.*family.dtype) : found->name);
    if (family.dtype == &CacheFormats::state && formats.keeping == StateKeeping::kReplay) value += kReplaySuffix;
    parts.push_back(fmt::format("{}={}", family.name, value));
  }
  return fmt::format("{}", fmt::join(parts, ","));
}

Result<void> check_cache_formats(const CacheFormats& formats) {
  for (const FamilySpec& family : kFamilies) {
    const DType dtype = formats.*family.dtype;
    if (std::none_of(family.formats.begin(), family.formats.end(), [&](const FormatName& format) { return format.dtype == dtype; })) {
      return err(Code::kInvalidArgument, "cache family '{}' as {}: expected {}", family.name, tensor::dtype_name(dtype), family.expected);
    }
  }
  return {};
}

}  // namespace lathe::models
