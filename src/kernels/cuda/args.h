#pragma once
// What the kernels of this folder take: plain pointers and numbers, filled from the params of src/ops by variants_*.cc. Included by nvcc too, so nothing else
// is included here. Contracts, numerics and meaning: src/ops. Strides count elements; the last axis is contiguous.

#include <cstdint>

namespace lathe::kernels::cuda {

enum class Type : int32_t { kF32, kBF16, kF16, kF8, kI8 };

/// f32 [rows, …] with a row stride.
struct Rows {
  float* data;
  int64_t stride;
};
/// f32 [a, b, …] with two strides.
struct Planes {
  float* data;
  int64_t outer, inner;
};
/// Weight vector; data null: absent.
struct Vector {
  const void* data;
  Type type;
};
struct Matrix {
  const void* values;
  int64_t stride;
  const float* scales;  ///< null: none
  int64_t scale_stride;
  int32_t rows, cols;
  int32_t block_rows, block_cols, row_offset, col_offset;
  Type type;
};
struct Batch {
  const int32_t* begin;
  const int32_t* start;
  int32_t sequences;
  int32_t tokens;
};
/// Rows of codes (kF8, kI8) have a scale for each 128 of them.
struct Pages {
  void* pool;
  float* scales;
  int64_t scale_stride;
  int64_t row_stride;
  const int32_t* table;
  int64_t table_stride;
  int64_t block_rows;
  Type type;
};

struct EmbedArgs {
  const int32_t* ids;
  Matrix table;
  const int32_t* override_row;
  Rows overrides, out;
  int32_t tokens;
};
struct GatherArgs {
  Rows x;
  const int32_t* rows;
  Rows out;
  int32_t count, width;
};
struct ElementwiseArgs {
  Rows a, b, out;
  int32_t tokens, width;
  float limit;
};
struct NormArgs {
  Rows x;
  Vector weight, bias;
  float eps;
  Rows out;
  int32_t tokens, width;
};
void launch_embed(const EmbedArgs& args, void* stream);
void launch_gather_rows(const GatherArgs& args, void* stream);
void launch_add(const ElementwiseArgs& args, void* stream);
void launch_gelu(const ElementwiseArgs& args, void* stream);    ///< x in a
void launch_swiglu(const ElementwiseArgs& args, void* stream);  ///< gate in a, up in b
void launch_rms_norm(const NormArgs& args, void* stream);
void launch_layer_norm(const NormArgs& args, void* stream);

inline constexpr int kStreamsMax = 16;
struct MhcInArgs {
  Planes streams;
  Matrix fn;
  Vector base, scale;
  float eps, hc_eps;
  int32_t iterations;
  Rows x, post, comb;
  int32_t tokens, count, width;  ///< count: streams
};
struct MhcOutArgs {
  Planes streams;
  Rows y, post, comb;
  Planes out;
  int32_t tokens, count, width;
};
struct StreamMeanArgs {
  Planes streams;
  Rows out;
  int32_t tokens, count, width;
};
void launch_mhc_in(const MhcInArgs& args, void* stream);
/// In two passes, the channels over many blocks; for what mhc_parts_bytes has an answer other than 0. parts: that many bytes of scratch.
int64_t mhc_parts_bytes(const MhcInArgs& args);
void launch_mhc_in_parts(const MhcInArgs& args, float* parts, void* stream);
void launch_mhc_out(const MhcOutArgs& args, void* stream);
void launch_stream_mean(const StreamMeanArgs& args, void* stream);

struct ConvArgs {
  Rows x;
  Vector weight;
  int64_t weight_stride;
  void* ring;
  Type ring_type;
  int64_t ring_slot, ring_row;  ///< strides
  const int32_t* slot;
  Batch batch;
  Rows out;
  int32_t channels, taps, ring_rows;
};
struct KdaGateArgs {
  Rows a, b;
  Vector a_log, dt_bias;
  bool bounded;
  float lower_bound;
  Rows g, beta;
  int32_t tokens, heads, keys;
};
struct RecurrenceArgs {
  Planes q, k, v;  ///< outer: rows, inner: heads
  Rows g, beta;
  const float* entering;
  int64_t entering_stride;
  const int32_t* state_in;
  float* states;
  int64_t states_stride;
  const int32_t* state_out;
  Batch batch;
  Planes o;
  float* pair_m;  ///< null: no pair
  float* pair_h;
  int64_t pair_m_stride, pair_h_stride;
  int32_t heads, keys, values;
};
struct GatedNormArgs {
  Planes o;
  Rows gate;
  Vector weight;
  float eps;
  Rows out;
  int32_t tokens, heads, width;
};
void launch_short_conv(const ConvArgs& args, void* stream);
void launch_kda_gate(const KdaGateArgs& args, void* stream);
void launch_gated_norm(const GatedNormArgs& args, void* stream);
/// Any sizes with keys ≤ kPlainKeysMax.
inline constexpr int kPlainKeysMax = 256;
void launch_recurrence_plain(const RecurrenceArgs& args, void* stream);
/// keys = values = 128, no pair, 16-byte aligned state rows. Rungs of the ladder in docs/kernels/kda_decode.md; same bits for all but kColumns.
enum class KdaRung : int32_t { kColumns, kTiles32Late, kTiles32, kTiles16, kHead, kTiles32Single, kStream, kAuto };
void launch_recurrence_128(const RecurrenceArgs& args, KdaRung rung, void* stream);
void launch_recurrence_stream(const RecurrenceArgs& args, void* stream);  ///< kStream; at least one sequence and head

/// One decode step of a KDA layer between the projections and the output projection, one row per sequence (proposal of a composite op, see
/// docs/kernels/kda_decode.md): conv + SiLU, gates, L2 norms, recurrence, gated output norm. Row s belongs to sequence s, all at position start[s].
/// Rows and strides are multiples of 16 bytes.
struct KdaStepArgs {
  Rows raw;           ///< [S, 3·H·128]: q, k, v before the convolution
  const float* conv;  ///< f32 [4, 3·H·128]
  float* ring;        ///< f32 [slots, ring_rows, 3·H·128]
  int64_t ring_slot, ring_row;
  int32_t ring_rows;
  const int32_t* slot;
  const int32_t* start;
  Rows a;  ///< [S, H·128]
  Rows b;  ///< [S, H]
  Vector a_log, dt_bias;
  float lower_bound;  ///< bounded gate
  float* states;      ///< [rows, H, 128, 128]
  int64_t states_stride;
  const int32_t* state_in;
  const int32_t* state_out;
  Rows gate;           ///< [S, H·128], before σ
  Vector norm_weight;  ///< [128]
  float eps;
  Rows out;  ///< [S, H·128]
  int32_t sequences, heads;
};
void launch_kda_step(const KdaStepArgs& args, void* stream);         ///< a block a head
void launch_kda_step_stream(const KdaStepArgs& args, void* stream);  ///< for many heads; at least one

struct WriteLatentsArgs {
  Rows x;
  Pages pool;
  Batch batch;
  int32_t width;
};
struct IndexKeysArgs {
  Rows k, gate;
  Vector norm_weight, norm_bias;
  float eps;
  Vector ape;
  int64_t ape_stride;
  float* ring;
  int64_t ring_slot, ring_row, ring_part;
  const int32_t* slot;
  Pages keys;
  Batch batch;
  int32_t width, pool, ring_rows;
};
struct SelectArgs {
  Planes q;  ///< rows, heads
  Rows weights;
  Pages keys;
  Batch batch;
  int32_t kpool;
  int32_t* selection;
  int64_t selection_stride;
  int32_t most;
  Rows scores;  ///< where the scores go: an output, or scratch
  int32_t score_columns;
  bool wanted;  ///< scores are an output: every column is written
  int32_t heads, width;
  int32_t row_begin, row_end;
};
void launch_write_latents(const WriteLatentsArgs& args, void* stream);
void launch_index_keys(const IndexKeysArgs& args, void* stream);
void launch_index_select(const SelectArgs& args, void* stream);

struct AbsorbArgs {
  Planes q;
  Matrix kv_b;
  bool fast;
  Planes out;
  int32_t tokens, heads, nope, value, latent;
};
struct AttendArgs {
  Planes q;
  Pages latents;
  const int32_t* pools;
  int64_t pools_stride;
  int32_t pools_max, kpool;
  const int32_t* tail_begin;
  Batch batch;
  float scale;
  Planes out;
  Rows row_max, row_sum;  ///< data null: absent
  int32_t heads, latent;
  int32_t tail_over;  ///< rows with a tail of at most this many tokens are left out; -1: none
};
inline constexpr int kLatentMax = 512;
void launch_mla_absorb(const AbsorbArgs& args, void* stream);
void launch_mla_attend(const AttendArgs& args, void* stream);

/// The same in two passes over parts of 64 keys; latents in BF16, f32 operands as sums of bf16 numbers. See mla_parts.cu.
inline constexpr int kPartKeys = 64;
inline constexpr int kTailRoom = 64;  ///< longer tails are left to launch_mla_attend (tail_over)
struct AttendParts {
  AttendArgs attend;
  uint32_t* weights;  ///< [rows, parts, groups, 4, 2, 32, 4]: softmax weights of 16 heads x 16 keys as A operands, upper and lower part
  float* most;        ///< [rows, parts, 16 groups]
  float* sums;        ///< [rows, parts, 16 groups]
  int32_t* places;    ///< [rows, parts, 64]: row of the pool, -1: none
  int32_t* counts;    ///< [rows]: parts that the row has, -1: not here
  int32_t parts, groups;
  int32_t row_begin, rows;
};
inline int32_t attend_parts_max(const AttendArgs& a) {
  return (a.pools_max * a.kpool + (a.tail_begin != nullptr ? kTailRoom : a.kpool) + kPartKeys - 1) / kPartKeys;
}
/// Bytes of scratch a row.
inline int64_t attend_row_bytes(const AttendArgs& a) {
  const int64_t groups = (a.heads + 15) / 16;
  return attend_parts_max(a) * (groups * (4096 + 128) + kPartKeys * 4) + 16;
}
/// Arguments for `rows` rows; memory: 256-byte aligned, attend_row_bytes each.
inline AttendParts attend_parts(const AttendArgs& a, void* memory, int32_t rows) {
  AttendParts p{};
  p.attend = a;
  p.parts = attend_parts_max(a), p.groups = (a.heads + 15) / 16;
  const int64_t parts = int64_t{rows} * p.parts;
  p.weights = static_cast<uint32_t*>(memory);
  p.most = reinterpret_cast<float*>(p.weights + parts * p.groups * 1024);
  p.sums = p.most + parts * p.groups * 16;
  p.places = reinterpret_cast<int32_t*>(p.sums + parts * p.groups * 16);
  p.counts = p.places + parts * kPartKeys;
  p.row_begin = 0, p.rows = rows;
  return p;
}
enum class AttendRung : int32_t { kAuto, kFew, kMany };  ///< same bits
inline bool few_rows(const AttendParts& p, AttendRung rung) { return rung == AttendRung::kAuto ? p.rows <= 2 : rung == AttendRung::kFew; }
void launch_mla_attend_parts(const AttendParts& args, AttendRung rung, void* stream);
void launch_attend_weights(const AttendParts& args, AttendRung rung, void* stream);  ///< its two halves
void launch_attend_sums(const AttendParts& args, AttendRung rung, void* stream);

struct RouteArgs {
  Rows logits;
  Vector bias;
  int32_t groups, groups_kept;
  bool normalise;
  float scale;
  int32_t* ids;
  int64_t ids_stride;
  Rows weights;
  int32_t tokens, experts, chosen;
};
inline constexpr int kRouteExpertsMax = 1024;
void launch_route(const RouteArgs& args, void* stream);

/// A product y = x Wᵀ (+ bias) of one part, or of one head each when heads > 1 (weight rows head · head_rows + first_row …).
struct ProductArgs {
  Matrix weight;
  Vector bias;
  const float* x;
  int64_t x_stride, x_head;
  float* y;
  int64_t y_stride, y_head;
  int64_t y_node;  ///< stride between nodes of partial outputs
  int32_t tokens;
  int32_t heads;
  int32_t head_rows, first_row, rows;             ///< output rows of one head
  int32_t leaf_channels, leaf_begin, leaf_total;  ///< leaf_channels 0: one sum
  bool partial;
  bool fast;  ///< inputs rounded to BF16
};
/// All parts in one launch; they share the number of tokens.
inline constexpr int kProductPartsMax = 8;
void launch_product_plain(const ProductArgs* args, int count, void* stream);
/// Fast mode, BF16 or FP8 weights: see fits_mma in variants_product.cc.
void launch_product_mma(const ProductArgs* args, int count, void* stream);
/// The same without heads, one dtype and no leaves or leaves of 128 channels for all parts: see fits_wgmma there.
/// Scratch: product_scratch_bytes.
void launch_product_wgmma(const ProductArgs* args, int count, void* scratch, void* stream);
int64_t product_scratch_bytes(const ProductArgs* args, int count);
/// Its two forms, with the same bits: x stays in shared memory (any case); x flows beside the weights (where product_stream_bytes is not 0).
void launch_product_cluster(const ProductArgs* args, int count, void* stream);
void launch_product_stream(const ProductArgs* args, int count, void* scratch, void* stream);
int64_t product_stream_bytes(const ProductArgs* args, int count);
/// Bytes of shared memory that a block of a cluster may have, and those of its list of experts.
inline constexpr int64_t kClusterSharedMax = 227 * 1024;
inline constexpr int64_t kClusterJobBytes = 1920;
/// Rows times experts of a row that it can list.
inline constexpr int64_t kMoePairsMax = 400'000;
/// Input channels beyond which launch_product_wgmma and the experts have no room for x.
inline constexpr int kClusterColsMax = 8192;

/// Values of gate, up, down, then scales of gate, up, down: `experts` pointers each. Travels with a launch, since the list of experts is host memory.
inline constexpr int kExpertsMax = 448;
struct ExpertTable {
  const void* at[6 * kExpertsMax];
};
struct MoeArgs {
  Rows x;
  const int32_t* ids;
  int64_t ids_stride;
  Rows weights;
  Matrix gate, up, down;  ///< shapes; where expert e lies says the table
  int32_t experts, expert_begin, experts_total;
  float limit;
  bool fast;
  float* y;
  int64_t y_node, y_stride;
  bool partial;
  int32_t* present;  ///< null: absent
  int64_t present_stride;
  int32_t tokens, chosen, width, inner;
  // Scratch: table [6 · experts], counts [experts], lists [experts, tokens], hidden [tokens · chosen, inner], leaves [tokens · chosen, width].
  const void** table;
  int32_t* counts;
  int32_t* lists;
  float* hidden;
  float* leaves;
};
enum class MoeRung : int32_t { kPlain, kMma, kWgmma };
void launch_moe(const MoeArgs& args, const ExpertTable& table, MoeRung rung, void* stream);
inline bool has_experts(const MoeArgs& args) { return args.experts > 0 && args.chosen > 0 && args.inner > 0; }
void launch_experts_wgmma(const MoeArgs& args, void* stream);                        ///< the products of kWgmma
void launch_moe_lists(const MoeArgs& args, const ExpertTable& table, void* stream);  ///< its first launch, for has_experts; and its last
void launch_moe_combine(const MoeArgs& args, void* stream);

struct VisionRopeArgs {
  float* qkv;
  int64_t row, part;
  Vector q_norm, k_norm;
  float eps;
  const int32_t* positions;
  int64_t positions_stride;
  int32_t tokens, heads, width;
};
struct VisionAttendArgs {
  const float* qkv;
  int64_t row, part;
  const int32_t* segment_begin;
  int32_t segments;
  Rows out;
  int32_t tokens, heads, width;
};
inline constexpr int kVisionHeadMax = 256;
void launch_vision_rope(const VisionRopeArgs& args, void* stream);
void launch_vision_attend(const VisionAttendArgs& args, void* stream);

}  // namespace lathe::kernels::cuda
