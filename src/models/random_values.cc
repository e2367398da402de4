#include "models/random_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace lathe::models {
namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;
constexpr uint64_t kWordBytes = 8;
constexpr int kQuantileBits = 12;

/// A bijection of 64 bits whose every output bit hangs on every input bit (the finaliser of SplitMix64).
constexpr uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

constexpr uint64_t word_at(uint64_t key, uint64_t index) { return mix(key + (index + 1) * kGolden); }

/// x with P(N(0, 1) < x) = p, by halving.
double normal_quantile(double p) {
  double low = -9;
  double high = 9;
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

std::vector<float> normal_quantiles(int count) {
  std::vector<float> out;
  for (int i = 0; i < count; ++i) out.push_back(static_cast<float>(normal_quantile((i + 0.5) / count)));
  return out;
}

/// Calls write(place, word) for each whole or partial word of the range.
template <class Write>
void for_words(uint64_t key, uint64_t begin, std::span<std::byte> out, Write write) {
  for (size_t at = 0; at < out.size(); at += kWordBytes) {
    const uint64_t word = word_at(key, (begin + at) / kWordBytes);
    if (out.size() - at >= kWordBytes) {
      write(out.data() + at, word);
      continue;
    }
    std::byte rest[kWordBytes];
    write(rest, word);
    std::memcpy(out.data() + at, rest, out.size() - at);
  }
}

}  // namespace

uint64_t random_key(uint64_t seed, std::string_view name) {
  uint64_t hash = mix(seed + kGolden);
  for (const char c : name) hash = mix((hash ^ static_cast<uint8_t>(c)) + kGolden);
  return hash;
}

RandomValues::RandomValues() : normal_(normal_quantiles(1 << kQuantileBits)) {
  const std::vector<float> quantiles = normal_quantiles(256);
  double squares = 0;
  for (const float quantile : quantiles) {
    fp8_.push_back(tensor::float_to_f8e4m3(quantile * 448.0f / quantiles.back()));
    const double value = tensor::f8e4m3_to_float(fp8_.back());
    squares += value * value;
  }
  fp8_width_ = static_cast<float>(std::sqrt(squares / 256));
}

void RandomValues::fill(const RandomTensor& tensor, uint64_t begin, std::span<std::byte> out) const {
  LATHE_CHECK(begin % kWordBytes == 0, "random values from byte {}", begin);
  const float* const normal = normal_.data();
  const float centre = tensor.centre;
  const float width = tensor.width;
  if (tensor.dtype == DType::kF8E4M3) {
    for_words(tensor.key, begin, out, [this](std::byte* at, uint64_t word) {
      uint8_t codes[kWordBytes];
      for (uint64_t i = 0; i < kWordBytes; ++i) codes[i] = fp8_[(word >> (8 * i)) & 0xFF];
      std::memcpy(at, codes, kWordBytes);
    });
  } else if (tensor.dtype == DType::kBF16) {
    for_words(tensor.key, begin, out, [&](std::byte* at, uint64_t word) {
      uint16_t values[4];
      for (int i = 0; i < 4; ++i) values[i] = tensor::float_to_bf16(centre + width * normal[(word >> (16 * i + 16 - kQuantileBits)) & 0xFFF]);
      std::memcpy(at, values, kWordBytes);
    });
  } else {
    LATHE_CHECK(tensor.dtype == DType::kF32, "random values of {}", tensor::dtype_name(tensor.dtype));
    const float unit = width / fp8_width_;
    for_words(tensor.key, begin, out, [&](std::byte* at, uint64_t word) {
      float values[2];
      for (int i = 0; i < 2; ++i) {
        const auto draw = static_cast<uint32_t>(word >> (32 * i));
        values[i] = tensor.scales ? unit * (0.75f + 0.5f * std::ldexp(static_cast<float>(draw >> 8), -24))
                                  : centre + width * normal[draw >> (32 - kQuantileBits)];
      }
      std::memcpy(at, values, kWordBytes);
    });
  }
}

}  // namespace lathe::models
