#include "weights/gguf.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "tensor/dtype.h"

static_assert(std::endian::native == std::endian::little, "GGUF files are little endian");

namespace lathe::weights {
namespace {

constexpr uint32_t kVersion = 3;
constexpr uint64_t kAlignment = 32;
constexpr size_t kNameBytes = 64;  // of a tensor, the zero at its end included
constexpr uint64_t kQ8Bytes = 2 + kQ8Values;

/// Numbers of the kinds of values.
enum class Kind : uint32_t { kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9 };

constexpr uint64_t aligned(uint64_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

/// Appends values as the format stores them.
class Bytes {
 public:
  template <class T>
  void number(T value) {
    static_assert(std::is_arithmetic_v<T>);
    text_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void kind(Kind kind) { number(static_cast<uint32_t>(kind)); }
  void string(std::string_view text) {
    number(uint64_t{text.size()});
    text_ += text;
  }
  void raw(std::string_view text) { text_ += text; }

  void value(uint32_t value) { kind(Kind::kU32), number(value); }
  void value(float value) { kind(Kind::kF32), number(value); }
  void value(bool value) { kind(Kind::kBool), number(static_cast<uint8_t>(value)); }
  void value(const std::string& value) { kind(Kind::kString), string(value); }
  void value(const std::vector<int32_t>& list) {
    array(Kind::kI32, list.size());
    for (const int32_t one : list) number(one);
  }
  void value(const std::vector<float>& list) {
    array(Kind::kF32, list.size());
    for (const float one : list) number(one);
  }
  void value(const std::vector<std::string>& list) {
    array(Kind::kString, list.size());
    for (const std::string& one : list) string(one);
  }

  std::string take() { return std::move(text_); }

 private:
  void array(Kind of, size_t count) {
    kind(Kind::kArray);
    kind(of);
    number(uint64_t{count});
  }
  std::string text_;
};

/// Everything before the data, padded; and offsets from the start of the file.
struct Layout {
  std::string header;
  std::vector<StreamPart> parts;
  uint64_t bytes = 0;
};

Layout lay_out(std::span<const GgufKey> keys, std::span<const GgufTensor> tensors) {
  Layout out;
  Bytes header;
  header.raw("GGUF");
  header.number(kVersion);
  header.number(uint64_t{tensors.size()});
  header.number(uint64_t{keys.size()});
  for (const GgufKey& key : keys) {
    header.string(key.name);
    std::visit([&](const auto& value) { header.value(value); }, key.value);
  }
  uint64_t at = 0;
  for (const GgufTensor& tensor : tensors) {
    header.string(tensor.name);
    header.number(static_cast<uint32_t>(tensor.shape.size()));
    for (size_t axis = tensor.shape.size(); axis-- > 0;) header.number(static_cast<uint64_t>(tensor.shape[axis]));
    header.number(static_cast<uint32_t>(tensor.type));
    header.number(at);
    out.parts.push_back({.offset = at, .bytes = tensor.bytes(), .unit = gguf_row_bytes(tensor.type, tensor.row_values())});
    at = aligned(at + tensor.bytes());
  }
  out.header = header.take();
  out.header.resize(aligned(out.header.size()), '\0');
  for (StreamPart& part : out.parts) part.offset += out.header.size();
  out.bytes = out.header.size() + at;
  return out;
}

Result<void> check_names(std::span<const GgufKey> keys, std::span<const GgufTensor> tensors) {
  std::unordered_set<std::string_view> names;
  for (const GgufKey& key : keys) {
    if (!names.insert(key.name).second) return err(Code::kInvalidArgument, "two keys of a GGUF file are called '{}'", key.name);
  }
  names.clear();
  for (const GgufTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) return err(Code::kInvalidArgument, "two tensors of a GGUF file are called '{}'", tensor.name);
    if (tensor.name.size() >= kNameBytes)
      return err(Code::kInvalidArgument, "tensor '{}' has a name of {} bytes, GGUF files take {}", tensor.name, tensor.name.size(), kNameBytes - 1);
  }
  return {};
}

bool f16_is_finite(uint16_t bits) { return (bits & 0x7C00u) != 0x7C00u; }
bool bf16_is_finite(uint16_t bits) { return (bits & 0x7F80u) != 0x7F80u; }

/// Types of 16 bits.
template <uint16_t (*round)(float), bool (*is_finite)(uint16_t)>
Result<void> encode_half(GgufType type, std::span<const float> row, std::span<std::byte> out) {
  for (size_t i = 0; i < row.size(); ++i) {
    const uint16_t bits = round(row[i]);
    if (!is_finite(bits)) return err(Code::kInvalidArgument, "value {} is {}, beyond the numbers of {}", i, row[i], gguf_type_name(type));
    std::memcpy(out.data() + 2 * i, &bits, 2);
  }
  return {};
}

Result<void> encode_q8(std::span<const float> row, std::span<std::byte> out) {
  for (size_t begin = 0; begin < row.size(); begin += kQ8Values, out = out.subspan(kQ8Bytes)) {
    const std::span<const float> block = row.subspan(begin, kQ8Values);
    float largest = 0;
    for (const float value : block) largest = std::max(largest, std::abs(value));
    const uint16_t bits = tensor::float_to_f16(largest / 127.0f);
    if (!f16_is_finite(bits)) return err(Code::kInvalidArgument, "a block from value {} reaches {}, beyond the scales of q8_0", begin, largest);
    const float scale = tensor::f16_to_float(bits);
    const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
    std::memcpy(out.data(), &bits, 2);
    for (size_t i = 0; i < block.size(); ++i) {
      const float rounded = std::clamp(std::nearbyint(block[i] * inverse), -127.0f, 127.0f);
      out[2 + i] = static_cast<std::byte>(static_cast<int8_t>(rounded));
    }
  }
  return {};
}

}  // namespace

std::string_view gguf_type_name(GgufType type) {
  switch (type) {
    case GgufType::kF32: return "f32";
    case GgufType::kF16: return "f16";
    case GgufType::kQ8: return "q8_0";
    case GgufType::kBF16: return "bf16";
  }
  return "?";
}

uint64_t gguf_row_bytes(GgufType type, int64_t values) {
  const auto count = static_cast<uint64_t>(values);
  if (type == GgufType::kQ8) return count / kQ8Values * kQ8Bytes;
  return count * (type == GgufType::kF32 ? 4 : 2);
}

Result<void> gguf_encode_row(GgufType type, std::span<const float> row, std::span<std::byte> out) {
  const auto bad = std::find_if(row.begin(), row.end(), [](float value) { return !std::isfinite(value); });
  if (bad != row.end()) return err(Code::kInvalidArgument, "value {} is {}, expected a finite number", bad - row.begin(), *bad);
  switch (type) {
    case GgufType::kF32: std::memcpy(out.data(), row.data(), out.size()); return {};
    case GgufType::kF16: return encode_half<tensor::float_to_f16, f16_is_finite>(type, row, out);
    case GgufType::kBF16: return encode_half<tensor::float_to_bf16, bf16_is_finite>(type, row, out);
    case GgufType::kQ8: return encode_q8(row, out);
  }
  return {};
}

int64_t GgufTensor::rows() const {
  int64_t rows = 1;
  for (size_t axis = 0; axis + 1 < shape.size(); ++axis) rows *= shape[axis];
  return rows;
}

uint64_t GgufTensor::bytes() const { return static_cast<uint64_t>(rows()) * gguf_row_bytes(type, row_values()); }

uint64_t gguf_file_bytes(std::span<const GgufKey> keys, std::span<const GgufTensor> tensors) { return lay_out(keys, tensors).bytes; }

Result<void> write_gguf(const std::string& path, std::span<const GgufKey> keys, std::span<const GgufTensor> tensors, FillPart fill,
                        const StreamOptions& options) {
  LATHE_TRY_VOID(check_names(keys, tensors));
  const Layout layout = lay_out(keys, tensors);
  LATHE_TRY_VOID(base::check_disk_space(path, layout.bytes));
  LATHE_TRY(base::OutputFile file, base::OutputFile::create(path, layout.bytes));
  LATHE_TRY_VOID(file.write_at(0, std::as_bytes(std::span(layout.header))));
  LATHE_TRY_VOID(stream_parts(file, layout.parts, fill, options));
  return file.commit();
}

}  // namespace lathe::weights
