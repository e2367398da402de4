#pragma once
// Every limit on input, in one place. A limit that is hit becomes an error that names it.

#include <cstddef>
#include <cstdint>

namespace lathe::base {

struct Limits {
  size_t safetensors_header_bytes = 100u << 20;
  size_t safetensors_tensors = 1u << 20;
  size_t json_bytes = 256u << 20;
  size_t json_depth = 64;
  size_t config_bytes = 16u << 20;
  size_t template_bytes = 1u << 20;
  size_t template_steps = 20'000'000;
  size_t template_output_bytes = 64u << 20;
  size_t template_depth = 100;
  size_t prompt_bytes = 64u << 20;
  size_t image_bytes = 32u << 20;
  int64_t image_pixels = 64 << 20;
  int32_t image_side = 16384;
};

inline constexpr Limits kLimits{};

}  // namespace lathe::base
