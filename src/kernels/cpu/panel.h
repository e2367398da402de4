#pragma once
// Drives the panel and tile functions of a level (matmul_isa.h): which segments a row of weights is cut into, the canonical tree over leaves, and packing.
// Used by every kernel that multiplies by weight matrices. Included in kernel files only; internal linkage, because each of them is compiled twice.
//
// Order of additions of y[t, n]: four lanes (channel mod 4, or pair mod 4 for BF16 pairs), each in ascending order over the leaf; in fast mode the lanes of a
// scale block are multiplied by its scale and added to the lanes so far; then the lanes as (0 + 2) + (1 + 3); then leaves by the tree. Steps are counted
// from the start of the leaf or scale block, so the order depends neither on T nor on a shard's range.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/counting.h"
#include "kernels/cpu/matmul_isa.h"
#include "ops/kernel.h"
#include "tensor/shard.h"
#include "tensor/view.h"

namespace lathe::kernels::cpu {
namespace {

// Bytes of each row that are packed at once, for up to so many rows of x and for more: panel, lanes and x stay in the first-level cache.
constexpr int64_t kSegmentBytes = 512, kFewSegmentRows = 64, kLongSegmentBytes = 1024;
// Bytes of each row of a group that are asked for ahead: what covers the latency of memory; of long rows of 16-bit weights more (5 to 10 % of 4096 x 12288).
constexpr int64_t kPrefetchBytes = 512, kLongRowBytes = 8192, kLongPrefetchBytes = 2048;

struct Level {
  const MatmulIsa* base = nullptr;
  const PairIsa* pairs = nullptr;  ///< only at the BF16 level
  const CodesIsa* codes = nullptr;
};

/// How rows of x are stored for a product: floats, floats rounded to BF16, BF16, INT8 codes in 8 or 16 bits.
enum class RowFormat : uint8_t { kFloat, kRounded, kPairs, kCodes, kWideCodes };

constexpr int64_t channel_bytes(RowFormat format) {
  switch (format) {
    case RowFormat::kPairs:
    case RowFormat::kWideCodes: return 2;
    case RowFormat::kCodes: return 1;
    default: return 4;
  }
}
constexpr bool is_codes(RowFormat format) { return format == RowFormat::kCodes || format == RowFormat::kWideCodes; }

/// What turns a row of codes back.
struct CodeRow {
  float scale = 0;
  int32_t sum = 0;  ///< of its codes, where the level needs it
};

/// Rows of x; the stride in bytes.
struct Rows {
  const void* data = nullptr;
  int64_t stride = 0;
  const CodeRow* codes = nullptr;  ///< of each row, if it is one of codes
  const char* at(int64_t row, int64_t channel, RowFormat format) const {
    return static_cast<const char*>(data) + row * stride + channel * channel_bytes(format);
  }
};

inline RowFormat row_format(const Level& level, ops::Compute compute, DType weight) {
  if (compute == ops::Compute::kF32) return RowFormat::kFloat;
  if (compute == ops::Compute::kInt8 && weight == DType::kI8) return level.codes->x_bytes == 1 ? RowFormat::kCodes : RowFormat::kWideCodes;
  return level.pairs != nullptr && (weight == DType::kBF16 || weight == DType::kF8E4M3) ? RowFormat::kPairs : RowFormat::kRounded;
}

inline int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }
inline int64_t ceil_div(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }

/// One matrix as a source of panels. Cheap to build: made on the stack by each launch.
class PanelSource {
 public:
  PanelSource() = default;
  PanelSource(const Level& level, const MatrixView& matrix, ops::Compute compute, int64_t leaf_channels)
      : isa_(level.base),
        matrix_(&matrix),
        format_(row_format(level, compute, matrix.values.dtype)),
        leaf_(leaf_channels > 0 ? leaf_channels : matrix.cols()) {
    const DType type = matrix.values.dtype;
    element_bytes_ = static_cast<int64_t>(tensor::dtype_bytes(type));
    if (is_codes(format_)) {
      // Integers have one sum: no leaves. Scales come at the end.
      codes_ = level.codes, leaf_ = matrix.cols();
      pack_ = codes_->pack, tiles_ = codes_->tile, tiles_asking_ = codes_->tile_asking, direct_ = codes_->direct;
      return;
    }
    const bool pairs = format_ == RowFormat::kPairs, round = format_ == RowFormat::kRounded;
    pack_ = pairs                  ? (type == DType::kBF16 ? level.pairs->pack_bf16 : level.pairs->pack_f8)
            : type == DType::kF32  ? (round ? isa_->pack_f32_rounded : isa_->pack_f32)
            : type == DType::kF16  ? (round ? isa_->pack_f16_rounded : isa_->pack_f16)
            : type == DType::kBF16 ? isa_->pack_bf16
            : type == DType::kI8   ? isa_->pack_i8
                                   : isa_->pack_f8;
    tiles_ = pairs ? level.pairs->tile : isa_->tile;
    tiles_asking_ = pairs ? level.pairs->tile_asking : isa_->tile_asking;
    direct_ = pairs                                              ? (type == DType::kBF16 ? level.pairs->direct_bf16 : level.pairs->direct_f8)
              : type == DType::kF32                              ? (round ? isa_->direct_f32_rounded : isa_->direct_f32)
              : type == DType::kF16                              ? (round ? isa_->direct_f16_rounded : isa_->direct_f16)
              : type == DType::kBF16                             ? isa_->direct_bf16
              : type == DType::kI8                               ? nullptr  // a scale for each row
              : matrix.scaled() && compute == ops::Compute::kF32 ? isa_->direct_f8_scaled
                                                                 : isa_->direct_f8;
    fold_scale_ = matrix.scaled() && compute == ops::Compute::kF32;
    late_scale_ = matrix.scaled() && !fold_scale_;
  }

  const MatmulIsa& isa() const { return *isa_; }
  RowFormat format() const { return format_; }
  int width() const { return isa_->width; }
  int64_t outputs() const { return matrix_->rows(); }
  int64_t channels() const { return matrix_->cols(); }
  int64_t panels() const { return ceil_div(outputs(), width()); }
  int64_t leaves() const { return leaf_ > 0 ? ceil_div(channels(), leaf_) : 0; }
  int64_t leaf_channels() const { return leaf_; }
  int64_t element_bytes() const { return element_bytes_; }

  /// End of the segment that starts at `begin`: what is packed and multiplied by `rows` rows of x at once.
  int64_t segment_end(int64_t begin, int64_t rows) const {
    const int64_t leaf_begin = begin / leaf_ * leaf_;
    int64_t end = std::min(leaf_begin + leaf_, channels());
    if (matrix_->scaled()) {
      const int64_t block = matrix_->block_cols, offset = matrix_->col_offset;
      end = std::min(end, ((begin + offset) / block + 1) * block - offset);
    }
    // Multiples of the limit from the start of a leaf or block: a step of 16 bytes is never cut.
    return std::min(end, begin + segment_limit(rows));
  }
  /// Most channels of a segment. A block with a late scale is one segment: its lanes are scaled as a whole.
  int64_t segment_limit(int64_t rows) const {
    const int64_t limit = late_scale_ ? matrix_->block_cols : (rows <= kFewSegmentRows ? kSegmentBytes : kLongSegmentBytes) / channel_bytes(format_);
    return std::clamp<int64_t>(limit, 1, std::max<int64_t>(channels(), 1));
  }

  /// Channels of a panel that are packed at once, and how far from an element the one lies that will be wanted next.
  struct Segment {
    int64_t panel, begin, end;
    int64_t ahead = 0;
  };
  /// Decodes a segment; `scale` gets the tile's expanded factors if late_scale().
  void pack(const Segment& segment, void* out, float* scale) const {
    const int64_t first = segment.panel * width(), last = outputs() - 1, begin = segment.begin, end = segment.end;
    const char* rows[kPanelWidthMax];
    float factors[4 * kPanelWidthMax];
    const char* const base = static_cast<const char*>(matrix_->values.data) + begin * element_bytes_;
    const int64_t step = matrix_->values.step(0) * element_bytes_;
    for (int i = 0; i < width(); ++i) rows[i] = base + std::min(first + i, last) * step;
    if (fold_scale_ || late_scale_) load_scales(first, last, begin, fold_scale_ ? factors : scale);
    pack_({.rows = rows, .channels = end - begin, .scale = fold_scale_ ? factors : nullptr, .prefetch = segment.ahead, .out = out});
  }
  int64_t row_bytes() const { return matrix_->values.step(0) * element_bytes_; }
  /// First byte of a panel; the end of the matrix for those behind it.
  const char* panel_at(int64_t panel) const {
    return static_cast<const char*>(matrix_->values.data) + std::min(panel * width(), outputs()) * row_bytes();
  }
  bool late_scale() const { return late_scale_; }
  /// Bytes of the scale rows that begin in this panel (for counting: each is counted by one panel).
  int64_t scale_bytes(int64_t panel) const {
    if (!matrix_->scaled()) return 0;
    const int64_t block = matrix_->block_rows, first = panel * width() + matrix_->row_offset;
    const int64_t last = std::min((panel + 1) * width(), outputs()) - 1 + matrix_->row_offset;
    const int64_t begun = last / block - (panel == 0 ? -1 : (first - 1) / block) - (panel == 0 ? matrix_->row_offset / block : 0);
    return begun * matrix_->scales.dim(1) * 4;
  }

  /// Runs one packed segment over `count` rows of x.
  void tile(const Rows& x, int64_t row, int64_t count, int64_t begin, int64_t end, TileArgs args) const {
    args.x = x.at(row, begin, format_);
    args.x_stride = x.stride;
    args.channels = end - begin;
    if (!late_scale_) args.scale = nullptr;
    (args.ask != nullptr ? tiles_asking_ : tiles_)[count](args);
  }
  /// Rows of x that a product takes at once.
  struct Tile {
    const Rows& x;
    int64_t row, count;
  };
  /// Channels [begin, end), whole leaves, and where the sums of each go.
  struct Leaves {
    int64_t begin, end;
    float* total;
    int64_t total_stride;
  };
  /// Runs leaves of a panel over few rows of x without packing. False: not for these sizes, nothing is done.
  bool direct(const Tile& tile, int64_t panel, const Leaves& leaves) const {
    const int64_t count = tile.count, begin = leaves.begin, end = leaves.end;
    if (direct_ == nullptr || count > kDirectRowsMax || direct_[count] == nullptr || begin >= end) return false;
    const int64_t first = panel * width(), present = std::min<int64_t>(width(), outputs() - first);
    const int64_t unit = 16 / element_bytes_;  // channels of a step: segments begin and end with one
    const int64_t step = matrix_->values.step(0) * element_bytes_;
    if ((end - begin) % unit != 0 || (end - begin > leaf_ && leaf_ % unit != 0)) return false;
    DirectArgs args{.weights = static_cast<const char*>(matrix_->values.data) + first * step + begin * element_bytes_,
                    .row_bytes = step,
                    .present = present,
                    .bytes = (end - begin) * element_bytes_,
                    .leaf = leaf_ * element_bytes_,
                    .x = tile.x.at(tile.row, begin, format_),
                    .x_stride = tile.x.stride,
                    .total = leaves.total,
                    .total_stride = leaves.total_stride};
    if (fold_scale_ || late_scale_) {
      const int64_t row_block = (first + matrix_->row_offset) / matrix_->block_rows, column = begin + matrix_->col_offset;
      const int64_t left = matrix_->block_cols - column % matrix_->block_cols;
      if ((first + present - 1 + matrix_->row_offset) / matrix_->block_rows != row_block) return false;
      if (left % unit != 0 || matrix_->block_cols % unit != 0) return false;
      args.scales = static_cast<const float*>(matrix_->scales.data) + row_block * matrix_->scales.step(0) + column / matrix_->block_cols;
      args.first_block = left * element_bytes_, args.block = matrix_->block_cols * element_bytes_;
    }
    set_prefetch(begin == 0 && end == channels(), args);
    direct_[count](args);
    return true;
  }
  /// Full steps of a tile over that many channels: 16 bytes of a row of x each.
  int64_t steps(int64_t channels) const { return channels * channel_bytes(format_) / 16; }
  /// Bytes of a packed segment of that many channels.
  int64_t packed_bytes(int64_t channels) const { return round_up(channels * channel_bytes(format_), 16) * width(); }
  /// INT8: the sums of a tile without what the kernel had too much (kSums, int32 in their bits), or as floats with their scales.
  enum class Finish : uint8_t { kSums, kValues };
  void finish(const Tile& tile, int64_t panel, Finish how, float* totals) const {
    const int64_t first = panel * width(), present = std::min<int64_t>(width(), outputs() - first);
    float scales[kPanelWidthMax] = {};
    for (int64_t n = 0; n < present; ++n) scales[n] = matrix_->scales.f32()[(first + n + matrix_->row_offset) * matrix_->scales.step(0)];
    for (int64_t r = 0; r < tile.count; ++r) {
      const CodeRow& row = tile.x.codes[tile.row + r];
      const auto excess = static_cast<int32_t>(static_cast<uint32_t>(codes_->weight_excess) * static_cast<uint32_t>(row.sum));
      if (how == Finish::kValues) {
        codes_->scale({.totals = totals + r * width(), .excess = excess, .x_scale = row.scale, .scales = scales});
      } else {
        subtract(excess, present, totals + r * width());
      }
    }
  }
  bool codes() const { return codes_ != nullptr; }

 private:
  /// From int32 in the bits of floats; modulo 2^32, as the sums were made.
  static void subtract(int32_t excess, int64_t count, float* totals) {
    for (int64_t n = 0; n < count; ++n) {
      uint32_t sum;
      std::memcpy(&sum, totals + n, 4);
      sum -= static_cast<uint32_t>(excess);
      std::memcpy(totals + n, &sum, 4);
    }
  }
  /// A part of the rows: the next part of the same ones. Whole rows: further on in the row, or in the groups below.
  void set_prefetch(bool whole, DirectArgs& args) const {
    const int64_t bytes = element_bytes_ > 1 && args.bytes >= kLongRowBytes ? kLongPrefetchBytes : kPrefetchBytes;
    const int64_t group = width() / 2 * args.row_bytes, below = bytes / args.bytes, rest = bytes % args.bytes;
    args.turn = whole ? args.bytes - rest : 0;
    args.ahead = below * group + rest;
    args.wrap = whole ? args.ahead + group - args.bytes : args.bytes;
  }
  void load_scales(int64_t first, int64_t last, int64_t begin, float* out) const {
    const int64_t column = (begin + matrix_->col_offset) / matrix_->block_cols;
    const float* const scales = static_cast<const float*>(matrix_->scales.data) + column;
    const int64_t step = matrix_->scales.step(0), block = matrix_->block_rows;
    int64_t row_block = (first + matrix_->row_offset) / block, left = (row_block + 1) * block - first - matrix_->row_offset;
    if (left >= std::min<int64_t>(width(), last + 1 - first)) return std::fill_n(out, 4 * width(), scales[row_block * step]), void();
    const int lanes = width() / 2;
    for (int i = 0; i < width(); ++i) {
      if (left-- == 0 && first + i <= last) ++row_block, left = block - 1;
      // Row 4q + v of a group lies in part q of vector v.
      const int row = i % lanes;
      float* const to = out + i / lanes * 4 * lanes + row % 4 * lanes + row / 4 * 4;
      to[0] = to[1] = to[2] = to[3] = scales[row_block * step];
    }
  }

  const MatmulIsa* isa_ = nullptr;
  const CodesIsa* codes_ = nullptr;  ///< only for a product of codes
  const MatrixView* matrix_ = nullptr;
  RowFormat format_ = RowFormat::kFloat;
  int64_t leaf_ = 0;
  PackFn pack_ = nullptr;
  const TileFn* tiles_ = nullptr;
  const TileFn* tiles_asking_ = nullptr;
  const DirectFn* direct_ = nullptr;
  bool fold_scale_ = false;
  bool late_scale_ = false;
  int64_t element_bytes_ = 1;
};

/// How many even tiles `rows` rows make.
inline int64_t tile_count(const MatmulIsa& isa, int64_t rows) { return ceil_div(rows, isa.tile_rows); }

/// Levels of the stack that the tree over `leaves` needs.
inline int64_t tree_depth(int64_t leaves) {
  int64_t depth = 1;
  for (int64_t n = leaves; n > 1; n = (n + 1) / 2) ++depth;
  return depth;
}

/// One panel at work: segment by segment, each packed into the first-level cache and multiplied by all rows at once, tile by tile; or straight from the
/// weights, if the rows are few.
class PanelRun {
 public:
  /// Memory for nodes of at most `rows` rows: a packed segment, scale factors, lanes, the totals of the tree over `leaves` or, for few rows, of every leaf.
  static int64_t bytes(const PanelSource& source, int64_t rows, int64_t leaves) {
    const int64_t tree = tree_depth(leaves) * rows * source.width() * 4, all = leaves * direct_floats(source) * 4;
    return packed_bytes(source, rows) + scale_bytes(source) + 4 * rows * source.width() * 4 + std::max(tree, all);
  }
  PanelRun(const PanelSource& source, const ops::LaunchContext& context, void* memory, int64_t rows)
      : source_(source), context_(context), packed_(static_cast<char*>(memory)) {
    scales_ = reinterpret_cast<float*>(packed_ + packed_bytes(source, rows));
    lanes_ = scales_ + scale_bytes(source) / 4;
    totals_ = lanes_ + 4 * rows * source.width();  // four lanes an output
  }

  void begin(int64_t panel) {
    panel_ = panel;
    present_ = std::min<int64_t>(source_.width(), source_.outputs() - panel * source_.width());
    ask_ = source_.panel_at(panel + 1), ask_end_ = source_.panel_at(panel + 2);
    LATHE_COUNT(context_, kWeightBytes, source_.scale_bytes(panel));
    LATHE_COUNT(context_, kBytesRead, source_.scale_bytes(panel));
  }
  /// Sum over node [a, b) of the tree of this source's leaves, whose leaf 0 is number `leaf_begin` of the tree, for `count` rows of x: totals [count][width].
  /// Weights are read once a call. INT8 codes have one node, and `how` says what it gives.
  float* node(const Rows& x, int64_t row, int64_t count, int64_t a, int64_t b, int64_t leaf_begin,
              PanelSource::Finish how = PanelSource::Finish::kValues) {
    row_ = row, count_ = count, x_ = &x;
    if (!all_leaves(a, b, leaf_begin)) evaluate(a, b, leaf_begin, totals_);
    if (source_.codes()) source_.finish({x, row, count}, panel_, how, totals_);
    return totals_;
  }
  int64_t present() const { return present_; }

 private:
  void pack(int64_t begin, int64_t end) {
    // Afterwards these rows go on; or the next panel begins.
    const int64_t bytes = source_.element_bytes(), row = source_.row_bytes();
    const int64_t ahead = end < source_.channels() ? (end - begin) * bytes : source_.width() * row - begin * bytes;
    source_.pack({.panel = panel_, .begin = begin, .end = end, .ahead = ahead}, packed_, scales_);
    LATHE_COUNT(context_, kWeightBytes, present_ * (end - begin) * source_.element_bytes());
    LATHE_COUNT(context_, kBytesRead, present_ * (end - begin) * source_.element_bytes());
  }
  void leaf(int64_t leaf, float* total) {
    const int64_t first = leaf * source_.leaf_channels(), last = std::min(first + source_.leaf_channels(), source_.channels());
    if (first >= last) std::fill_n(total, count_ * source_.width(), 0.0f);
    if (direct({.begin = first, .end = last, .total = total, .total_stride = 0})) return;
    for (int64_t at = first, end = 0; at < last; at = end) {
      end = source_.segment_end(at, count_);
      pack(at, end);
      tiles(at, end, {.panel = packed_, .scale = scales_, .lanes = lanes_, .total = total, .first = at == first, .last = end == last});
      LATHE_COUNT(context_, kFlops, 2 * count_ * present_ * (end - at));
    }
  }
  /// All rows times a packed segment; `args` of the first row.
  void tiles(int64_t begin, int64_t end, const TileArgs& args) {
    const int64_t tiles = tile_count(source_.isa(), count_), steps = source_.steps(end - begin), width = source_.width();
    for (int64_t i = 0; i < tiles; ++i) {
      const int64_t at = count_ * i / tiles, count = count_ * (i + 1) / tiles - at;
      TileArgs tile = args;
      tile.lanes += at * 4 * width, tile.total += at * width;
      if (tiles > 1 && ask_ < ask_end_) tile.ask = ask_, ask_ += 2 * steps * kAskedBytes;
      source_.tile(*x_, row_ + at, count, begin, end, tile);
    }
  }
  bool direct(const PanelSource::Leaves& leaves) {
    if (!source_.direct({*x_, row_, count_}, panel_, leaves)) return false;
    [[maybe_unused]] const int64_t weights = present_ * (leaves.end - leaves.begin);
    LATHE_COUNT(context_, kWeightBytes, weights * source_.element_bytes());
    LATHE_COUNT(context_, kBytesRead, weights * source_.element_bytes());
    LATHE_COUNT(context_, kFlops, 2 * count_ * weights);
    return true;
  }
  /// Several leaves in one walk over the rows, so that memory is read in its order; then the same tree over their totals.
  bool all_leaves(int64_t a, int64_t b, int64_t leaf_begin) {
    const int64_t first = (a - leaf_begin) * source_.leaf_channels(), stride = direct_floats(source_);
    const int64_t last = std::min((b - leaf_begin) * source_.leaf_channels(), source_.channels());
    if (b - a < 2 || !direct({.begin = first, .end = last, .total = totals_, .total_stride = stride})) return false;
    add_leaves(a, b, totals_);
    return true;
  }
  void add_leaves(int64_t a, int64_t b, float* total) {
    if (b - a <= 1) return;
    const int64_t middle = tensor::tree_middle(a, b);
    float* const right = total + (middle - a) * direct_floats(source_);
    add_leaves(a, middle, total);
    add_leaves(middle, b, right);
    source_.isa().add(total, right, count_ * source_.width());
  }
  void evaluate(int64_t a, int64_t b, int64_t leaf_begin, float* total) {
    if (b - a <= 1) return leaf(a - leaf_begin, total);
    const int64_t middle = tensor::tree_middle(a, b), size = count_ * source_.width();
    evaluate(a, middle, leaf_begin, total);
    evaluate(middle, b, leaf_begin, total + size);
    source_.isa().add(total, total + size, size);
  }

  static int64_t packed_bytes(const PanelSource& source, int64_t rows) { return round_up(source.packed_bytes(source.segment_limit(rows)), 64); }
  static int64_t scale_bytes(const PanelSource& source) { return source.late_scale() ? source.width() * 16 : 0; }
  static int64_t direct_floats(const PanelSource& source) { return kDirectRowsMax * source.width(); }

  const PanelSource& source_;
  const ops::LaunchContext& context_;
  char* packed_;
  float* scales_ = nullptr;
  float* lanes_ = nullptr;
  float* totals_ = nullptr;
  const char* ask_ = nullptr;
  const char* ask_end_ = nullptr;
  const Rows* x_ = nullptr;
  int64_t panel_ = 0, present_ = 0, row_ = 0, count_ = 0;
};

}  // namespace
}  // namespace lathe::kernels::cpu
