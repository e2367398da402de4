// kda_verify and kda_flush, all levels.
//
// Idea    a task is a window of one sequence and head. Its ring rows are fetched once, as floats, into scratch; per row q, k and decays are made once and
//         matched with the keys of the ring; then the state is read once for three rows at a time, 16 KiB of it after the other, both sums (Sᵀk, Sᵀq) in
//         registers; what remains is a few FMA an entry and column. A fold inside the window makes a copy of the state in scratch and goes on from that.
// Limits  none. Sequences times heads are what threads share.
// Floor   one reading of the state: K · V elements a head and window, and the ring. The flush: one reading and one writing of it.
// Ladder  see docs/kernels/kda_states.md.
#include <cmath>
#include <cstring>

#include "kernels/cpu/kda_isa.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/replay_isa.h"
#include "kernels/cpu/rows.h"
#include "ops/kda_replay.h"

namespace lathe::kernels::cpu {
namespace {

constexpr int64_t kFoldedRows = 16;      // of the state, rounded from the nearest cache
constexpr int64_t kReadBytes = 4 << 10;  // of the state, between two groups of rows or columns

struct ReplayLevel {
  const KdaIsa& kda;
  const ReplayIsa& replay;
};
constexpr ReplayLevel kScalarLevel{kKdaScalar, kReplayScalar}, kAvx2Level{kKdaAvx2, kReplayAvx2}, kAvx512Level{kKdaAvx512, kReplayAvx512};

int64_t bytes_of(const View& view) { return static_cast<int64_t>(tensor::dtype_bytes(view.dtype)); }

/// States of many rows and heads.
struct StatePool {
  const View& values;
  const View& scales;

  int64_t keys() const { return values.dim(2); }
  int64_t width() const { return values.dim(3); }
  int64_t head_bytes() const { return keys() * width() * bytes_of(values) + (scales.present() ? width() * 4 : 0); }
  char* data(int64_t row, int64_t h) const {
    return static_cast<char*>(values.data) + (row * values.step(0) + h * values.step(1)) * bytes_of(values);
  }
  float* scale(int64_t row, int64_t h) const { return scales.present() ? scales.f32() + row * scales.step(0) + h * scales.step(1) : nullptr; }
  StateSource source(int64_t row, int64_t h) const {
    if (row < 0) return {};
    const StateFormat format = values.dtype == DType::kF16 ? StateFormat::kF16 : values.dtype == DType::kI8 ? StateFormat::kI8 : StateFormat::kF32;
    return {.format = format, .values = data(row, h), .stride = values.step(2), .scales = scale(row, h)};
  }
  KeptArgs kept(int64_t row, int64_t h, float* tile, int64_t tile_stride) const {
    return {.kept = data(row, h),
            .kept_stride = values.step(2),
            .scales = scale(row, h),
            .tile = tile,
            .tile_stride = tile_stride,
            .keys = keys(),
            .width = width()};
  }
};

/// Rounds a tile to a format, and stores it.
void keep(const KdaIsa& isa, DType format, const KeptArgs& args) {
  if (format == DType::kF16) return isa.keep_f16(args);
  if (format == DType::kI8) return isa.keep_i8(args);
  float* const kept = static_cast<float*>(args.kept);
  for (int64_t c = 0; c < args.keys; ++c) {
    std::memcpy(kept + c * args.kept_stride, args.tile + c * args.tile_stride, static_cast<size_t>(args.width) * 4);
  }
}

/// The ring of one sequence and head.
struct HeadRing {
  const ops::ReplayRing& ring;
  int64_t slot, h;

  char* at(const View& view, int64_t position) const {
    return static_cast<char*>(view.data) + (slot * view.step(0) + position % view.dim(1) * view.step(1) + h * view.step(2)) * bytes_of(view);
  }
  char* key(int64_t position) const { return at(ring.keys, position); }
  char* value(int64_t position) const { return at(ring.values, position); }
  float* decay(int64_t position) const { return reinterpret_cast<float*>(at(ring.decay, position)); }
  bool narrow_keys() const { return ring.keys.dtype == DType::kBF16; }
  bool narrow_values() const { return ring.values.dtype == DType::kBF16; }
  int64_t key_bytes() const { return ring.keys.dim(3) * bytes_of(ring.keys); }
  int64_t value_bytes() const { return ring.values.dim(3) * bytes_of(ring.values); }
  int64_t entry_bytes() const { return key_bytes() + value_bytes(); }
};

/// A worker's scratch as rows of floats.
struct Sizes {
  int64_t keys = 0, width = 0;
  int64_t entries = 0;  ///< most of a sequence
  int64_t rows = 0;     ///< most of a window
  bool folds = false;
  int64_t part() const { return round_up(keys, 16); }
  int64_t stride() const { return round_up(width, 16); }
};

struct Area {
  explicit Area(const Sizes& sizes) : s(sizes) {}
  /// Floats, if `base` is null; else all pointers are set.
  int64_t lay_out(float* base) {
    int64_t used = 0;
    const auto take = [&](float*& at, int64_t floats) {
      at = base + used;
      used += round_up(floats, 16);
    };
    take(entry_keys, s.entries * s.part()), take(entry_values, s.entries * s.stride());
    take(q, s.part()), take(k, s.part()), take(grown, s.part()), take(loss, s.part());
    take(q_grown, s.rows * s.part()), take(k_grown, s.rows * s.part());
    take(from_q, s.rows * s.stride()), take(from_k, s.rows * s.stride());
    take(to_q, s.rows * s.entries), take(to_k, s.rows * s.entries), take(qk, s.rows);
    if (s.folds) take(tile, s.keys * s.stride()), take(rounded, s.keys * s.stride()), take(scales, s.stride());
    return used;
  }

  Sizes s;
  float *entry_keys = nullptr, *entry_values = nullptr;
  float *q = nullptr, *k = nullptr, *grown = nullptr, *loss = nullptr;
  float *q_grown = nullptr, *k_grown = nullptr, *from_q = nullptr, *from_k = nullptr;
  float *to_q = nullptr, *to_k = nullptr, *qk = nullptr;
  float* tile = nullptr;     ///< a folded state
  float* rounded = nullptr;  ///< where its rounding goes
  float* scales = nullptr;
};

/// Runs task(sequence, head, area) for all of them, each with a worker's scratch.
template <class Task>
void each_head(const ops::LaunchContext& context, int64_t sequences, int64_t heads, const Sizes& sizes, const Task& task) {
  const int64_t bytes = Area(sizes).lay_out(nullptr) * 4;
  const auto one = [&](int64_t index, int worker) {
    auto* const memory = static_cast<float*>(context.scratch->local(worker, bytes));
    if (memory == nullptr) return;
    Area area(sizes);
    area.lay_out(memory);
    task(index / heads, index % heads, area);
  };
  const int64_t tasks = sequences * heads;
  if (tasks * sizes.keys * sizes.width >= 2 * kInlineElements) return context.pool->for_each(tasks, one);
  for (int64_t i = 0; i < tasks; ++i) one(i, 0);
}

/// Ring rows [begin, end) as floats: entry 0 is `begin`.
void fetch(const ReplayIsa& isa, const HeadRing& ring, int64_t begin, int64_t end, const Area& area) {
  for (int64_t p = begin; p < end; ++p) {
    isa.widen(ring.key(p), ring.narrow_keys(), area.s.keys, area.entry_keys + (p - begin) * area.s.part());
    isa.widen(ring.value(p), ring.narrow_values(), area.s.width, area.entry_values + (p - begin) * area.s.stride());
  }
}

/// Asks for a row that is needed soon. Its first byte is read, so that its page's address is known: asking alone is dropped where it is not.
void ask_for(const void* row, int64_t bytes) {
  static_cast<void>(*static_cast<const volatile char*>(row));
  for (int64_t i = 64; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(row) + i);
}
void ask_for(const HeadRing& ring, int64_t begin, int64_t end) {
  for (int64_t p = begin; p < end; ++p) ask_for(ring.key(p), ring.key_bytes()), ask_for(ring.value(p), ring.value_bytes());
}

FoldArgs fold_args(const Area& area, const StateSource& from, int64_t count) {
  return {.from = from,
          .keys = area.s.keys,
          .width = area.s.width,
          .grown = area.grown,
          .loss = area.loss,
          .entry_keys = area.entry_keys,
          .part = area.s.part(),
          .entry_values = area.entry_values,
          .stride = area.s.stride(),
          .count = count};
}

/// The rows of one sequence and head.
class Window {
 public:
  Window(const ReplayLevel& level, const ops::KdaVerifyParams& p, const ops::LaunchContext& context, int64_t s, int64_t h, const Area& area)
      : level_(level), p_(p), context_(context), area_(area), h_(h), ring_{p.ring, p.slot.i32()[s], h} {
    begin_ = p.batch.begin.i32()[s], end_ = p.batch.begin.i32()[s + 1], start_ = p.batch.start.i32()[s];
    checkpoint_ = p.checkpoint.i32()[s];
    const StatePool pool{p.states, p.states_scales};
    state_ = pool.source(p.state.i32()[s], h);
    LATHE_CHECK(begin_ == end_ || (0 <= checkpoint_ && checkpoint_ <= start_), "checkpoint {} of a window at {}", checkpoint_, start_);
  }

  void run() {
    if (begin_ == end_) return;
    if (h_ + 1 < p_.q.dim(1)) ask_for_head(h_ + 1);
    if (state_.format != StateFormat::kZeros) LATHE_COUNT(context_, kBytesRead, (StatePool{p_.states, p_.states_scales}).head_bytes());
    before_ = start_ > checkpoint_ ? ring_.decay(start_ - 1) : nullptr;
    LATHE_COUNT(context_, kBytesRead, (start_ - checkpoint_) * ring_.entry_bytes() + (before_ != nullptr ? area_.s.keys * 4 : 0));
    check_ring(start_);
    fetch(level_.replay, ring_, checkpoint_, start_, area_);
    for (int64_t row = begin_; row < end_;) {
      if (p_.fold.i32()[row] != 0 && position(row) > checkpoint_) fold(position(row));
      int64_t next = row + 1;  // up to the next row at a checkpoint
      while (next < end_ && p_.fold.i32()[next] == 0) ++next;
      check_ring(position(next));
      rows(row, next);
      row = next;
    }
  }

 private:
  /// Asks for what another head reads beside its state, and for the ring rows that it writes: small pieces of many pages.
  void ask_for_head(int64_t h) const {
    const HeadRing ring{p_.ring, ring_.slot, h};
    const int64_t key_bytes = area_.s.keys * 4;
    ask_for(ring, checkpoint_, position(end_));
    if (start_ > checkpoint_) ask_for(ring.decay(start_ - 1), key_bytes);
    for (int64_t row = begin_; row < end_; ++row) {
      ask_for(ring.decay(position(row)), key_bytes);
      ask_for(p_.q.f32() + row * p_.q.step(0) + h * p_.q.step(1), key_bytes);
      ask_for(p_.k.f32() + row * p_.k.step(0) + h * p_.k.step(1), key_bytes);
      ask_for(p_.g.f32() + row * p_.g.step(0) + h * area_.s.keys, key_bytes);
      ask_for(p_.v.f32() + row * p_.v.step(0) + h * p_.v.step(1), area_.s.width * 4);
    }
  }
  int64_t position(int64_t row) const { return start_ + row - begin_; }
  void check_ring(int64_t end) const {
    LATHE_CHECK(end - checkpoint_ <= p_.ring.keys.dim(1), "{} tokens since the checkpoint in a ring of {}", end - checkpoint_, p_.ring.keys.dim(1));
  }

  /// Moves the checkpoint to `to`, in scratch.
  void fold(int64_t to) {
    const int64_t keys = area_.s.keys, width = area_.s.width, stride = area_.s.stride();
    level_.replay.exponentials(before_, keys, area_.grown, area_.loss);
    FoldArgs args = fold_args(area_, state_, to - checkpoint_);
    args.to = area_.tile, args.to_stride = stride;
    level_.replay.fold(args);
    if (p_.states.dtype != DType::kF32) {
      keep(level_.kda, p_.states.dtype,
           {.kept = area_.rounded,
            .kept_stride = stride,
            .scales = area_.scales,
            .tile = area_.tile,
            .tile_stride = stride,
            .keys = keys,
            .width = width});
    }
    LATHE_COUNT(context_, kFlops, (2 * (to - checkpoint_) + 4) * keys * width);
    LATHE_COUNT(context_, kExponentials, keys);
    state_ = {.format = StateFormat::kF32, .values = area_.tile, .stride = stride};
    checkpoint_ = to, before_ = nullptr;
  }

  /// Rows without a fold between them.
  void rows(int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) prepare(t, t - begin);
    read(end - begin);
    for (int64_t t = begin; t < end; ++t) finish(t, t - begin);
  }

  /// Row t, number i since the fold: its ring row but for the value, and how it matches the entries before it.
  void prepare(int64_t t, int64_t i) {
    const int64_t keys = area_.s.keys, part = area_.s.part(), at = position(t), entries = at - checkpoint_;
    const float scale = 1.0f / std::sqrt(static_cast<float>(keys));
    level_.kda.l2_norm(p_.q.f32() + t * p_.q.step(0) + h_ * p_.q.step(1), keys, scale, 1e-6f, area_.q);
    level_.kda.l2_norm(p_.k.f32() + t * p_.k.step(0) + h_ * p_.k.step(1), keys, 1.0f, 1e-6f, area_.k);
    float* const q = area_.q_grown + i * part;
    float* const k = area_.k_grown + i * part;
    area_.qk[i] = level_.replay.grow({.q = area_.q,
                                      .k = area_.k,
                                      .g = p_.g.f32() + t * p_.g.step(0) + h_ * keys,
                                      .before = before_,
                                      .keys = keys,
                                      .decay = ring_.decay(at),
                                      .q_grown = q,
                                      .k_grown = k,
                                      .key = ring_.key(at),
                                      .narrow = ring_.narrow_keys(),
                                      .kept = area_.entry_keys + entries * part});
    before_ = ring_.decay(at);
    level_.replay.match({.q = q,
                         .k = k,
                         .entries = area_.entry_keys,
                         .part = part,
                         .count = entries,
                         .keys = keys,
                         .to_q = area_.to_q + i * area_.s.entries,
                         .to_k = area_.to_k + i * area_.s.entries});
    LATHE_COUNT(context_, kBytesRead, 3 * keys * 4);
    LATHE_COUNT(context_, kBytesWritten, ring_.key_bytes() + keys * 4);
    LATHE_COUNT(context_, kFlops, entries * 4 * keys + 12 * keys);
    LATHE_COUNT(context_, kRowsNormalised, 2);
    LATHE_COUNT(context_, kExponentials, 2 * keys);
    LATHE_COUNT(context_, kDivisions, 2);
  }

  void read(int64_t rows) {
    const int64_t keys = area_.s.keys, stride = area_.s.stride();
    std::fill_n(area_.from_q, rows * stride, 0.0f);
    std::fill_n(area_.from_k, rows * stride, 0.0f);
    ReadArgs args{.state = state_,
                  .width = area_.s.width,
                  .q = area_.q_grown,
                  .k = area_.k_grown,
                  .part = area_.s.part(),
                  .rows = rows,
                  .from_q = area_.from_q,
                  .from_k = area_.from_k,
                  .stride = stride};
    // In the order of memory: all columns at once, or a page of rows after the other.
    const bool at_once = rows == 1 && area_.s.width <= level_.replay.columns;
    const int64_t step = at_once ? keys : std::max<int64_t>(kReadBytes / (stride * bytes_of(p_.states)), 1);
    for (; args.begin < keys; args.begin = args.end) {
      args.end = std::min(keys, args.begin + step);
      level_.replay.read(args);
    }
    LATHE_COUNT(context_, kFlops, rows * 4 * keys * area_.s.width);
  }

  void finish(int64_t t, int64_t i) {
    const int64_t stride = area_.s.stride(), at = position(t), entries = at - checkpoint_;
    level_.replay.finish({.from_q = area_.from_q + i * stride,
                          .from_k = area_.from_k + i * stride,
                          .entries = area_.entry_values,
                          .stride = stride,
                          .count = entries,
                          .to_q = area_.to_q + i * area_.s.entries,
                          .to_k = area_.to_k + i * area_.s.entries,
                          .beta = p_.beta.f32()[t * p_.beta.step(0) + h_],
                          .qk = area_.qk[i],
                          .v = p_.v.f32() + t * p_.v.step(0) + h_ * p_.v.step(1),
                          .width = area_.s.width,
                          .o = p_.o.f32() + t * p_.o.step(0) + h_ * p_.o.step(1),
                          .value = ring_.value(at),
                          .narrow = ring_.narrow_values(),
                          .kept = area_.entry_values + entries * stride});
    LATHE_COUNT(context_, kBytesRead, (area_.s.width + 1) * 4);
    LATHE_COUNT(context_, kBytesWritten, ring_.value_bytes() + area_.s.width * 4);
    LATHE_COUNT(context_, kFlops, entries * 4 * area_.s.width + 4 * area_.s.width);
  }

  const ReplayLevel& level_;
  const ops::KdaVerifyParams& p_;
  const ops::LaunchContext& context_;
  const Area& area_;
  int64_t h_;
  HeadRing ring_;
  int64_t begin_ = 0, end_ = 0, start_ = 0, checkpoint_ = 0;
  StateSource state_;
  const float* before_ = nullptr;  ///< decays of the row before; null: zeros
};

void verify(const ReplayLevel& level, const void* params, const ops::LaunchContext& context) {
  const auto& p = *static_cast<const ops::KdaVerifyParams*>(params);
  const int64_t sequences = p.batch.sequences(), rows = p.q.dim(0);
  LATHE_COUNT(context, kBytesRead, (5 * sequences + 1 + rows) * 4);
  Sizes sizes{.keys = p.q.dim(2), .width = p.v.dim(2)};
  for (int64_t s = 0; s < sequences; ++s) {
    const int64_t window = p.batch.begin.i32()[s + 1] - p.batch.begin.i32()[s];
    if (window == 0) continue;
    sizes.rows = std::max(sizes.rows, window);
    sizes.entries = std::max(sizes.entries, p.batch.start.i32()[s] - p.checkpoint.i32()[s] + window);
  }
  for (int64_t t = 0; t < rows; ++t) sizes.folds |= p.fold.i32()[t] != 0;
  if (sizes.rows == 0) return;
  each_head(context, sequences, p.q.dim(1), sizes, [&](int64_t s, int64_t h, const Area& area) { Window(level, p, context, s, h, area).run(); });
}

/// The stored bits of a head's state in another row.
void copy(const StatePool& from, int64_t from_row, const StatePool& to, int64_t to_row, int64_t h) {
  std::memmove(to.data(to_row, h), from.data(from_row, h), static_cast<size_t>(from.keys() * from.width() * bytes_of(from.values)));
  if (from.scales.present()) std::memmove(to.scale(to_row, h), from.scale(from_row, h), static_cast<size_t>(from.width()) * 4);
}

/// Keys [begin, end) of a head's state, folded from one row of a pool into one of another.
struct FoldedRows {
  int64_t in, into, h, begin, end, entries;
};
void fold_rows(const ReplayLevel& level, const StatePool& from, const StatePool& to, const Area& area, const FoldedRows& rows) {
  FoldArgs args = fold_args(area, from.source(rows.in, rows.h), rows.entries);
  args.from.values = static_cast<const char*>(args.from.values) + (rows.in < 0 ? 0 : rows.begin * args.from.stride * bytes_of(from.values));
  args.keys = rows.end - rows.begin;
  args.grown += rows.begin, args.loss += rows.begin, args.entry_keys += rows.begin;
  KeptArgs kept = to.kept(rows.into, rows.h, area.tile, area.s.stride());
  kept.keys = args.keys, kept.kept = static_cast<char*>(kept.kept) + rows.begin * kept.kept_stride * bytes_of(to.values);
  const bool straight = to.values.dtype == DType::kF32;
  args.to = straight ? static_cast<float*>(kept.kept) : area.tile;
  args.to_stride = straight ? kept.kept_stride : area.s.stride();
  level.replay.fold(args);
  if (!straight) keep(level.kda, to.values.dtype, kept);
}

void flush_head(const ReplayLevel& level, const ops::KdaFlushParams& p, const ops::LaunchContext& context, int64_t s, int64_t h, const Area& area) {
  const int64_t in = p.state_in.i32()[s], into = p.into.i32()[s], begin = p.checkpoint.i32()[s], end = p.to.i32()[s];
  if (into < 0) return;
  LATHE_CHECK(0 <= begin && begin <= end && end - begin <= p.ring.keys.dim(1), "a fold of [{}, {}) in a ring of {}", begin, end, p.ring.keys.dim(1));
  const StatePool from{p.entering, p.entering_scales}, to{p.states, p.states_scales};
  LATHE_COUNT(context, kBytesRead, in >= 0 ? from.head_bytes() : 0);
  LATHE_COUNT(context, kBytesWritten, to.head_bytes());
  if (begin == end && in >= 0 && p.entering.dtype == p.states.dtype) return copy(from, in, to, into, h);
  const HeadRing ring{p.ring, p.slot.i32()[s], h};
  const int64_t keys = area.s.keys;
  if (h + 1 < p.entering.dim(1)) ask_for({p.ring, ring.slot, h + 1}, begin, end);
  fetch(level.replay, ring, begin, end, area);
  if (begin < end) {
    level.replay.exponentials(ring.decay(end - 1), keys, area.grown, area.loss);
    LATHE_COUNT(context, kBytesRead, (end - begin) * ring.entry_bytes() + keys * 4);
    LATHE_COUNT(context, kFlops, (2 * (end - begin) + 4) * keys * area.s.width);
    LATHE_COUNT(context, kExponentials, keys);
  }
  // Codes need whole columns; else a few rows at a time stay in the nearest cache.
  const int64_t rows = p.states.dtype == DType::kI8 ? keys : kFoldedRows;
  for (int64_t c = 0; c < keys; c += rows)
    fold_rows(level, from, to, area, {.in = in, .into = into, .h = h, .begin = c, .end = std::min(keys, c + rows), .entries = end - begin});
}

void flush(const ReplayLevel& level, const void* params, const ops::LaunchContext& context) {
  const auto& p = *static_cast<const ops::KdaFlushParams*>(params);
  const int64_t sequences = p.slot.dim(0);
  LATHE_COUNT(context, kBytesRead, 5 * sequences * 4);
  Sizes sizes{.keys = p.entering.dim(2), .width = p.entering.dim(3), .folds = p.states.dtype != DType::kF32};
  for (int64_t s = 0; s < sequences; ++s) sizes.entries = std::max<int64_t>(sizes.entries, p.to.i32()[s] - p.checkpoint.i32()[s]);
  each_head(context, sequences, p.entering.dim(1), sizes, [&](int64_t s, int64_t h, const Area& area) { flush_head(level, p, context, s, h, area); });
}

}  // namespace

void LATHE_KERNEL(kda_verify_scalar)(const void* params, const ops::LaunchContext& context) { verify(kScalarLevel, params, context); }
void LATHE_KERNEL(kda_verify_avx2)(const void* params, const ops::LaunchContext& context) { verify(kAvx2Level, params, context); }
void LATHE_KERNEL(kda_verify_avx512)(const void* params, const ops::LaunchContext& context) { verify(kAvx512Level, params, context); }
void LATHE_KERNEL(kda_flush_scalar)(const void* params, const ops::LaunchContext& context) { flush(kScalarLevel, params, context); }
void LATHE_KERNEL(kda_flush_avx2)(const void* params, const ops::LaunchContext& context) { flush(kAvx2Level, params, context); }
void LATHE_KERNEL(kda_flush_avx512)(const void* params, const ops::LaunchContext& context) { flush(kAvx512Level, params, context); }

}  // namespace lathe::kernels::cpu
