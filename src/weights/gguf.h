#pragma once
// Writing GGUF files (version 3): typed keys, then tensors that are computed when they are due.
// Format   "GGUF", version, counts; keys; per tensor its name, dimensions (the innermost first), type and offset; the data, each tensor at a multiple of 32.
// Source   the public description of the format.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "weights/stream.h"

namespace lathe::weights {

/// Numbers of the format.
enum class GgufType : uint32_t { kF32 = 0, kF16 = 1, kQ8 = 8, kBF16 = 30 };
std::string_view gguf_type_name(GgufType type);  ///< "f32", "f16", "q8_0", "bf16"

/// Values of a q8_0 block: an f16 scale, then 32 signed bytes. A row is whole blocks, so its length is a multiple of this.
inline constexpr int64_t kQ8Values = 32;
/// Bytes of a row; `values` fits the type.
uint64_t gguf_row_bytes(GgufType type, int64_t values);

/// Rounds a row to the type, to the nearest value that a reader gets; out has gguf_row_bytes().
///   q8_0   scale = largest magnitude / 127 as f16; values / that scale, to the nearest, at most 127. An error of at most half a scale, and half the
///          rounding of the scale at the largest.
/// Errors  invalid_argument: a value that is no finite number, or that f16 (the type, or the scale of q8_0) has no number for.
Result<void> gguf_encode_row(GgufType type, std::span<const float> row, std::span<std::byte> out);

struct GgufKey {
  std::string name;
  std::variant<uint32_t, float, bool, std::string, std::vector<int32_t>, std::vector<float>, std::vector<std::string>> value;
};

struct GgufTensor {
  std::string name;
  GgufType type = GgufType::kF32;
  std::vector<int64_t> shape;  ///< 1 to 4 dimensions, rows innermost: the last one fits the type

  int64_t row_values() const { return shape.back(); }
  int64_t rows() const;
  uint64_t bytes() const;
};

/// Bytes of the whole file.
uint64_t gguf_file_bytes(std::span<const GgufKey> keys, std::span<const GgufTensor> tensors);

/// Writes a file whose parts, by place in `tensors`, are filled in whole rows. It gets its name when it is whole.
/// Errors  invalid_argument (two tensors or keys of one name, a name of 64 bytes or more, which readers refuse), those of stream_parts and OutputFile.
Result<void> write_gguf(const std::string& path, std::span<const GgufKey> keys, std::span<const GgufTensor> tensors, FillPart fill,
                        const StreamOptions& options);

}  // namespace lathe::weights
