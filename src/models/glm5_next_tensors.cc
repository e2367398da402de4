#include "models/glm5_next_tensors.h"

#include "models/glm5_next_table.h"

namespace lathe::models {
namespace {

class Inventory : public TensorVisitor {
 public:
  void matrix(TensorSpec spec, MatrixView&) override { specs.push_back(std::move(spec)); }
  void vector(TensorSpec spec, View&) override { specs.push_back(std::move(spec)); }
  std::vector<TensorSpec> specs;
};

}  // namespace

std::string_view tensor_kind_name(TensorKind kind) {
  switch (kind) {
    case TensorKind::kEmbedding: return "embedding";
    case TensorKind::kHead: return "head";
    case TensorKind::kNorm: return "norm";
    case TensorKind::kMhc: return "mhc";
    case TensorKind::kKda: return "kda";
    case TensorKind::kDsa: return "dsa";
    case TensorKind::kIndexer: return "indexer";
    case TensorKind::kDense: return "dense";
    case TensorKind::kRouter: return "router";
    case TensorKind::kExpert: return "expert";
    case TensorKind::kShared: return "shared";
    case TensorKind::kMtp: return "mtp";
    case TensorKind::kVision: return "vision";
  }
  return "?";
}

int64_t TensorSpec::elements() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

std::vector<TensorSpec> glm5_next_inventory(const Glm5NextConfig& config) {
  Inventory inventory;
  Glm5NextWeights unused;
  visit_tensors(config, inventory, unused);
  return std::move(inventory.specs);
}

std::vector<std::string> modules_without(const Glm5NextConfig& config, base::FunctionRef<bool(const TensorSpec&)> quantised) {
  std::vector<std::string> out;
  for (const TensorSpec& spec : glm5_next_inventory(config)) {
    constexpr std::string_view kPart = "language_model.";
    constexpr std::string_view kEnd = ".weight";
    if (spec.shape.size() != 2 || quantised(spec) || spec.kind == TensorKind::kVision || !spec.name.ends_with(kEnd)) continue;
    std::string name = spec.name.substr(0, spec.name.size() - kEnd.size());
    if (const size_t at = name.find(kPart); at != std::string::npos) name.erase(at, kPart.size());
    out.push_back(std::move(name));
  }
  if (config.vision) out.emplace_back("model.visual");
  return out;
}

bool dtype_allowed(const TensorSpec& spec, DType dtype) {
  if (dtype == DType::kF8E4M3) return spec.fp8_allowed;
  if (dtype == DType::kI8) return spec.int8_allowed;
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32;
}

std::vector<float> to_float32(const View& view) {
  LATHE_CHECK(view.contiguous(), "to_float32 of strided {}", describe(view));
  std::vector<float> out(static_cast<size_t>(view.elements()));
  for (size_t i = 0; i < out.size(); ++i) out[i] = tensor::load_as_float(view.dtype, view.data, static_cast<int64_t>(i));
  return out;
}

}  // namespace lathe::models
