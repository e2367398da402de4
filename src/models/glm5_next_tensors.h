#pragma once
// Which tensors a glm5_next checkpoint holds, and their binding to structures that the forward pass reads.
// Source: spec/glm5_next.md §4.1 (released names), §4.2 (in-memory names of other exports).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "models/glm5_next_config.h"
#include "tensor/view.h"
#include "weights/checkpoint.h"

namespace lathe::models {

enum class TensorKind : uint8_t {
  kEmbedding,
  kHead,
  kNorm,
  kMhc,
  kKda,
  kDsa,
  kIndexer,
  kDense,
  kRouter,
  kExpert,
  kShared,
  kMtp,
  kVision,
};
inline constexpr int kTensorKinds = static_cast<int>(TensorKind::kVision) + 1;
std::string_view tensor_kind_name(TensorKind kind);

/// One tensor of a model, by its released name.
struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  TensorKind kind = TensorKind::kNorm;
  int32_t layer = -1;           ///< text layer (the draft layer is `layers`) or vision block; −1: none
  bool any_rank = false;        ///< only the number of elements counts (A_log)
  bool f32_in_release = false;  ///< stored as F32 also where the model is BF16
  bool fp8_in_release = false;  ///< an E4M3 matrix in the FP8 release
  bool fp8_allowed = false;     ///< may be E4M3 with a `_scale_inv` sibling
  bool int8_allowed = false;    ///< may be INT8 with a `_scale` sibling
  bool int8_default = false;    ///< what quantisers make INT8 unless they are told otherwise

  int64_t elements() const;
};

/// Every tensor of the model, scales not included, in the order of the table.
std::vector<TensorSpec> glm5_next_inventory(const Glm5NextConfig& config);

/// Modules whose matrices are not among the quantised ones, as the FP8 release lists them: without `language_model.` and `.weight`.
std::vector<std::string> modules_without(const Glm5NextConfig& config, base::FunctionRef<bool(const TensorSpec&)> quantised);

/// Stored dtypes that a tensor may have: BF16, F16, F32, F8_E4M3 where fp8_allowed, I8 where int8_allowed.
bool dtype_allowed(const TensorSpec& spec, DType dtype);

/// The released FP8 format has one scale per block of 128 x 128 values.
inline constexpr int32_t kScaleBlock = 128;
/// Blocks along an axis of `size` values, the last one partly filled.
constexpr int64_t scale_blocks(int64_t size) { return (size + kScaleBlock - 1) / kScaleBlock; }

// Binding. All views point into the checkpoint (host memory, as stored) and die with it. Matrices are [out, in]: y = W x.

/// mHC site: fn [S(2+S), S·hidden]; base [S(2+S)]; scale [3].
struct MhcWeights {
  MatrixView fn;
  View base;
  View scale;
};

struct KdaWeights {
  MatrixView q, k, v;           ///< [HK, hidden]
  View q_conv, k_conv, v_conv;  ///< [HK, taps]; the last tap is the current token
  MatrixView f_a, g_a;          ///< [head_dim, hidden]
  MatrixView f_b, g_b;          ///< [HK, head_dim]
  MatrixView b;                 ///< [heads, hidden]
  View a_log;                   ///< [heads]
  View dt_bias;                 ///< [HK]
  View o_norm;                  ///< [head_dim]
  MatrixView o;                 ///< [hidden, HK]
};

struct IndexerWeights {
  MatrixView wq_b;                  ///< [IH·ID, q_lora]
  MatrixView wk;                    ///< [ID, hidden]
  MatrixView compress_gate;         ///< [ID, hidden]
  MatrixView weights_proj;          ///< [IH, hidden]
  View k_norm_weight, k_norm_bias;  ///< [ID]
  View ape;                         ///< [kpool, ID]
};

struct DsaWeights {
  MatrixView q_a;                         ///< [q_lora, hidden]
  View q_a_norm;                          ///< [q_lora]
  MatrixView q_b;                         ///< [heads·nope, q_lora]
  MatrixView kv_a;                        ///< [kv_lora, hidden]
  View kv_a_norm;                         ///< [kv_lora]
  MatrixView kv_b;                        ///< [heads·(nope + v), kv_lora]: per head its K rows, then its V rows
  MatrixView o;                           ///< [hidden, heads·v]
  std::optional<IndexerWeights> indexer;  ///< absent on layers that share a selection
};

struct MlpWeights {
  MatrixView gate, up;  ///< [width, hidden]
  MatrixView down;      ///< [hidden, width]
};

struct MoeWeights {
  MatrixView router;     ///< [experts, hidden]
  View correction_bias;  ///< [experts]
  std::vector<MlpWeights> experts;
  MlpWeights shared;
};

struct LayerWeights {
  MhcWeights attn_mhc, ffn_mhc;  ///< absent (`!fn.present()`) in the draft layer
  View input_norm;               ///< [hidden]
  View post_attention_norm;      ///< [hidden]
  std::optional<KdaWeights> kda;
  std::optional<DsaWeights> dsa;
  std::optional<MlpWeights> dense;
  std::optional<MoeWeights> moe;
};

struct MtpWeights {
  View enorm, hnorm, head_norm;  ///< [hidden]; head_norm is shared_head.norm
  MatrixView eh_proj;            ///< [hidden, 2·hidden]: embedding half first
  LayerWeights layer;
};

struct VisionLinear {
  MatrixView weight;
  View bias;  ///< [out]; absent in the merger
};

struct VisionBlockWeights {
  View norm1, norm2;    ///< [hidden]
  VisionLinear qkv;     ///< [3·hidden, hidden]: q, k, v rows, head-major
  View q_norm, k_norm;  ///< [head_dim]
  VisionLinear proj;
  VisionLinear gate, up, down;
};

struct VisionWeights {
  VisionLinear patch_embed;  ///< [hidden, channels·T·P·P]
  std::vector<VisionBlockWeights> blocks;
  View post_norm;                             ///< [hidden]
  VisionLinear downsample;                    ///< [out_hidden, hidden·merge·merge]: columns (channel, row, column) as a conv stores them
  MatrixView merger_proj;                     ///< [out_hidden, out_hidden]
  View merger_norm_weight, merger_norm_bias;  ///< [out_hidden]
  MlpWeights merger;                          ///< width projection_intermediate
};

struct Glm5NextWeights {
  MatrixView embedding;  ///< [vocab, hidden]
  MatrixView head;       ///< [vocab, hidden]
  View norm;             ///< [hidden]
  std::vector<LayerWeights> layers;
  std::optional<MtpWeights> mtp;
  std::optional<VisionWeights> vision;
};

/// Takes every tensor of the model from `checkpoint`, under its released name, the spelling without `language_model.` or the in-memory names
/// (stacked experts, joined convolutions, forget_gate.*, attn_hc.*), checks shape and dtype, and that nothing is left over.
/// INT8  A matrix of i8 must have `<name>_scale` [rows, 1] (f32, bf16 or f16; finite, above 0), and quantization_config must announce 8-bit integers.
/// FP8   A matrix is FP8 iff `<name>_scale_inv` exists: then it must be F8_E4M3 with f32 scales [ceil(rows/128), ceil(cols/128)], else it must not.
/// INT8  A matrix that config.quantization announces may be I8 with `<name>_scale` [rows, 1], f32 or bf16, and a `<name>_offset` of zeros (ModelSlim).
/// Scales are finite and positive, 0 only where all codes are 0.
/// Errors  not_found (missing tensor), invalid_argument (shape, dtype, scales, left over, another format than a ModelSlim description says): each names
///         tensor, file and numbers.
Result<Glm5NextWeights> bind_glm5_next(const Glm5NextConfig& config, weights::Checkpoint& checkpoint);

/// A small tensor (norm, bias, A_log, conv, …) as owned float32, row-major; the view is contiguous host memory of a floating dtype.
std::vector<float> to_float32(const View& view);

}  // namespace lathe::models
