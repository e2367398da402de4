// kda_recurrence, all levels.
//
// Idea    per (token, head) q and k are normalised and expm1(g) is taken once; then every piece of 64 state columns goes through the tokens on its own, its
//         K · 64 floats in the first-level cache. Update and read Sᵀq of a token and decay and guess Sᵀk of the next are one sweep: one load, one store, four
//         FMA an element. The first sweep reads the state in the format of `entering`, the last one writes that of `states`. Columns do not meet, so pieces of
//         sequences, heads and columns run side by side with the same bits. One token alone needs no tile: it reads the state twice, the second time from a cache.
// Limits  none. Rows are taken in chunks whose prepared vectors fit in about 4 MiB; a sequence that continues in the next chunk waits in scratch.
// Ladder  two sweeps a token, decayed state stored between: 957 ns a head and token (AVX-512, K = V = 128), bound by stores; one sweep, and one
//         token without a tile: docs/kernels/kda_states.md.
// Floor   decode: 2 · K · V · 4 bytes a head (state in, state out); prefill: 4 FMA an element and token.
#include <cmath>

#include "kernels/cpu/kda_isa.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/rows.h"
#include "ops/kda.h"

namespace lathe::kernels::cpu {
namespace {

constexpr int64_t kPreparedBytes = 4 << 20;

enum class Piece : uint8_t { kState, kM, kH };

class Recurrence {
 public:
  Recurrence(const KdaIsa& isa, const ops::KdaRecurrenceParams& p, const ops::LaunchContext& context)
      : isa_(isa),
        p_(p),
        context_(context),
        rows_(p.q.dim(0)),
        heads_(p.q.dim(1)),
        keys_(p.q.dim(2)),
        values_(p.v.dim(2)),
        pair_(p.pair_m.present()) {
    part_ = round_up(keys_, 16);
    state_tiles_ = ceil_div(values_, kStateTile);
    m_tiles_ = pair_ ? ceil_div(keys_, kStateTile) : 0;
  }

  void run() {
    const int32_t* const begin = p_.batch.begin.i32();
    const int64_t sequences = p_.batch.sequences();
    LATHE_COUNT(context_, kBytesRead, (3 * sequences + 1 + rows_) * 4);
    if (rows_ > 0 && heads_ > 0 && !allocate()) return;
    int64_t first = 0;
    for (int64_t row = 0; heads_ > 0 && row < rows_; row += chunk_) {
      const int64_t end = std::min(rows_, row + chunk_);
      while (begin[first + 1] <= row) ++first;
      int64_t last = first;
      while (last < sequences && begin[last] < end) ++last;
      const int64_t units = heads_ * (state_tiles_ * (pair_ ? 2 : 1) + m_tiles_);
      if (one_row_each(first, row, end) && (end - row) * heads_ >= context_.pool->threads()) {
        by_head(first, row, end, units);
        continue;
      }
      prepare(row, end);
      const auto task = [&](int64_t index, int worker) { sequence_piece(first + index / units, index % units, row, end, worker); };
      const int64_t tasks = (last - first) * units;
      if ((end - row) * heads_ * keys_ * values_ < 2 * kInlineElements) {
        for (int64_t i = 0; i < tasks; ++i) task(i, 0);
      } else {
        context_.pool->for_each(tasks, task);
      }
    }
    for (int64_t s = 0; pair_ && s < sequences; ++s) {
      if (begin[s] == begin[s + 1]) no_rows(s);
    }
  }

 private:
  /// False: no memory.
  bool allocate() {
    const int64_t row_bytes = heads_ * 3 * part_ * 4;
    chunk_ = std::clamp<int64_t>(kPreparedBytes / row_bytes, 1, rows_);
    waiting_stride_ = values_ + (pair_ ? keys_ + values_ : 0);
    // Two areas in turn: in one launch a task may read what goes on into a chunk while another writes what goes on into the next.
    const int64_t waiting = chunk_ < rows_ ? 2 * heads_ * keys_ * waiting_stride_ * 4 : 0;
    prepared_ = static_cast<float*>(context_.scratch->shared(chunk_ * row_bytes + waiting));
    if (prepared_ == nullptr) return false;
    waiting_ = prepared_ + chunk_ * heads_ * 3 * part_;
    return true;
  }

  /// Whether row `row` + i is the only one of sequence `first` + i, for all rows before `end`.
  bool one_row_each(int64_t first, int64_t row, int64_t end) const {
    const int32_t* const begin = p_.batch.begin.i32();
    for (int64_t i = 0; row + i < end; ++i) {
      if (first + i >= p_.batch.sequences() || begin[first + i] != row + i || begin[first + i + 1] != row + i + 1) return false;
    }
    return true;
  }

  /// One row of each sequence: whoever prepares a head runs its columns too. Prepared vectors that another core wrote cost more than the columns themselves.
  void by_head(int64_t first, int64_t row, int64_t end, int64_t units) {
    const auto task = [&](int64_t index, int worker) {
      const int64_t s = first + index / heads_, head = index % heads_;
      prepare_heads(row, index, index + 1);
      if (passes(s, row + index / heads_)) return one_token({.s = s, .head = head, .width = values_}, row + index / heads_, row);
      for (int64_t unit = head; unit < units; unit += heads_) sequence_piece(s, unit, row, end, worker);
    };
    const int64_t tasks = (end - row) * heads_;
    if (tasks * keys_ * values_ >= 2 * kInlineElements) return context_.pool->for_each(tasks, task);
    for (int64_t i = 0; i < tasks; ++i) task(i, 0);
  }
  /// Whether the only row of a sequence takes its state from one place in floats to another.
  bool passes(int64_t s, int64_t row) const {
    return !pair_ && p_.states.dtype != DType::kI8 && p_.state_in.i32()[s] >= 0 && p_.state_out.i32()[row] >= 0;
  }

  void prepare(int64_t begin, int64_t end) {
    for_pieces(context_, (end - begin) * heads_, 8 * keys_, [&](int64_t from, int64_t to, int) { prepare_heads(begin, from, to); });
  }

  /// Heads [from, to) of the rows from `begin` on, numbered row by row.
  void prepare_heads(int64_t begin, int64_t from, int64_t to) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(keys_));
    for (int64_t i = from; i < to; ++i) {
      const int64_t t = begin + i / heads_, h = i % heads_;
      float* const out = prepared_ + i * 3 * part_;
      isa_.l2_norm(p_.q.f32() + t * p_.q.step(0) + h * p_.q.step(1), keys_, scale, 1e-6f, out);
      isa_.l2_norm(p_.k.f32() + t * p_.k.step(0) + h * p_.k.step(1), keys_, 1.0f, 1e-6f, out + part_);
      isa_.expm1(p_.g.f32() + t * p_.g.step(0) + h * keys_, keys_, out + 2 * part_);
    }
    LATHE_COUNT(context_, kRowsNormalised, 2 * (to - from));
    LATHE_COUNT(context_, kDivisions, 2 * (to - from));
    LATHE_COUNT(context_, kFlops, 6 * keys_ * (to - from));
    LATHE_COUNT(context_, kExponentials, keys_ * (to - from));
    LATHE_COUNT(context_, kBytesRead, 3 * keys_ * 4 * (to - from));
  }

  void sequence_piece(int64_t s, int64_t unit, int64_t row, int64_t end, int worker) {
    const int64_t begin = std::max<int64_t>(p_.batch.begin.i32()[s], row), stop = std::min<int64_t>(p_.batch.begin.i32()[s + 1], end);
    if (begin >= stop) return;
    const int64_t head = unit % heads_, tile = unit / heads_;
    const Piece piece = tile < state_tiles_ ? Piece::kState : tile < state_tiles_ + m_tiles_ ? Piece::kM : Piece::kH;
    const int64_t column = (piece == Piece::kState ? tile : piece == Piece::kM ? tile - state_tiles_ : tile - state_tiles_ - m_tiles_) * kStateTile;
    Work work{.s = s, .head = head, .column = column, .piece = piece};
    work.width = std::min(kStateTile, (piece == Piece::kM ? keys_ : values_) - column);
    work.tile = static_cast<float*>(context_.scratch->local(worker, keys_ * kStateTile * 4));
    if (work.tile == nullptr) return;
    run_tokens(work, begin, stop, row);
  }

  struct Work {
    int64_t s = 0, head = 0, column = 0, width = 0;
    Piece piece = Piece::kState;
    float* tile = nullptr;  ///< [K][kStateTile]
  };

  StateArgs arguments(const Work& work, int64_t t, int64_t chunk_begin) const {
    StateArgs args;
    args.keys = keys_, args.width = work.width, args.tokens = 1;
    args.prepared = prepared_ + ((t - chunk_begin) * heads_ + work.head) * 3 * part_;
    args.part = part_, args.prepared_stride = heads_ * 3 * part_;
    args.beta = p_.beta.f32() + t * p_.beta.step(0) + work.head, args.beta_stride = p_.beta.step(0);
    if (work.piece != Piece::kM) args.v = p_.v.f32() + t * p_.v.step(0) + work.head * p_.v.step(1) + work.column, args.v_stride = p_.v.step(0);
    if (work.piece == Piece::kState) args.o = p_.o.f32() + t * p_.o.step(0) + work.head * p_.o.step(1) + work.column, args.o_stride = p_.o.step(0);
    return args;
  }

  void one_token(const Work& work, int64_t t, int64_t chunk_begin) const {
    StateArgs args = arguments(work, t, chunk_begin);
    args.from = entering(work, t, chunk_begin);
    give_target(args, work, p_.state_out.i32()[t], false);
    isa_.tokens(args);
    count_tokens(work, 1);
  }

  void run_tokens(const Work& work, int64_t begin, int64_t stop, int64_t chunk_begin) {
    const StateSource tile{.format = StateFormat::kF32, .values = work.tile, .stride = kStateTile};
    const int64_t end = p_.batch.begin.i32()[work.s + 1];
    StateSource from = entering(work, begin, chunk_begin);
    for (int64_t t = begin; t < stop;) {
      int64_t next = t + 1;  // up to the next token whose state is kept
      while (next < stop && (work.piece != Piece::kState || p_.state_out.i32()[next - 1] < 0)) ++next;
      StateArgs args = arguments(work, t, chunk_begin);
      args.tokens = next - t, args.from = from, args.tile = work.tile;
      const int32_t out = work.piece == Piece::kState ? p_.state_out.i32()[next - 1] : -1;
      if (out >= 0) give_target(args, work, out, next < end);
      isa_.tokens(args);
      count_tokens(work, next - t);
      if (out >= 0 && p_.states.dtype == DType::kI8) keep_codes(work, out);
      from = tile, t = next;
    }
    if (stop < end) return copy_columns(work.tile, kStateTile, waiting(work, chunk_begin + chunk_), waiting_stride_, work.width);
    if (work.piece != Piece::kState) write_pair(work);
  }

  /// The state before row `begin`.
  StateSource entering(const Work& work, int64_t begin, int64_t chunk_begin) const {
    StateSource from{.format = StateFormat::kF32};
    if (continues(work, begin)) {
      from.values = waiting(work, chunk_begin), from.stride = waiting_stride_;
      return from;
    }
    if (work.piece == Piece::kM) {
      std::fill_n(work.tile, keys_ * kStateTile, 0.0f);
      for (int64_t c = 0; c < work.width; ++c) work.tile[(work.column + c) * kStateTile + c] = 1.0f;
      from.values = work.tile, from.stride = kStateTile;
      return from;
    }
    const int32_t in = work.piece == Piece::kState ? p_.state_in.i32()[work.s] : -1;
    if (in < 0) return {};
    LATHE_COUNT(context_, kBytesRead, kept_bytes(work, p_.entering.dtype));
    from.format = p_.entering.dtype == DType::kF16 ? StateFormat::kF16 : p_.entering.dtype == DType::kI8 ? StateFormat::kI8 : StateFormat::kF32;
    from.values = place(work, p_.entering, in), from.stride = p_.entering.step(2);
    from.scales = scales(work, p_.entering_scales, in);
    return from;
  }

  /// Row `out` of the states gets the state behind the last token. Codes are made from the tile afterwards.
  void give_target(StateArgs& args, const Work& work, int32_t out, bool more) const {
    LATHE_COUNT(context_, kBytesWritten, kept_bytes(work, p_.states.dtype));
    if (p_.states.dtype == DType::kI8) return;
    const bool half = p_.states.dtype == DType::kF16;
    args.target = half ? (more ? StateTarget::kF16Both : StateTarget::kF16) : (more ? StateTarget::kF32Both : StateTarget::kF32);
    args.to = place(work, p_.states, out), args.to_stride = p_.states.step(2);
  }
  void keep_codes(const Work& work, int32_t out) const {
    isa_.keep_i8({.kept = place(work, p_.states, out),
                  .kept_stride = p_.states.step(2),
                  .scales = scales(work, p_.states_scales, out),
                  .tile = work.tile,
                  .tile_stride = kStateTile,
                  .keys = keys_,
                  .width = work.width});
  }

  char* place(const Work& work, const View& states, int64_t at) const {
    const int64_t first = at * states.step(0) + work.head * states.step(1) + work.column;
    return static_cast<char*>(states.data) + first * static_cast<int64_t>(tensor::dtype_bytes(states.dtype));
  }
  float* scales(const Work& work, const View& view, int64_t at) const {
    return view.present() ? view.f32() + at * view.step(0) + work.head * view.step(1) + work.column : nullptr;
  }
  int64_t kept_bytes(const Work& work, DType type) const {
    return keys_ * work.width * static_cast<int64_t>(tensor::dtype_bytes(type)) + (type == DType::kI8 ? work.width * 4 : 0);
  }

  bool continues(const Work& work, int64_t row) const { return row > p_.batch.begin.i32()[work.s]; }
  /// Where the state waits that enters the chunk of rows from `chunk_begin` on.
  float* waiting(const Work& work, int64_t chunk_begin) const {
    const int64_t offset = work.piece == Piece::kState ? 0 : work.piece == Piece::kM ? values_ : values_ + keys_;
    const int64_t area = chunk_begin / chunk_ % 2 * heads_ * keys_ * waiting_stride_;
    return waiting_ + area + work.head * keys_ * waiting_stride_ + offset + work.column;
  }
  void copy_columns(const float* from, int64_t from_stride, float* to, int64_t to_stride, int64_t width) const {
    for (int64_t c = 0; c < keys_; ++c) std::memcpy(to + c * to_stride, from + c * from_stride, static_cast<size_t>(width) * 4);
  }
  void write_pair(const Work& work) {
    const View& out = work.piece == Piece::kM ? p_.pair_m : p_.pair_h;
    copy_columns(work.tile, kStateTile, out.f32() + work.s * out.step(0) + work.head * out.step(1) + work.column, out.step(2), work.width);
    LATHE_COUNT(context_, kBytesWritten, keys_ * work.width * 4);
  }
  /// The affine form of no rows at all.
  void no_rows(int64_t s) {
    for (int64_t h = 0; h < heads_; ++h) {
      for (int64_t c = 0; c < keys_; ++c) {
        float* const m = p_.pair_m.f32() + s * p_.pair_m.step(0) + h * p_.pair_m.step(1) + c * p_.pair_m.step(2);
        std::fill_n(m, keys_, 0.0f);
        m[c] = 1.0f;
        std::fill_n(p_.pair_h.f32() + s * p_.pair_h.step(0) + h * p_.pair_h.step(1) + c * p_.pair_h.step(2), values_, 0.0f);
      }
    }
    LATHE_COUNT(context_, kBytesWritten, heads_ * keys_ * (keys_ + values_) * 4);
  }
  void count_tokens([[maybe_unused]] const Work& work, [[maybe_unused]] int64_t count) const {
    LATHE_COUNT(context_, kFlops, count * (work.piece == Piece::kState ? 8 : 6) * keys_ * work.width);
    if (work.piece != Piece::kState) return;
    LATHE_COUNT(context_, kBytesRead, count * (work.width + (work.column == 0 ? 1 : 0)) * 4);
    LATHE_COUNT(context_, kBytesWritten, count * work.width * 4);
  }

  const KdaIsa& isa_;
  const ops::KdaRecurrenceParams& p_;
  const ops::LaunchContext& context_;
  int64_t rows_, heads_, keys_, values_;
  bool pair_;
  int64_t part_ = 0, state_tiles_ = 0, m_tiles_ = 0, chunk_ = 1, waiting_stride_ = 0;
  float* prepared_ = nullptr;  ///< [chunk, H, 3, part]: q, k, expm1(g)
  float* waiting_ = nullptr;   ///< [2, H, K, V | K | V]: state and pair of the sequence that goes on in the next chunk
};

void run(const KdaIsa& isa, const void* params, const ops::LaunchContext& context) {
  Recurrence(isa, *static_cast<const ops::KdaRecurrenceParams*>(params), context).run();
}

}  // namespace

void LATHE_KERNEL(kda_recurrence_scalar)(const void* params, const ops::LaunchContext& context) { run(kKdaScalar, params, context); }
void LATHE_KERNEL(kda_recurrence_avx2)(const void* params, const ops::LaunchContext& context) { run(kKdaAvx2, params, context); }
void LATHE_KERNEL(kda_recurrence_avx512)(const void* params, const ops::LaunchContext& context) { run(kKdaAvx512, params, context); }

}  // namespace lathe::kernels::cpu
