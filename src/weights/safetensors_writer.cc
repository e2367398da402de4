// Writing safetensors files: header first, then the tensors straight from their views.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <unordered_set>

#include "config/json.h"
#include "weights/safetensors.h"

namespace lathe::weights {
namespace {

using config::Json;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

/// Pointers in the order of the file: wide elements first, so that every tensor begins at a multiple of its element size.
std::vector<const NamedView*> file_order(std::span<const NamedView> tensors) {
  std::vector<const NamedView*> order;
  for (const NamedView& named : tensors) order.push_back(&named);
  std::sort(order.begin(), order.end(), [](const NamedView* a, const NamedView* b) {
    const size_t a_bytes = tensor::dtype_bytes(a->view.dtype);
    const size_t b_bytes = tensor::dtype_bytes(b->view.dtype);
    return a_bytes != b_bytes ? a_bytes > b_bytes : a->name < b->name;
  });
  return order;
}

Result<void> check_tensors(std::span<const NamedView> tensors) {
  std::unordered_set<std::string_view> names;
  for (const NamedView& named : tensors) {
    if (named.name == "__metadata__") return err(Code::kInvalidArgument, "a tensor may not be called '__metadata__'");
    if (!names.insert(named.name).second) return err(Code::kInvalidArgument, "two tensors are called '{}'", named.name);
    if (!named.view.present() || !named.view.contiguous()) {
      return err(Code::kInvalidArgument, "tensor '{}' ({}) is not contiguous", named.name, describe(named.view));
    }
  }
  return {};
}

uint64_t view_bytes(const View& view) { return static_cast<uint64_t>(view.elements()) * tensor::dtype_bytes(view.dtype); }

/// Length, JSON and padding with blanks to a multiple of 8 bytes.
std::string make_header(const std::vector<const NamedView*>& order, std::span<const std::pair<std::string, std::string>> metadata) {
  Json::Object header;
  if (!metadata.empty()) {
    Json::Object strings;
    for (const auto& [key, value] : metadata) strings.emplace_back(key, Json(value));
    header.emplace_back("__metadata__", Json(std::move(strings)));
  }
  uint64_t at = 0;
  for (const NamedView* named : order) {
    Json::Array shape;
    for (int axis = 0; axis < named->view.rank; ++axis) shape.emplace_back(named->view.dim(axis));
    const uint64_t end = at + view_bytes(named->view);
    Json::Array offsets = {Json(static_cast<int64_t>(at)), Json(static_cast<int64_t>(end))};
    header.emplace_back(named->name, Json(Json::Object{{"dtype", Json(safetensors_dtype_name(named->view.dtype))},
                                                       {"shape", Json(std::move(shape))},
                                                       {"data_offsets", Json(std::move(offsets))}}));
    at = end;
  }
  std::string json = Json(std::move(header)).dump();
  json.append((8 - json.size() % 8) % 8, ' ');
  const uint64_t length = json.size();
  std::string out(sizeof(length), '\0');
  std::memcpy(out.data(), &length, sizeof(length));
  return out + json;
}

bool write_all(std::FILE* file, const void* data, size_t bytes) { return bytes == 0 || std::fwrite(data, 1, bytes, file) == bytes; }

}  // namespace

Result<void> write_safetensors(const std::string& path, std::span<const NamedView> tensors,
                               std::span<const std::pair<std::string, std::string>> metadata) {
  LATHE_TRY_VOID(check_tensors(tensors));
  const std::vector<const NamedView*> order = file_order(tensors);
  const std::string header = make_header(order, metadata);
  const std::string temporary = fmt::format("{}.part{}", path, ::getpid());
  File file(std::fopen(temporary.c_str(), "wb"));
  if (file == nullptr) return err(Code::kUnavailable, "cannot create '{}': {}", temporary, std::strerror(errno));
  bool written = write_all(file.get(), header.data(), header.size());
  for (const NamedView* named : order) {
    written = written && write_all(file.get(), named->view.data, static_cast<size_t>(view_bytes(named->view)));
  }
  written = written && std::fflush(file.get()) == 0;
  int cause = errno;
  if (std::fclose(file.release()) != 0 && written) {
    written = false;
    cause = errno;
  }
  if (written && std::rename(temporary.c_str(), path.c_str()) != 0) {
    written = false;
    cause = errno;
  }
  if (written) return {};
  ::unlink(temporary.c_str());
  return err(Code::kUnavailable, "cannot write '{}': {}", path, std::strerror(cause));
}

}  // namespace lathe::weights
