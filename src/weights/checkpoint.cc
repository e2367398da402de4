#include "weights/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "config/json.h"

namespace lathe::weights {
namespace {

using config::Json;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

/// name → shard file, as the index says.
Result<std::map<std::string, std::string>> read_weight_map(const std::string& index_file) {
  LATHE_TRY(const Json json, config::read_json_file(index_file));
  const Json* map = json.find("weight_map");
  if (map == nullptr || !map->is_object()) return err(Code::kInvalidArgument, "{}: no object 'weight_map'", index_file);
  std::map<std::string, std::string> out;
  for (const auto& [name, file] : map->as_object()) {
    if (!file.is_string() || file.as_string().empty() || file.as_string().find('/') != std::string::npos) {
      return err(Code::kInvalidArgument, "{}: weight_map of '{}' is {}, expected a file name without folders", index_file, name, file.dump());
    }
    out.emplace(name, file.as_string());
  }
  return out;
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& path) {
  Checkpoint checkpoint;
  checkpoint.path_ = path;
  if (!base::is_directory(path)) {
    LATHE_TRY_VOID(checkpoint.add_shard(path));
    return checkpoint;
  }
  const std::string single = path + "/" + kSingleFile;
  const std::string index = path + "/" + kIndexFile;
  // An index wins: a directory may hold a stale single file of an earlier conversion, and the index names what belongs together.
  if (base::file_exists(index)) {
    LATHE_TRY_VOID(checkpoint.add_indexed_shards(index));
  } else if (base::file_exists(single)) {
    LATHE_TRY_VOID(checkpoint.add_shard(single));
  } else {
    return err(Code::kNotFound, "'{}' holds neither {} nor {}", path, kSingleFile, kIndexFile);
  }
  return checkpoint;
}

Result<void> Checkpoint::add_shard(const std::string& file) {
  LATHE_TRY(base::MappedFile mapped, base::MappedFile::open(file));
  LATHE_TRY(SafetensorsHeader header, parse_safetensors(mapped.bytes(), file));
  const size_t shard = shards_.size();
  for (TensorEntry& entry : header.tensors) {
    std::string name = entry.name;
    const auto [at, added] = tensors_.try_emplace(std::move(name), Tensor{std::move(entry), shard});
    if (!added) return err(Code::kInvalidArgument, "{}: tensor '{}' is also in {}", file, at->first, files_[at->second.shard]);
  }
  for (auto& [key, value] : header.metadata) metadata_.emplace(std::move(key), std::move(value));
  files_.push_back(file);
  shards_.push_back({std::move(mapped), header.data_begin});
  return {};
}

Result<void> Checkpoint::add_indexed_shards(const std::string& index_file) {
  LATHE_TRY(const auto weight_map, read_weight_map(index_file));
  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map) names.insert(file);
  for (const std::string& name : names) {
    const std::string file = path_ + "/" + name;
    if (!base::file_exists(file)) return err(Code::kNotFound, "{}: shard '{}' does not exist", index_file, file);
    LATHE_TRY_VOID(add_shard(file));
  }
  for (const auto& [name, file] : weight_map) {
    const std::string_view found = file_of(name);
    const std::string expected = path_ + "/" + file;
    if (found.empty()) return err(Code::kInvalidArgument, "{}: tensor '{}' is not in its shard {}", index_file, name, file);
    if (found != expected) return err(Code::kInvalidArgument, "{}: tensor '{}' is said to be in {}, but is in {}", index_file, name, expected, found);
  }
  if (weight_map.size() != tensors_.size()) {
    for (const std::string& name : this->names()) {
      if (!weight_map.contains(name))
        return err(Code::kInvalidArgument, "{}: tensor '{}' of {} is not in the index", index_file, name, file_of(name));
    }
  }
  return {};
}

const TensorEntry* Checkpoint::find(std::string_view name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second.entry;
}

std::string_view Checkpoint::file_of(std::string_view name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? std::string_view() : std::string_view(files_[at->second.shard]);
}

Result<View> Checkpoint::take(std::string_view name) {
  const auto at = tensors_.find(name);
  if (at == tensors_.end()) return err(Code::kNotFound, "there is no tensor '{}' in {}", name, path_);
  Tensor& stored = at->second;
  if (stored.used) return err(Code::kFailedPrecondition, "tensor '{}' of {} is used twice", name, files_[stored.shard]);
  stored.used = true;
  const TensorEntry& entry = stored.entry;
  const Shard& shard = shards_[stored.shard];
  const std::byte* data = shard.file.bytes().data() + shard.data_begin + entry.begin;
  const size_t unit = tensor::dtype_bytes(entry.dtype);
  if (reinterpret_cast<uintptr_t>(data) % unit != 0) {
    auto copy = std::make_unique<std::byte[]>(static_cast<size_t>(entry.bytes()));
    std::memcpy(copy.get(), data, static_cast<size_t>(entry.bytes()));
    copies_.push_back(std::move(copy));
    data = copies_.back().get();
  }
  View view;
  view.data = const_cast<std::byte*>(data);  // views are untyped about constness; nobody writes weights
  view.dtype = entry.dtype;
  view.rank = std::max(1, static_cast<int>(entry.shape.size()));
  view.shape[0] = 1;
  std::copy(entry.shape.begin(), entry.shape.end(), view.shape.begin());
  int64_t step = 1;
  for (int axis = view.rank - 1; axis >= 0; --axis) {
    view.stride[static_cast<size_t>(axis)] = step;
    step *= view.dim(axis);
  }
  return view;
}

Result<View> Checkpoint::take_f32(std::string_view name) {
  LATHE_TRY(View view, take(name));
  if (view.dtype == DType::kF32) return view;
  auto copy = std::make_unique<std::byte[]>(static_cast<size_t>(view.elements()) * sizeof(float));
  auto* const wide = reinterpret_cast<float*>(copy.get());
  for (int64_t i = 0; i < view.elements(); ++i) wide[i] = tensor::load_as_float(view.dtype, view.data, i);
  copies_.push_back(std::move(copy));
  view.data = wide;
  view.dtype = DType::kF32;
  return view;
}

Result<void> Checkpoint::finish() const {
  std::vector<std::string_view> unused;
  for (const auto& [name, stored] : tensors_) {
    if (!stored.used) unused.push_back(name);
  }
  if (unused.empty()) return {};
  std::sort(unused.begin(), unused.end());
  constexpr size_t kShown = 5;
  std::string list;
  for (size_t i = 0; i < std::min(kShown, unused.size()); ++i) {
    const TensorEntry& entry = *find(unused[i]);
    list += fmt::format("{}'{}' {} in {}", i == 0 ? "" : ", ", unused[i], describe_shape(entry.dtype, entry.shape), file_of(unused[i]));
  }
  if (unused.size() > kShown) list += ", …";
  return err(Code::kInvalidArgument, "{} of {} tensors of {} are not part of the model: {}", unused.size(), tensors_.size(), path_, list);
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> out;
  for (const auto& [name, stored] : tensors_) out.push_back(name);
  std::sort(out.begin(), out.end());
  return out;
}

uint64_t Checkpoint::data_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [name, stored] : tensors_) bytes += stored.entry.bytes();
  return bytes;
}

}  // namespace lathe::weights
