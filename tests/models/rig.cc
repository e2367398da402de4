#include "rig.h"

#include <algorithm>

namespace lathe::models::golden {

std::unique_ptr<backend::Device> Rig::cpu_device(const RigOptions& options) {
  return must(backend::make_cpu_device({.threads = options.threads, .isa = options.isa, .reference = options.reference}), "device");
}

Rig::Rig(const RigOptions& options, std::unique_ptr<backend::Device> device) : device_(std::move(device)) {
  dispatch_ = must(backend::Dispatch::create(*device_, options.dispatch), "dispatch");
  model_ = must(load_model(options.directory, *dispatch_, options.model), options.directory.c_str());
  store_ = must(
      cache::Store::create(
          *device_, model_->cache_families(),
          {.block_tokens = options.block_tokens, .blocks = options.blocks, .slots = options.slots, .tentative_max = options.model.tentative_max}),
      "store");
}

std::vector<float> Rig::feed(SequenceId sequence, const std::vector<TokenId>& tokens, ItemKind kind, Logits logits, std::vector<EmbeddingRows> rows,
                             StepHooks* hooks) {
  must(store_->append(sequence, static_cast<int64_t>(tokens.size()), 0), "append");
  const StepItem item{.sequence = sequence, .kind = kind, .tokens = tokens, .rows = rows, .logits = logits, .at = {}};
  const StepResult result = must(model_->step({&item, 1}, *store_, hooks), "step");
  store_->commit(sequence, 0);
  return result.logits.present() ? host(result.logits) : std::vector<float>{};
}

std::vector<float> Rig::prefill(const std::vector<TokenId>& tokens, const std::vector<int64_t>& chunks, SequenceId* sequence) {
  const SequenceId id = open();
  std::vector<float> out;
  size_t at = 0;
  for (size_t i = 0; at < tokens.size(); ++i) {
    const size_t left = tokens.size() - at;
    const size_t size = i < chunks.size() ? std::min(left, static_cast<size_t>(chunks[i])) : left;
    const std::vector<float> logits = feed(id, {tokens.begin() + static_cast<int64_t>(at), tokens.begin() + static_cast<int64_t>(at + size)});
    out.insert(out.end(), logits.begin(), logits.end());
    at += size;
  }
  if (sequence != nullptr) {
    *sequence = id;
  } else {
    store_->close(id);
  }
  return out;
}

std::vector<float> copy_to_floats(backend::Device& device, const View& view) {
  const int64_t extent = view.extent_bytes();
  std::vector<std::byte> bytes(static_cast<size_t>(extent));
  device.synchronise();
  if (extent > 0) device.copy_to_host(bytes.data(), view.data, extent);
  std::vector<float> out;
  out.reserve(static_cast<size_t>(view.elements()));
  std::array<int64_t, tensor::kMaxRank> index{};
  for (int64_t n = view.elements(); n > 0; --n) {
    int64_t offset = 0;
    for (int axis = 0; axis < view.rank; ++axis) offset += index[static_cast<size_t>(axis)] * view.step(axis);
    out.push_back(view.dtype == DType::kI32 ? static_cast<float>(reinterpret_cast<const int32_t*>(bytes.data())[offset])
                                            : tensor::load_as_float(view.dtype, bytes.data(), offset));
    for (int axis = view.rank - 1; axis >= 0; --axis) {
      if (++index[static_cast<size_t>(axis)] < view.dim(axis)) break;
      index[static_cast<size_t>(axis)] = 0;
    }
  }
  return out;
}

std::vector<float> Rig::host(const View& view) { return copy_to_floats(*device_, view); }

std::vector<float> Rig::state(SequenceId sequence, int32_t layer, const std::string& family, int plane) {
  const std::vector<std::byte> bytes = must(store_->materialise(sequence, layer, family, plane), family.c_str());
  const DType dtype = store_->plane(layer, family, plane).dtype;
  std::vector<float> out(bytes.size() / tensor::dtype_bytes(dtype));
  for (size_t i = 0; i < out.size(); ++i) out[i] = tensor::load_as_float(dtype, bytes.data(), static_cast<int64_t>(i));
  return out;
}

std::vector<float> Rig::cached_rows(SequenceId sequence, int32_t layer, const std::string& family, int64_t begin, int64_t end, int which) {
  const View plane = store_->plane(layer, family, which);
  const int64_t per_block = store_->block_rows(store_->family(layer, family));
  std::vector<float> out;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = store_->block_table(sequence)[static_cast<size_t>(row / per_block)] * per_block + row % per_block;
    const std::vector<float> values = host(plane.rows(at, at + 1));
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

std::vector<float> Rig::ring_rows(SequenceId sequence, int32_t layer, const cache::Family& family, int64_t length) {
  const std::vector<float> ring = state(sequence, layer, family.name);
  const int64_t rows = family.planes.front().rows_per_unit;
  const int64_t width = family.planes.front().elements;
  // Rings are longer than what is needed by the tentative tokens: older rows may have been overwritten by dropped ones.
  const int64_t needed = std::min(length, rows - store_->options().tentative_max);
  std::vector<float> out;
  for (int64_t position = length - needed; position < length; ++position) {
    const auto first = ring.begin() + position % rows * width;
    out.insert(out.end(), first, first + width);
  }
  return out;
}

std::vector<float> Rig::plane_rows(SequenceId sequence, const cache::LayerFamily& of, int plane) {
  const auto& [layer, family] = of;
  const int64_t length = layer == model_->info().layers ? store_->draft_length(sequence) : store_->length(sequence);
  if (family.candidates) return state(sequence, layer, family.name, plane);
  if (family.unit == cache::Unit::kSequence) return ring_rows(sequence, layer, family, length);
  return cached_rows(sequence, layer, family.name, 0, length / family.tokens_per_unit, plane);
}

std::vector<float> Rig::caches(SequenceId sequence) {
  std::vector<float> out;
  for (const cache::LayerFamily& of : store_->families()) {
    for (int plane = 0; plane < std::ssize(of.family.planes); ++plane) {
      const std::vector<float> values = plane_rows(sequence, of, plane);
      out.insert(out.end(), values.begin(), values.end());
    }
  }
  return out;
}

namespace {

class FindView final : public ops::ViewVisitor {
 public:
  explicit FindView(const std::string& name) : name_(name) {}
  void view(const char* name, ops::Role, View& view) override {
    if (name_ == name && !found_.present()) found_ = view;
  }
  const View& found() const { return found_; }

 private:
  const std::string& name_;
  View found_;
};

}  // namespace

void Capture::after(backend::OpCall& call, backend::Device& device) {
  const auto wanted = wanted_.find(call.site->name);
  if (wanted == wanted_.end()) return;
  FindView find(wanted->second);
  call.info->visit(call.params, find);
  LATHE_CHECK(find.found().present(), "no view '{}' at {}", wanted->second, wanted->first);
  const std::vector<float> values = copy_to_floats(device, find.found());
  std::vector<float>& kept = kept_[{wanted->first, call.site->layer}];
  kept.insert(kept.end(), values.begin(), values.end());
}

}  // namespace lathe::models::golden
