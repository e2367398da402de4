#pragma once
// Element types, and their exact conversion to and from float.

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lathe::tensor {

enum class DType : uint8_t { kF32, kBF16, kF16, kF8E4M3, kI8, kI32, kI64, kU8 };

constexpr size_t dtype_bytes(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kBF16:
    case DType::kF16: return 2;
    case DType::kI64: return 8;
    case DType::kF8E4M3:
    case DType::kI8:
    case DType::kU8: return 1;
  }
  return 0;
}

/// "f32", "bf16", "f16", "f8_e4m3", "i8", "i32", "i64", "u8".
std::string_view dtype_name(DType type);

inline float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

/// Round to nearest even; NaN stays NaN.
inline uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

float f16_to_float(uint16_t bits);
uint16_t float_to_f16(float value);  ///< round to nearest even, overflow to infinity

/// E4M3 (fn): bias 7, no infinities, 0x7F and 0xFF are NaN, largest 448.
float f8e4m3_to_float(uint8_t bits);
uint8_t float_to_f8e4m3(float value);  ///< round to nearest even, saturates at ±448; NaN stays NaN

/// Element `index` of an array of `type` as float (integers converted).
float load_as_float(DType type, const void* data, int64_t index);
/// Stores `value` rounded to `type`; floating types only.
void store_from_float(DType type, void* data, int64_t index, float value);

}  // namespace lathe::tensor

namespace lathe {
using tensor::DType;
}
