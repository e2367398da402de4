// From stored names to the structures of the forward pass.

#include <fmt/format.h>

#include <optional>
#include <unordered_map>

#include "models/glm5_next_table.h"
#include "models/glm5_next_tensors.h"
#include "models/stored_scales.h"

namespace lathe::models {
namespace {

using weights::Checkpoint;
using weights::describe_shape;
using weights::TensorEntry;

bool ends_with(std::string_view text, std::string_view end) { return text.ends_with(end); }

void replace_once(std::string& text, std::string_view from, std::string_view to) {
  if (const size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
}

/// The name of a tensor in memory dumps of the reference implementation; the released name where they agree.
std::string in_memory_name(std::string name) {
  for (const char* part : {"f_a_proj.", "f_b_proj.", "dt_bias", "A_log"}) {
    replace_once(name, fmt::format(".self_attn.{}", part), fmt::format(".self_attn.forget_gate.{}", part));
  }
  replace_once(name, ".hc_attn_", ".attn_hc.");
  replace_once(name, ".hc_ffn_", ".ffn_hc.");
  return name;
}

/// A slice of a larger stored tensor: which one, and where.
struct Joined {
  std::string name;
  std::vector<int64_t> shape;  ///< of the whole
  int64_t index = -1;          ///< of the first dimension; −1: the whole tensor is cut by rows
  int64_t row = 0;             ///< first row of the slice
};

/// The convolutions lie one after the other as q, k, v.
std::optional<Joined> joined_conv(const TensorSpec& spec) {
  constexpr std::string_view kParts[] = {"q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"};
  for (size_t part = 0; part < std::size(kParts); ++part) {
    if (!ends_with(spec.name, kParts[part])) continue;
    Joined joined;
    joined.name = spec.name.substr(0, spec.name.size() - kParts[part].size()) + "conv1d.weight";
    joined.shape = spec.shape;
    joined.shape[0] *= 3;
    joined.row = static_cast<int64_t>(part) * spec.shape[0];
    return joined;
  }
  return std::nullopt;
}

/// All experts in one tensor: gate rows, then up rows, of each; and down.
std::optional<Joined> joined_expert(const TensorSpec& spec, int64_t experts) {
  if (spec.kind != TensorKind::kExpert) return std::nullopt;
  const size_t at = spec.name.find(".experts.") + std::string_view(".experts.").size();
  const size_t dot = spec.name.find('.', at);
  Joined joined;
  joined.index = std::stoll(spec.name.substr(at, dot - at));
  const bool down = ends_with(spec.name, "down_proj.weight");
  joined.name = spec.name.substr(0, at) + (down ? "down_proj" : "gate_up_proj");
  joined.shape = {experts, down ? spec.shape[0] : 2 * spec.shape[0], spec.shape[1]};
  joined.row = ends_with(spec.name, "up_proj.weight") ? spec.shape[0] : 0;
  return joined;
}

std::vector<int64_t> without_ones(const std::vector<int64_t>& shape) {
  std::vector<int64_t> out;
  for (const int64_t size : shape) {
    if (size != 1) out.push_back(size);
  }
  return out;
}

View with_shape(const View& view, const std::vector<int64_t>& shape) {
  View out = view;
  out.rank = static_cast<int>(shape.size());
  int64_t step = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    out.shape[axis] = shape[axis];
    out.stride[axis] = step;
    step *= shape[axis];
  }
  return out;
}

/// Takes tensors one by one; the first error sticks and ends the work.
class Binder : public TensorVisitor {
 public:
  Binder(const Glm5NextConfig& config, Checkpoint& checkpoint) : config_(config), checkpoint_(checkpoint), scales_(config.quantization, checkpoint) {}

  void matrix(TensorSpec spec, MatrixView& place) override {
    if (error_) return;
    if (const auto name = stored_name(spec.name)) {
      store(bind_matrix(spec, *name), place);
    } else if (const auto joined = joined_expert(spec, config_.moe.experts)) {
      store(bind_expert(spec, *joined), place);
    } else {
      missing(spec);
    }
  }

  void vector(TensorSpec spec, View& place) override {
    if (error_) return;
    if (const auto name = stored_name(spec.name)) {
      store(bind_vector(spec, *name), place);
      return;
    }
    const auto joined = joined_conv(spec);
    const auto name = joined ? stored_name(joined->name) : std::nullopt;
    if (!name) {
      missing(spec);
      return;
    }
    store(bind_conv(spec, *joined, *name), place);
  }

  Result<void> status() const {
    if (error_) return tl::unexpected<Error>(*error_);
    return {};
  }

 private:
  template <class T>
  void store(Result<T> result, T& place) {
    if (result) {
      place = std::move(*result);
    } else {
      error_ = result.error();
    }
  }

  void missing(const TensorSpec& spec) {
    error_ = err(Code::kNotFound, "{} lacks tensor '{}' (expected shape [{}])", checkpoint_.path(), spec.name, fmt::join(spec.shape, ", ")).value();
  }

  /// The spelling under which the checkpoint holds a tensor, if it does.
  std::optional<std::string> stored_name(const std::string& released) const {
    for (const std::string& name : {released, in_memory_name(released)}) {
      if (checkpoint_.has(name)) return name;
      std::string shorter = name;
      replace_once(shorter, "model.language_model.", "model.");
      replace_once(shorter, "model.visual.", "visual.");
      if (checkpoint_.has(shorter)) return shorter;
    }
    return std::nullopt;
  }

  Result<void> check_dtype(const TensorSpec& spec, const std::string& name) const {
    const DType dtype = checkpoint_.find(name)->dtype;
    if (dtype_allowed(spec, dtype)) return {};
    const char* const codes = spec.int8_allowed  ? ", f32, or f8_e4m3 or i8 with scales"
                              : spec.fp8_allowed ? ", f32 or f8_e4m3 with scales"
                                                 : " or f32";
    return err(Code::kInvalidArgument, "tensor '{}' in {} is {}, expected bf16, f16{}", name, checkpoint_.file_of(name), tensor::dtype_name(dtype),
               codes);
  }

  Result<void> check_shape(const std::string& name, const std::vector<int64_t>& expected) const {
    const TensorEntry& entry = *checkpoint_.find(name);
    if (entry.shape == expected) return {};
    return err(Code::kInvalidArgument, "tensor '{}' in {} is {}, expected shape [{}]", name, checkpoint_.file_of(name),
               describe_shape(entry.dtype, entry.shape), fmt::join(expected, ", "));
  }

  Result<View> bind_vector(const TensorSpec& spec, const std::string& name) {
    LATHE_TRY_VOID(check_dtype(spec, name));
    const std::vector<int64_t>& stored = checkpoint_.find(name)->shape;
    int64_t elements = 1;
    for (const int64_t size : stored) elements *= size;
    const bool fits = spec.any_rank ? elements == spec.elements() : without_ones(stored) == without_ones(spec.shape);
    if (!fits) LATHE_TRY_VOID(check_shape(name, spec.shape));
    LATHE_TRY(const View view, checkpoint_.take(name));
    return with_shape(view, bound_shape(spec));
  }

  /// Stored dimensions of size 1 in the middle carry nothing: a convolution [C, 1, W] becomes [C, W].
  static std::vector<int64_t> bound_shape(const TensorSpec& spec) {
    if (spec.shape.size() == 3 && spec.shape[1] == 1) return {spec.shape[0], spec.shape[2]};
    return spec.shape;
  }

  static MatrixView make_matrix(const View& values, const View& scales) {
    if (!scales.present()) return {.values = values, .scales = {}};
    return values.dtype == DType::kI8 ? int8_matrix(values, scales) : fp8_matrix(values, scales);
  }

  Result<MatrixView> bind_matrix(const TensorSpec& spec, const std::string& name) {
    LATHE_TRY_VOID(check_dtype(spec, name));
    LATHE_TRY_VOID(check_shape(name, spec.shape));
    const int64_t rows = spec.shape[0];
    const int64_t cols = spec.elements() / rows;
    LATHE_TRY_VOID(scales_.check_description(name));
    LATHE_TRY(const View scales, scales_.take(name, rows, cols));
    LATHE_TRY(const View values, checkpoint_.take(name));
    const MatrixView matrix = make_matrix(with_shape(values, {rows, cols}), scales);
    LATHE_TRY_VOID(scales_.check_values(name, matrix));
    return matrix;
  }

  /// The whole of a joined tensor; taken from the checkpoint at its first use.
  struct Whole {
    View values;
    View scales;
  };
  Result<Whole> whole(const TensorSpec& spec, const Joined& joined, const std::string& name) {
    if (const auto known = wholes_.find(name); known != wholes_.end()) return known->second;
    LATHE_TRY_VOID(check_dtype(spec, name));
    LATHE_TRY_VOID(check_shape(name, joined.shape));
    Whole out;
    if (joined.index >= 0) {
      LATHE_TRY(out.scales, scales_.take_stack(name, joined.shape));
    }
    LATHE_TRY(out.values, checkpoint_.take(name));
    if (out.scales.present()) {
      for (int64_t i = 0; i < joined.shape[0]; ++i) LATHE_TRY_VOID(scales_.check_values(name, make_matrix(out.values.at(i), out.scales.at(i))));
    }
    wholes_.emplace(name, out);
    return out;
  }

  Result<MatrixView> bind_expert(const TensorSpec& spec, const Joined& joined) {
    const auto name = stored_name(joined.name);
    if (!name) {
      missing(spec);
      return tl::unexpected<Error>(*error_);
    }
    LATHE_TRY(const Whole all, whole(spec, joined, *name));
    const MatrixView expert = make_matrix(all.values.at(joined.index), all.scales.present() ? all.scales.at(joined.index) : View{});
    return slice_matrix(expert, {joined.row, joined.row + spec.shape[0]}, {0, spec.shape[1]});
  }

  Result<View> bind_conv(const TensorSpec& spec, const Joined& joined, const std::string& name) {
    LATHE_TRY(const Whole all, whole(spec, joined, name));
    return with_shape(all.values.rows(joined.row, joined.row + spec.shape[0]), bound_shape(spec));
  }

  const Glm5NextConfig& config_;
  Checkpoint& checkpoint_;
  StoredScales scales_;
  std::optional<Error> error_;
  std::unordered_map<std::string, Whole> wholes_;
};

}  // namespace

Result<Glm5NextWeights> bind_glm5_next(const Glm5NextConfig& config, Checkpoint& checkpoint) {
  Binder binder(config, checkpoint);
  Glm5NextWeights weights;
  visit_tensors(config, binder, weights);
  LATHE_TRY_VOID(binder.status());
  LATHE_TRY_VOID(checkpoint.finish());
  return weights;
}

}  // namespace lathe::models
