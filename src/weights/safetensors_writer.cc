// Writing safetensors files: header first, then the tensors as they are computed.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <unordered_set>

#include "config/json.h"
#include "weights/safetensors.h"

namespace lathe::weights {
namespace {

using config::Json;

Result<void> check_names(std::span<const TensorEntry> tensors) {
  std::unordered_set<std::string_view> names;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.name == "__metadata__") return err(Code::kInvalidArgument, "a tensor may not be called '__metadata__'");
    if (!names.insert(tensor.name).second) return err(Code::kInvalidArgument, "two tensors are called '{}'", tensor.name);
  }
  return {};
}

/// Places in the order of the file: wide elements first, so that every tensor begins at a multiple of its element size.
std::vector<size_t> file_order(std::span<const TensorEntry> tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const size_t a_bytes = tensor::dtype_bytes(tensors[a].dtype);
    const size_t b_bytes = tensor::dtype_bytes(tensors[b].dtype);
    return a_bytes != b_bytes ? a_bytes > b_bytes : tensors[a].name < tensors[b].name;
  });
  return order;
}

/// Offsets from the start of the data, by place in `tensors`.
std::vector<StreamPart> lay_out(std::span<const TensorEntry> tensors, std::span<const size_t> order) {
  std::vector<StreamPart> parts(tensors.size());
  uint64_t at = 0;
  for (const size_t i : order) {
    parts[i] = {.offset = at, .bytes = stored_bytes(tensors[i])};
    at += parts[i].bytes;
  }
  return parts;
}

/// Length, JSON and padding with blanks to a multiple of 8 bytes.
std::string make_header(std::span<const TensorEntry> tensors, std::span<const size_t> order, std::span<const StreamPart> parts, Metadata metadata) {
  Json::Object header;
  if (!metadata.empty()) {
    Json::Object strings;
    for (const auto& [key, value] : metadata) strings.emplace_back(key, Json(value));
    header.emplace_back("__metadata__", Json(std::move(strings)));
  }
  for (const size_t i : order) {
    Json::Array shape(tensors[i].shape.begin(), tensors[i].shape.end());
    const auto begin = static_cast<int64_t>(parts[i].offset);
    Json::Array offsets = {Json(begin), Json(begin + static_cast<int64_t>(parts[i].bytes))};
    header.emplace_back(tensors[i].name, Json(Json::Object{{"dtype", Json(safetensors_dtype_name(tensors[i].dtype))},
                                                           {"shape", Json(std::move(shape))},
                                                           {"data_offsets", Json(std::move(offsets))}}));
  }
  std::string json = Json(std::move(header)).dump();
  json.append((8 - json.size() % 8) % 8, ' ');
  const uint64_t length = json.size();
  std::string out(sizeof(length), '\0');
  std::memcpy(out.data(), &length, sizeof(length));
  return out + json;
}

}  // namespace

uint64_t stored_bytes(const TensorEntry& tensor) {
  uint64_t bytes = tensor::dtype_bytes(tensor.dtype);
  for (const int64_t size : tensor.shape) bytes *= static_cast<uint64_t>(size);
  return bytes;
}

Result<void> write_safetensors(const std::string& path, const ComputedTensors& computed, const StreamOptions& options) {
  const std::span<const TensorEntry> tensors = computed.tensors;
  LATHE_TRY_VOID(check_names(tensors));
  const std::vector<size_t> order = file_order(tensors);
  std::vector<StreamPart> parts = lay_out(tensors, order);
  const std::string header = make_header(tensors, order, parts, computed.metadata);
  uint64_t size = header.size();
  for (StreamPart& part : parts) {
    part.offset += header.size();
    size += part.bytes;
  }
  LATHE_TRY(base::OutputFile file, base::OutputFile::create(path, size));
  LATHE_TRY_VOID(file.write_at(0, std::as_bytes(std::span(header))));
  LATHE_TRY_VOID(stream_parts(file, parts, computed.fill, options));
  return file.commit();
}

Result<void> write_safetensors(const std::string& path, std::span<const NamedView> tensors, Metadata metadata) {
  std::vector<TensorEntry> entries;
  for (const auto& [name, view] : tensors) {
    if (!view.present() || !view.contiguous()) return err(Code::kInvalidArgument, "tensor '{}' ({}) is not contiguous", name, describe(view));
    entries.push_back({.name = name, .dtype = view.dtype, .shape = {view.shape.begin(), view.shape.begin() + view.rank}});
  }
  const auto copy = [&](size_t part, uint64_t begin, std::span<std::byte> out) -> Result<void> {
    std::memcpy(out.data(), static_cast<const std::byte*>(tensors[part].view.data) + begin, out.size());
    return {};
  };
  return write_safetensors(path, {.tensors = entries, .fill = copy, .metadata = metadata}, {});
}

}  // namespace lathe::weights
