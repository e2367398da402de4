#include "tensor/dtype.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace lathe::tensor {

std::string_view dtype_name(DType type) {
  switch (type) {
    case DType::kF32: return "f32";
    case DType::kBF16: return "bf16";
    case DType::kF16: return "f16";
    case DType::kF8E4M3: return "f8_e4m3";
    case DType::kI8: return "i8";
    case DType::kI32: return "i32";
    case DType::kI64: return "i64";
    case DType::kU8: return "u8";
  }
  return "?";
}

float f16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1Fu;
  const uint32_t mantissa = bits & 0x3FFu;
  if (exponent == 0) {  // zero and subnormal: mantissa · 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t float_to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // rounds to 65536 or more
  if (magnitude < 0x38800000u) {                                               // subnormal in half
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p24f;
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(scaled)));
  }
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
}

float f8e4m3_to_float(uint8_t bits) {
  const uint32_t exponent = (bits >> 3) & 0xFu;
  const uint32_t mantissa = bits & 7u;
  float magnitude = 0;
  if (exponent == 15 && mantissa == 7) {
    magnitude = std::bit_cast<float>(0x7FC00000u);
  } else if (exponent == 0) {
    magnitude = static_cast<float>(mantissa) * 0x1p-9f;
  } else {
    magnitude = std::bit_cast<float>(((exponent + 120) << 23) | (mantissa << 20));
  }
  return (bits & 0x80u) != 0 ? -magnitude : magnitude;
}

uint8_t float_to_f8e4m3(float value) {
  const auto sign = static_cast<uint8_t>((std::bit_cast<uint32_t>(value) >> 24) & 0x80u);
  if (std::isnan(value)) return static_cast<uint8_t>(sign | 0x7Fu);
  const float magnitude = std::min(std::fabs(value), 448.0f);
  if (magnitude < 0x1p-6f) return static_cast<uint8_t>(sign | static_cast<uint8_t>(std::nearbyint(magnitude * 0x1p9f)));
  const auto bits = std::bit_cast<uint32_t>(magnitude);
  const uint32_t rounded = bits + 0x7FFFFu + ((bits >> 20) & 1u);
  const uint32_t code = (rounded - (120u << 23)) >> 20;
  return static_cast<uint8_t>(sign | static_cast<uint8_t>(std::min(code, 0x7Eu)));
}

float load_as_float(DType type, const void* data, int64_t index) {
  switch (type) {
    case DType::kF32: return static_cast<const float*>(data)[index];
    case DType::kBF16: return bf16_to_float(static_cast<const uint16_t*>(data)[index]);
    case DType::kF16: return f16_to_float(static_cast<const uint16_t*>(data)[index]);
    case DType::kF8E4M3: return f8e4m3_to_float(static_cast<const uint8_t*>(data)[index]);
    case DType::kI8: return static_cast<float>(static_cast<const int8_t*>(data)[index]);
    case DType::kI32: return static_cast<float>(static_cast<const int32_t*>(data)[index]);
    case DType::kI64: return static_cast<float>(static_cast<const int64_t*>(data)[index]);
    case DType::kU8: return static_cast<float>(static_cast<const uint8_t*>(data)[index]);
  }
  return 0;
}

void store_from_float(DType type, void* data, int64_t index, float value) {
  switch (type) {
    case DType::kF32: static_cast<float*>(data)[index] = value; return;
    case DType::kBF16: static_cast<uint16_t*>(data)[index] = float_to_bf16(value); return;
    case DType::kF16: static_cast<uint16_t*>(data)[index] = float_to_f16(value); return;
    case DType::kF8E4M3: static_cast<uint8_t*>(data)[index] = float_to_f8e4m3(value); return;
    default: LATHE_CHECK(false, "store_from_float to {}", dtype_name(type));
  }
}

}  // namespace lathe::tensor
