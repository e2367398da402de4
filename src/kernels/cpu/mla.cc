// mla_absorb, mla_attend and mla_unabsorb, all levels.
//
// Idea    absorb: per head q times the rows of W^K as they lie (lanes are latent channels); unabsorb: the matrix product of panel.h per head. attend: a row's
//         keys are a list of pointers into the paged pool, shared by its heads: scores of several heads and keys at a time, softmax in two passes over the
//         list, then the weighted sum key after key. So bits depend on the row and its selection alone.
// Limits  none. Few rows are also split over heads. Keys of codes become floats a tile at a time, once for the scores and once for the sum of a group of heads.
// Floor   absorb, unabsorb: bytes of kv_b (decode); attend: 4 · keys · H · R over the FMA peak, or the latents' bytes.
#include "ops/mla.h"

#include "kernels/cpu/attention_isa.h"
#include "kernels/cpu/batch_rows.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/key_list.h"
#include "kernels/cpu/levels.h"
#include "kernels/cpu/vectors.h"

namespace lathe::kernels::cpu {
namespace {

struct Isa {
  Level level;
  const RowIsa& row;
  const AttentionIsa& attention;
};

/// Row r of kv_b as floats: in exact mode times its scales, in fast mode wider values rounded to BF16 first.
void decode_row(const Isa& isa, const ops::MlaAbsorbParams& p, int64_t r, float* out) {
  const MatrixView& m = p.kv_b.matrix;
  const int64_t cols = m.cols(), at = r * m.values.step(0);
  if (m.values.dtype == DType::kF32) {
    std::memcpy(out, m.values.f32() + at, static_cast<size_t>(cols) * 4);
  } else if (m.values.dtype == DType::kBF16) {
    isa.row.from_bf16(m.values.bf16() + at, cols, out);
  } else {
    for (int64_t c = 0; c < cols; ++c) out[c] = tensor::load_as_float(m.values.dtype, m.values.data, at + c);
  }
  if (p.compute == ops::Compute::kBF16 && (m.values.dtype == DType::kF32 || m.values.dtype == DType::kF16))
    isa.level.base->round_bf16(out, cols, out);
  if (!m.scaled()) return;
  const float* const scales = m.scales.f32() + (r + m.row_offset) / m.block_rows * m.scales.step(0);
  for (int64_t c = 0; c < cols; ++c) out[c] *= scales[(c + m.col_offset) / m.block_cols];
}

void count_weights([[maybe_unused]] const ops::LaunchContext& context, const MatrixView& m, tensor::Range rows) {
  [[maybe_unused]] const int64_t bytes = tensor::slice_matrix(m, rows, {0, m.cols()}).bytes();
  LATHE_COUNT(context, kWeightBytes, bytes);
  LATHE_COUNT(context, kBytesRead, bytes);
}

/// So few rows take some rows of kv_b at a time, which stay in the first-level cache.
constexpr int64_t kFewAbsorbed = 2, kFewTerms = 8;

void absorb(const Isa& isa, const ops::MlaAbsorbParams& p, const ops::LaunchContext& context) {
  const int64_t rows = p.q.dim(0), heads = p.q.dim(1), nope = p.kv_b.nope, width = p.kv_b.matrix.cols();
  if (rows == 0 || heads == 0) return;
  // Rounded copies of q in fast mode.
  const bool round = p.compute == ops::Compute::kBF16;
  float* const rounded = round ? static_cast<float*>(context.scratch->shared(rows * heads * nope * 4)) : nullptr;
  if (round) {
    if (rounded == nullptr) return;
    for_pieces(context, rows * heads, nope, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) isa.level.base->round_bf16(row(p.q, i / heads, i % heads), nope, rounded + i * nope);
    });
  }
  const int64_t block = std::max<int64_t>(32, ceil_div(rows * heads, int64_t{4} * context.pool->threads())), blocks = ceil_div(rows, block);
  const auto task = [&](int64_t index, int worker) {
    const int64_t h = index % heads, begin = index / heads * block, end = std::min(rows, begin + block);
    const int64_t terms = end - begin <= kFewAbsorbed ? kFewTerms : nope;
    float* const w = static_cast<float*>(context.scratch->local(worker, terms * width * 4));
    if (w == nullptr) return;
    const int64_t first = h * (nope + p.kv_b.value);
    for (int64_t r = 0; r < std::max<int64_t>(nope, 1); r += terms) {
      const int64_t count = std::min(terms, nope - r);
      for (int64_t i = 0; i < count; ++i) decode_row(isa, p, first + r + i, w + i * width);
      isa.attention.mix({.x = (round ? rounded + (begin * heads + h) * nope : row(p.q, begin, h)) + r,
                         .x_stride = round ? heads * nope : p.q.step(0),
                         .rows = end - begin,
                         .terms = count,
                         .w = w,
                         .width = width,
                         .out = row(p.out, begin, h),
                         .out_stride = p.out.step(0),
                         .accumulate = r > 0});
    }
    count_weights(context, p.kv_b.matrix, {first, first + nope});
    LATHE_COUNT(context, kBytesRead, (end - begin) * nope * 4);
    LATHE_COUNT(context, kBytesWritten, (end - begin) * width * 4);
    LATHE_COUNT(context, kFlops, (end - begin) * 2 * nope * width);
  };
  context.pool->for_each(heads * blocks, task);
}

void unabsorb(const Isa& isa, const ops::MlaUnabsorbParams& p, const ops::LaunchContext& context) {
  const int64_t rows = p.z.dim(0), heads = p.z.dim(1), value = p.kv_b.value, width = p.kv_b.matrix.cols();
  if (rows == 0 || heads == 0 || value == 0) return;
  const RowFormat format = row_format(isa.level, p.compute, p.kv_b.matrix.values.dtype);
  const int64_t row_bytes = row_stride(width, format);
  char* const copies = format == RowFormat::kFloat ? nullptr : static_cast<char*>(context.scratch->shared(rows * heads * row_bytes));
  if (copies == nullptr && format != RowFormat::kFloat) return;
  if (copies != nullptr) {
    for_pieces(context, rows * heads, width, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) convert_row(*isa.level.base, format, row(p.z, i / heads, i % heads), width, copies + i * row_bytes);
    });
  }
  const int64_t block = std::max<int64_t>(48, ceil_div(rows * heads, int64_t{4} * context.pool->threads())), blocks = ceil_div(rows, block);
  context.pool->for_each(heads * blocks, [&](int64_t index, int worker) {
    const int64_t h = index % heads, begin = index / heads * block, end = std::min(rows, begin + block);
    const int64_t first = h * (p.kv_b.nope + value) + p.kv_b.nope;
    const MatrixView matrix = tensor::slice_matrix(p.kv_b.matrix, {first, first + value}, {0, width});
    const PanelSource source(isa.level, matrix, p.compute, 0);
    void* const memory = context.scratch->local(worker, PanelRun::bytes(source, end - begin, 1));
    if (memory == nullptr) return;
    PanelRun run(source, context, memory, end - begin);
    const Rows x = copies != nullptr ? Rows{.data = copies + h * row_bytes, .stride = heads * row_bytes}
                                     : Rows{.data = p.z.f32() + h * p.z.step(1), .stride = p.z.step(0) * 4};
    for (int64_t panel = 0; panel < source.panels(); ++panel) {
      run.begin(panel);
      const float* const totals = run.node(x, begin, end - begin, 0, 1, 0);
      for (int64_t r = 0; r < end - begin; ++r) {
        std::memcpy(row(p.out, begin + r, h) + panel * source.width(), totals + r * source.width(), static_cast<size_t>(run.present()) * 4);
      }
    }
    LATHE_COUNT(context, kBytesRead, (end - begin) * width * 4);
    LATHE_COUNT(context, kBytesWritten, (end - begin) * value * 4);
  });
}

/// Pointers to rows of one sequence.
struct RowList {
  const ops::Paged& paged;
  int64_t s;
  const char** rows;
  int64_t count = 0;

  /// The rows of `tokens` neighbouring positions; a division per block, not per row.
  void append(int64_t at, int64_t tokens) {
    const int64_t element = size_of(paged.pool), step = paged.pool.step(0) * element;
    while (tokens > 0) {
      const int64_t run = std::min(tokens, paged.block_rows - at % paged.block_rows);
      const char* from = static_cast<const char*>(paged.pool.data) + paged_offset(paged, s, at) * element;
      for (int64_t i = 0; i < run; ++i, from += step) rows[count++] = from;
      at += run, tokens -= run;
    }
  }
};

/// Heads [first, first + heads) of row t, for one worker.
struct RowHeads {
  int64_t t, first, heads;
  int worker;
};

/// A row's keys where they lie; or as floats, where many heads read them or they are codes: all, or a tile of them at a time in the nearest cache.
class KeyTiles {
 public:
  KeyTiles(const Isa& isa, const ops::Paged& latents, int64_t heads, int64_t count)
      : isa_(isa), latents_(latents), width_(latents.pool.dim(1)), count_(count), size_(std::max<int64_t>(count, 1)) {
    widened_ = latents.scales.present() || (latents.pool.dtype == DType::kBF16 && heads >= kManyHeads);
    if (widened_ && count * width_ * 4 > kAllBytes) size_ = std::max<int64_t>(kTileBytes / (width_ * 4) / 8 * 8, 8);
  }
  int64_t bytes() const { return widened_ ? round_up(size_ * 8, 64) + size_ * width_ * 4 : 0; }
  int64_t size() const { return size_; }

  /// Keys [begin, begin + size()) of the list, as far as there are; widened ones in `memory`.
  KeyRows take(const char* const* keys, int64_t begin, void* memory) const {
    KeyRows out{.rows = keys + begin, .count = std::min(size_, count_ - begin), .bf16 = latents_.pool.dtype == DType::kBF16};
    if (!widened_) return out;
    const char** const rows = static_cast<const char**>(memory);
    float* const floats = reinterpret_cast<float*>(static_cast<char*>(memory) + round_up(size_ * 8, 64));
    const char* const base = static_cast<const char*>(latents_.pool.data);
    const int64_t row_bytes = latents_.pool.step(0) * size_of(latents_.pool);
    for (int64_t i = 0; i < out.count; ++i) {
      if (begin + i + kAhead < count_) ask_for(keys[begin + i + kAhead]);
      const int64_t at = (keys[begin + i] - base) / row_bytes;
      read_paged(isa_.row, latents_, at, floats + i * width_);
      rows[i] = reinterpret_cast<const char*>(floats + i * width_);
    }
    out.rows = rows, out.bf16 = false;
    return out;
  }

 private:
  static constexpr int64_t kTileBytes = 32 << 10, kAllBytes = 256 << 10, kAhead = 16, kManyHeads = 8;

  void ask_for(const char* key) const {
    for (int64_t i = 0; i < width_ * size_of(latents_.pool); i += 64) __builtin_prefetch(key + i);
  }

  const Isa& isa_;
  const ops::Paged& latents_;
  int64_t width_, count_, size_;
  bool widened_ = false;
};

void attend_row(const Isa& isa, const ops::MlaAttendParams& p, const RowHeads& work, const ops::LaunchContext& context) {
  const auto [t, first, heads, worker] = work;
  const int64_t s = sequence_of(p.batch, t), position = position_of(p.batch, s, t), width = p.q.dim(2);
  const int64_t most = key_count(p.selection, t, position), stride = round_up(std::max<int64_t>(most, 1), 16);
  const KeyTiles tiles(isa, p.latents, heads, most);
  char* const memory = static_cast<char*>(context.scratch->local(worker, (stride * 8) + heads * stride * 4 + tiles.bytes()));
  if (memory == nullptr) return;
  RowList keys{.paged = p.latents, .s = s, .rows = reinterpret_cast<const char**>(memory)};
  float* const scores = reinterpret_cast<float*>(memory + stride * 8);
  char* const tile = memory + stride * 8 + heads * stride * 4;
  for_runs(p.selection, t, position, [&](int64_t at, int64_t tokens) { keys.append(at, tokens); });
  const int64_t count = keys.count;
  KeyRows some = tiles.take(keys.rows, 0, tile);
  for (int64_t begin = 0; begin < count; begin += tiles.size()) {
    if (begin > 0) some = tiles.take(keys.rows, begin, tile);
    isa.attention.scores({.q = row(p.q, t, first),
                          .q_stride = p.q.step(1),
                          .heads = heads,
                          .width = width,
                          .keys = some,
                          .scale = p.scale,
                          .out = scores + begin,
                          .out_stride = stride});
  }
  float sums[kHeadsTogether];
  for (int64_t h = 0; h < heads; ++h) {
    const float largest = isa.attention.largest(scores + h * stride, count);
    sums[h] = isa.attention.soften(scores + h * stride, count, largest);
    if (p.row_max.present()) row(p.row_max, t)[first + h] = largest;
    if (p.row_sum.present()) row(p.row_sum, t)[first + h] = sums[h];
  }
  for (int64_t begin = 0; begin == 0 || begin < count; begin += tiles.size()) {
    if (tiles.size() < count) some = tiles.take(keys.rows, begin, tile);
    isa.attention.blend({.p = scores + begin,
                         .p_stride = stride,
                         .heads = heads,
                         .width = width,
                         .values = some,
                         .out = row(p.out, t, first),
                         .out_stride = p.out.step(1),
                         .accumulate = begin > 0});
  }
  for (int64_t h = 0; count > 0 && h < heads; ++h) isa.attention.scale(row(p.out, t, first + h), width, 1.0f / sums[h]);
  LATHE_COUNT(context, kBytesRead, count * paged_row_bytes(p.latents) + heads * width * 4);
  LATHE_COUNT(context, kBytesWritten, heads * (width * 4 + (p.row_max.present() ? 4 : 0) + (p.row_sum.present() ? 4 : 0)));
  LATHE_COUNT(context, kFlops, heads * count * 4 * width);
  LATHE_COUNT(context, kExponentials, heads * count);
  LATHE_COUNT(context, kDivisions, heads);
  LATHE_COUNT(context, kRowsNormalised, heads);
}

void attend(const Isa& isa, const ops::MlaAttendParams& p, const ops::LaunchContext& context) {
  const int64_t rows = p.q.dim(0), heads = p.q.dim(1);
  LATHE_COUNT(context, kBytesRead,
              (2 * p.batch.sequences() + 1 + p.selection.pools.elements() + p.latents.table.elements() + p.selection.tail_begin.elements()) * 4);
  if (rows == 0 || heads == 0) return;
  // Few rows: fewer heads together, so that every thread has work.
  const int threads = context.pool->threads();
  int64_t together = std::min<int64_t>(heads, kHeadsTogether);
  while (together > 1 && rows * ceil_div(heads, together) < threads) together = (together + 1) / 2;
  const int64_t groups = ceil_div(heads, together);
  context.pool->for_each(rows * groups, [&](int64_t task, int worker) {
    const int64_t first = task % groups * together;
    attend_row(isa, p, {.t = task / groups, .first = first, .heads = std::min(together, heads - first), .worker = worker}, context);
  });
}

}  // namespace

#define LATHE_MLA_KERNEL(name, function, Params)                                                                       \
  void LATHE_KERNEL(name##_scalar)(const void* params, const ops::LaunchContext& context) {                            \
    function({ScalarLevel::level(), kRowScalar, kAttentionScalar}, *static_cast<const ops::Params*>(params), context); \
  }                                                                                                                    \
  void LATHE_KERNEL(name##_avx2)(const void* params, const ops::LaunchContext& context) {                              \
    function({Avx2Level::level(), kRowAvx2, kAttentionAvx2}, *static_cast<const ops::Params*>(params), context);       \
  }                                                                                                                    \
  void LATHE_KERNEL(name##_avx512)(const void* params, const ops::LaunchContext& context) {                            \
    function({Avx512Level::level(), kRowAvx512, kAttentionAvx512}, *static_cast<const ops::Params*>(params), context); \
  }

LATHE_MLA_KERNEL(mla_absorb, absorb, MlaAbsorbParams)
LATHE_MLA_KERNEL(mla_attend, attend, MlaAttendParams)
LATHE_MLA_KERNEL(mla_unabsorb, unabsorb, MlaUnabsorbParams)

#undef LATHE_MLA_KERNEL

void LATHE_KERNEL(mla_unabsorb_avx512bf16)(const void* params, const ops::LaunchContext& context) {
  unabsorb({Avx512Bf16Level::level(), kRowAvx512, kAttentionAvx512}, *static_cast<const ops::MlaUnabsorbParams*>(params), context);
}

}  // namespace lathe::kernels::cpu
