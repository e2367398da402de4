#include "weights/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/limits.h"
#include "config/json.h"

static_assert(std::endian::native == std::endian::little, "safetensors data is little endian and is used in place");

namespace lathe::weights {
namespace {

using config::Json;

struct DTypeName {
  DType type;
  std::string_view name;
};
constexpr DTypeName kDTypeNames[] = {{DType::kBF16, "BF16"}, {DType::kF16, "F16"}, {DType::kF32, "F32"}, {DType::kF8E4M3, "F8_E4M3"},
                                     {DType::kI64, "I64"},   {DType::kI32, "I32"}, {DType::kU8, "U8"},   {DType::kI8, "I8"}};

const DTypeName* find_dtype(std::string_view name) {
  for (const DTypeName& known : kDTypeNames) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

/// A non-negative integer of a JSON value, or an error that shows it.
Result<uint64_t> natural(const Json& value, std::string_view what, std::string_view tensor) {
  if (!value.is_int() || value.as_int() < 0) {
    return err(Code::kInvalidArgument, "tensor '{}': {} is {}, expected a non-negative integer", tensor, what, value.dump());
  }
  return static_cast<uint64_t>(value.as_int());
}

Result<void> read_shape(const Json& json, TensorEntry& entry) {
  if (!json.is_array()) return err(Code::kInvalidArgument, "tensor '{}': shape is {}, expected an array", entry.name, json.kind_name());
  if (json.as_array().size() > static_cast<size_t>(tensor::kMaxRank)) {
    return err(Code::kInvalidArgument, "tensor '{}': shape has {} dimensions, at most {} are supported", entry.name, json.as_array().size(),
               tensor::kMaxRank);
  }
  for (const Json& item : json.as_array()) {
    LATHE_TRY(const uint64_t size, natural(item, "a dimension", entry.name));
    entry.shape.push_back(static_cast<int64_t>(size));
  }
  return {};
}

/// Bytes of shape x dtype, or an error where that does not fit 63 bits. A dimension of 0 hides no others: strides are products of some of them.
Result<uint64_t> shape_bytes(const TensorEntry& entry) {
  uint64_t bytes = tensor::dtype_bytes(entry.dtype);
  bool empty = false;
  for (const int64_t size : entry.shape) {
    empty = empty || size == 0;
    const auto factor = static_cast<uint64_t>(std::max<int64_t>(size, 1));
    if (__builtin_mul_overflow(bytes, factor, &bytes) || bytes > static_cast<uint64_t>(INT64_MAX)) {
      return err(Code::kInvalidArgument, "tensor '{}': shape {} is too large", entry.name, describe_shape(entry.dtype, entry.shape));
    }
  }
  return empty ? 0 : bytes;
}

Result<TensorEntry> read_entry(const std::string& name, const Json& json, uint64_t data_size) {
  TensorEntry entry;
  entry.name = name;
  const Json* dtype = json.find("dtype");
  const Json* shape = json.find("shape");
  const Json* offsets = json.find("data_offsets");
  if (dtype == nullptr || !dtype->is_string() || shape == nullptr || offsets == nullptr) {
    return err(Code::kInvalidArgument, "tensor '{}': expected an object with dtype, shape and data_offsets", name);
  }
  const DTypeName* known = find_dtype(dtype->as_string());
  if (known == nullptr) {
    return err(Code::kInvalidArgument, "tensor '{}': dtype {} is not supported (BF16, F16, F32, F8_E4M3, I64, I32, U8, I8 are)", name,
               dtype->as_string());
  }
  entry.dtype = known->type;
  LATHE_TRY_VOID(read_shape(*shape, entry));
  if (!offsets->is_array() || offsets->as_array().size() != 2) {
    return err(Code::kInvalidArgument, "tensor '{}': data_offsets is {}, expected [begin, end]", name, offsets->dump());
  }
  LATHE_TRY(entry.begin, natural(offsets->as_array()[0], "the begin of data_offsets", name));
  LATHE_TRY(entry.end, natural(offsets->as_array()[1], "the end of data_offsets", name));
  if (entry.begin > entry.end) {
    return err(Code::kInvalidArgument, "tensor '{}': data_offsets [{}, {}] end before they begin", name, entry.begin, entry.end);
  }
  if (entry.end > data_size) {
    return err(Code::kDataLoss, "tensor '{}': data ends at byte {}, but the file holds only {} bytes of data (truncated?)", name, entry.end,
               data_size);
  }
  LATHE_TRY(const uint64_t bytes, shape_bytes(entry));
  if (bytes != entry.bytes()) {
    return err(Code::kInvalidArgument, "tensor '{}': {} needs {} bytes, but data_offsets [{}, {}] span {}", name,
               describe_shape(entry.dtype, entry.shape), bytes, entry.begin, entry.end, entry.bytes());
  }
  return entry;
}

/// Sorted tensors must tile [0, data_size): no overlap, no hole, nothing behind the last.
Result<void> check_tiling(const std::vector<TensorEntry>& sorted, uint64_t data_size) {
  uint64_t end = 0;
  std::string_view before = "the start of the data";
  for (const TensorEntry& entry : sorted) {
    if (entry.begin < end) {
      return err(Code::kInvalidArgument, "tensor '{}' [{}, {}] overlaps '{}', which ends at {}", entry.name, entry.begin, entry.end, before, end);
    }
    if (entry.begin > end) {
      return err(Code::kInvalidArgument, "{} bytes belong to no tensor between '{}' and '{}' (bytes {} to {})", entry.begin - end, before, entry.name,
                 end, entry.begin);
    }
    end = entry.end;
    before = entry.name;
  }
  if (end != data_size) return err(Code::kInvalidArgument, "{} bytes follow the last tensor '{}', which ends at {}", data_size - end, before, end);
  return {};
}

Result<void> read_metadata(const Json& json, SafetensorsHeader& header) {
  if (!json.is_object()) return err(Code::kInvalidArgument, "__metadata__ is {}, expected an object of strings", json.kind_name());
  for (const auto& [key, value] : json.as_object()) {
    if (!value.is_string()) return err(Code::kInvalidArgument, "__metadata__ '{}' is {}, expected a string", key, value.kind_name());
    header.metadata.emplace_back(key, value.as_string());
  }
  return {};
}

Result<SafetensorsHeader> parse(std::span<const std::byte> bytes) {
  constexpr uint64_t kLengthBytes = 8;
  if (bytes.size() < kLengthBytes) return err(Code::kDataLoss, "the file has {} bytes, too few for a safetensors header", bytes.size());
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > base::kLimits.safetensors_header_bytes) {
    return err(Code::kInvalidArgument, "the header length is {} bytes, the limit is {} (no safetensors file?)", length,
               base::kLimits.safetensors_header_bytes);
  }
  if (length > bytes.size() - kLengthBytes) {
    return err(Code::kDataLoss, "the header needs {} bytes, but only {} follow its length (truncated?)", length, bytes.size() - kLengthBytes);
  }
  auto json = config::parse_json({reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, static_cast<size_t>(length)});
  if (!json) return base::forward_error(json, "header");
  if (!json->is_object()) return err(Code::kInvalidArgument, "the header is {}, expected an object", json->kind_name());
  if (json->as_object().size() > base::kLimits.safetensors_tensors) {
    return err(Code::kInvalidArgument, "the header lists {} tensors, the limit is {}", json->as_object().size(), base::kLimits.safetensors_tensors);
  }
  SafetensorsHeader header;
  header.data_begin = kLengthBytes + length;
  const uint64_t data_size = bytes.size() - header.data_begin;
  for (const auto& [name, value] : json->as_object()) {
    if (name == "__metadata__") {
      LATHE_TRY_VOID(read_metadata(value, header));
      continue;
    }
    LATHE_TRY(TensorEntry entry, read_entry(name, value, data_size));
    header.tensors.push_back(std::move(entry));
  }
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) { return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name); });
  LATHE_TRY_VOID(check_tiling(header.tensors, data_size));
  return header;
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> bytes, std::string_view file) {
  auto header = parse(bytes);
  if (!header) return base::forward_error(header, file);
  return header;
}

std::string_view safetensors_dtype_name(DType type) {
  for (const DTypeName& known : kDTypeNames) {
    if (known.type == type) return known.name;
  }
  return "?";
}

std::string describe_shape(DType dtype, std::span<const int64_t> shape) {
  std::string out(tensor::dtype_name(dtype));
  out += '[';
  for (size_t i = 0; i < shape.size(); ++i) out += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  return out + "]";
}

}  // namespace lathe::weights
