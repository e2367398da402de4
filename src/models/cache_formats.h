#pragma once
// How a sequence's caches and states are kept (docs/formats.md). Chosen for a whole model: formats never mix, and a snapshot carries its own.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tensor/dtype.h"

namespace lathe::models {

/// Whether KDA states are kept as they are, or as a checkpoint and a ring of what later tokens add to it (ops/kda_replay.h).
enum class StateKeeping : uint8_t { kPlain, kReplay };

/// One dtype per family. The default is that of fast mode. What each family may be: cache_formats_text() and check_cache_formats().
struct CacheFormats {
  DType latent = DType::kBF16;  ///< f32, bf16, f8_e4m3, i8; the draft layer's as well
  DType index = DType::kBF16;   ///< pooled index keys: likewise
  DType state = DType::kF32;    ///< f32, f16, i8
  StateKeeping keeping = StateKeeping::kPlain;
  DType conv = DType::kF32;  ///< windows of raw rows: f32, bf16

  bool operator==(const CacheFormats&) const = default;
};

/// Exact mode: nothing is rounded.
inline constexpr CacheFormats kExactCaches = {
    .latent = DType::kF32, .index = DType::kF32, .state = DType::kF32, .keeping = StateKeeping::kPlain, .conv = DType::kF32};
inline constexpr CacheFormats kFastCaches = {};
/// The mix "plain": BF16 where rows are kept, states in FP32. What published figures count.
inline constexpr CacheFormats kPlainCaches = {
    .latent = DType::kBF16, .index = DType::kBF16, .state = DType::kF32, .keeping = StateKeeping::kPlain, .conv = DType::kBF16};
/// The mix "balanced", chosen by measurement (docs/numerics.md).
inline constexpr CacheFormats kBalancedCaches = {
    .latent = DType::kI8, .index = DType::kI8, .state = DType::kF16, .keeping = StateKeeping::kPlain, .conv = DType::kBF16};

/// Applies a text such as "latent=int8,index=fp8,state=fp16+replay,conv=bf16" to `base`; families that it does not name stay as they are. It may begin with
/// the name of a mix, "balanced" or "plain", which says all of them. Pure.
/// Errors  invalid_argument: unknown family, a format that the family does not take, a family given twice, a mix that is not the first; each names family,
///         value and what was expected.
Result<CacheFormats> parse_cache_formats(std::string_view text, const CacheFormats& base);

/// "latent=bf16,index=bf16,state=fp32,conv=fp32": parse_cache_formats() gives the same formats back.
std::string cache_formats_text(const CacheFormats& formats);

/// Errors  invalid_argument: a dtype that the family does not take.
Result<void> check_cache_formats(const CacheFormats& formats);

}  // namespace lathe::models
