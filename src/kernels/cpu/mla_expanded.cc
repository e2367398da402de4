// mla_expanded, all levels.
//
// Idea    per sequence and head, the context goes by in tiles of kTile positions. The latents of a tile that some row of the step attends to are brought
//         together and multiplied by the head's rows of kv_b once (panel.h); then every row takes its keys of the tile: scores, and a running softmax
//         (maximum, sum, output) over tiles. Tiles lie at fixed positions, so bits depend on the row and its selection alone.
// Limits  latents of codes are multiplied as floats: in BF16 they would be rounded with their scales.
// Floor   2 · keys · H · R · (nope + value) once per sequence and step, and 2 · pairs · H · (nope + value), over the peaks.
#include <cmath>
#include <limits>

#include "kernels/cpu/attention_isa.h"
#include "kernels/cpu/batch_rows.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/key_list.h"
#include "kernels/cpu/levels.h"
#include "kernels/cpu/vectors.h"
#include "ops/mla.h"

namespace lathe::kernels::cpu {
namespace {

constexpr int64_t kTile = 256;  // positions; with 256 channels a head the expanded tile is 256 KiB

struct Isa {
  Level level;
  const RowIsa& row;
  const AttentionIsa& attention;
};

/// Where a row stands in its list of keys.
struct Cursor {
  int32_t pool = 0;   ///< index into the row's pools
  int32_t token = 0;  ///< token inside the pool
  int64_t tail = 0;   ///< next token of the tail
};

class ExpandedHead {
 public:
  ExpandedHead(const Isa& isa, const ops::MlaExpandedParams& p, const ops::LaunchContext& context, int64_t s, int64_t h, int worker)
      : isa_(isa),
        p_(p),
        context_(context),
        s_(s),
        h_(h),
        begin_(p.batch.begin.i32()[s]),
        rows_(p.batch.begin.i32()[s + 1] - begin_),
        nope_(p.kv_b.nope),
        value_(p.kv_b.value),
        width_(p.kv_b.matrix.cols()),
        matrix_(tensor::slice_matrix(p.kv_b.matrix, {h * (nope_ + value_), (h + 1) * (nope_ + value_)}, {0, width_})),
        source_(isa.level, matrix_, p.latents.scales.present() ? ops::Compute::kF32 : p.compute, 0) {
    const int64_t head = round_up(nope_ + value_, source_.width()), run = round_up(PanelRun::bytes(source_, kTile, 1), 64);
    const int64_t latents = round_up(kTile * row_stride(width_, source_.format()), 64);
    const int64_t state = value_ + 2;
    const int64_t total = run + latents + kTile * head * 4 + width_ * 4 + kTile * (4 + 8 + 4) + rows_ * (state * 4 + 16) + 64 * 16;
    char* memory = static_cast<char*>(context.scratch->local(worker, total));
    if (memory == nullptr) return;  // run() does nothing
    const auto take = [&](int64_t bytes) {
      char* const at = memory;
      memory += round_up(bytes, 64);
      return at;
    };
    run_memory_ = take(run);
    latents_ = take(latents);
    expanded_ = reinterpret_cast<float*>(take(kTile * head * 4));
    head_stride_ = head;
    latent_row_ = reinterpret_cast<float*>(take(width_ * 4));
    slot_ = reinterpret_cast<int32_t*>(take(kTile * 4));
    keys_ = reinterpret_cast<const char**>(take(kTile * 8));
    scores_ = reinterpret_cast<float*>(take(kTile * 4));
    cursors_ = reinterpret_cast<Cursor*>(take(rows_ * 16));
    state_ = reinterpret_cast<float*>(take(rows_ * state * 4));
  }

  void run() {
    if (state_ == nullptr) return;
    int64_t last = -1;
    for (int64_t r = 0; r < rows_; ++r) {
      cursors_[r] = {.pool = 0, .token = 0, .tail = tail_of(p_.selection, begin_ + r, position(r))};
      float* const state = state_of(r);
      state[0] = -std::numeric_limits<float>::infinity(), state[1] = 0.0f;
      std::fill_n(state + 2, value_, 0.0f);
      last = std::max(last, position(r));
    }
    for (int64_t tile = 0; tile <= last; tile += kTile) {
      const int64_t wanted = mark(tile);
      if (wanted == 0) continue;
      expand(tile, wanted);
      for (int64_t r = 0; r < rows_; ++r) visit(r, tile);
    }
    for (int64_t r = 0; r < rows_; ++r) finish(r);
  }

 private:
  int64_t position(int64_t r) const { return p_.batch.start.i32()[s_] + r; }
  float* state_of(int64_t r) const { return state_ + r * (value_ + 2); }  // maximum, sum, output

  /// Calls body(token − tile) for the row's keys in the tile, from its cursor on; moves the cursor.
  template <class Body>
  void keys_in_tile(int64_t r, int64_t tile, Cursor& cursor, const Body& body) const {
    const int32_t* const pools = p_.selection.pools.i32() + (begin_ + r) * p_.selection.pools.step(0);
    const int64_t end = tile + kTile;
    for (; cursor.pool < p_.selection.pools.dim(1) && pools[cursor.pool] >= 0; ++cursor.pool, cursor.token = 0) {
      for (; cursor.token < p_.selection.kpool; ++cursor.token) {
        const int64_t at = int64_t{pools[cursor.pool]} * p_.selection.kpool + cursor.token;
        if (at >= end) return;
        body(at - tile);
      }
    }
    for (; cursor.tail <= position(r) && cursor.tail < end; ++cursor.tail) body(cursor.tail - tile);
  }

  /// Numbers the tokens of the tile that some row wants.
  int64_t mark(int64_t tile) {
    std::fill_n(slot_, kTile, -1);
    for (int64_t r = 0; r < rows_; ++r) {
      Cursor cursor = cursors_[r];
      keys_in_tile(r, tile, cursor, [&](int64_t at) { slot_[at] = 0; });
    }
    int64_t wanted = 0;
    for (int64_t i = 0; i < kTile; ++i) {
      if (slot_[i] == 0) slot_[i] = static_cast<int32_t>(wanted++);
    }
    return wanted;
  }

  /// k and v of the wanted tokens: expanded_ [wanted][head_stride].
  void expand(int64_t tile, int64_t wanted) {
    const RowFormat format = source_.format();
    const int64_t stride = row_stride(width_, format);
    for (int64_t i = 0; i < kTile; ++i) {
      if (slot_[i] < 0) continue;
      const int64_t from = paged_row(p_.latents, s_, tile + i);
      const bool floats = p_.latents.pool.dtype == DType::kF32;
      const float* const latent = floats ? p_.latents.pool.f32() + from * p_.latents.pool.step(0) : latent_row_;
      if (!floats) read_paged(isa_.row, p_.latents, from, latent_row_);
      convert_row(*isa_.level.base, format, latent, width_, latents_ + slot_[i] * stride);
    }
    LATHE_COUNT(context_, kBytesRead, wanted * paged_row_bytes(p_.latents));
    PanelRun run(source_, context_, run_memory_, kTile);
    const Rows x{.data = latents_, .stride = stride};
    for (int64_t panel = 0; panel < source_.panels(); ++panel) {
      run.begin(panel);
      const float* const totals = run.node(x, 0, wanted, 0, 1, 0);
      for (int64_t r = 0; r < wanted; ++r) {
        std::memcpy(expanded_ + r * head_stride_ + panel * source_.width(), totals + r * source_.width(), static_cast<size_t>(source_.width()) * 4);
      }
    }
  }

  /// Row r takes its keys of the tile into its running softmax.
  void visit(int64_t r, int64_t tile) {
    int64_t count = 0;
    keys_in_tile(r, tile, cursors_[r], [&](int64_t at) { keys_[count++] = reinterpret_cast<const char*>(expanded_ + slot_[at] * head_stride_); });
    if (count == 0) return;
    float* const state = state_of(r);
    KeyRows keys{.rows = keys_, .count = count};
    isa_.attention.scores({.q = row(p_.q, begin_ + r, h_),
                           .q_stride = 0,
                           .heads = 1,
                           .width = nope_,
                           .keys = keys,
                           .scale = p_.scale,
                           .out = scores_,
                           .out_stride = 0});
    const float largest = std::max(state[0], isa_.attention.largest(scores_, count));
    if (largest > state[0] && state[1] != 0.0f) {
      const float factor = isa_.attention.exp(state[0] - largest);
      state[1] *= factor;
      isa_.attention.scale(state + 2, value_, factor);
      LATHE_COUNT(context_, kExponentials, 1);
    }
    state[0] = largest;
    state[1] += isa_.attention.soften(scores_, count, largest);
    keys.offset = nope_ * 4;
    isa_.attention.blend(
        {.p = scores_, .p_stride = 0, .heads = 1, .width = value_, .values = keys, .out = state + 2, .out_stride = 0, .accumulate = true});
    LATHE_COUNT(context_, kFlops, count * 2 * (nope_ + value_));
    LATHE_COUNT(context_, kExponentials, count);
  }

  void finish(int64_t r) {
    float* const state = state_of(r);
    float* const out = row(p_.out, begin_ + r, h_);
    std::memcpy(out, state + 2, static_cast<size_t>(value_) * 4);
    // Without keys the sum is 0 and so is the output.
    if (state[1] != 0.0f) isa_.attention.scale(out, value_, 1.0f / state[1]);
    LATHE_COUNT(context_, kBytesRead, nope_ * 4);
    LATHE_COUNT(context_, kBytesWritten, value_ * 4);
    LATHE_COUNT(context_, kDivisions, 1);
    LATHE_COUNT(context_, kRowsNormalised, 1);
  }

  const Isa& isa_;
  const ops::MlaExpandedParams& p_;
  const ops::LaunchContext& context_;
  int64_t s_, h_, begin_, rows_, nope_, value_, width_;
  MatrixView matrix_;
  PanelSource source_;
  char* run_memory_ = nullptr;
  char* latents_ = nullptr;
  float* expanded_ = nullptr;
  int64_t head_stride_ = 0;
  float* latent_row_ = nullptr;
  int32_t* slot_ = nullptr;
  const char** keys_ = nullptr;
  float* scores_ = nullptr;
  Cursor* cursors_ = nullptr;
  float* state_ = nullptr;
};

void expanded(const Isa& isa, const void* params, const ops::LaunchContext& context) {
  const auto& p = *static_cast<const ops::MlaExpandedParams*>(params);
  const int64_t heads = p.q.dim(1);
  LATHE_COUNT(context, kBytesRead,
              (2 * p.batch.sequences() + 1 + p.selection.pools.elements() + p.latents.table.elements() + p.selection.tail_begin.elements()) * 4);
  if (p.q.dim(0) == 0) return;
  context.pool->for_each(p.batch.sequences() * heads, [&](int64_t task, int worker) {
    const int64_t s = task / heads;
    if (p.batch.begin.i32()[s] == p.batch.begin.i32()[s + 1]) return;
    ExpandedHead(isa, p, context, s, task % heads, worker).run();
  });
}

}  // namespace

void LATHE_KERNEL(mla_expanded_scalar)(const void* params, const ops::LaunchContext& context) {
  expanded({ScalarLevel::level(), kRowScalar, kAttentionScalar}, params, context);
}
void LATHE_KERNEL(mla_expanded_avx2)(const void* params, const ops::LaunchContext& context) {
  expanded({Avx2Level::level(), kRowAvx2, kAttentionAvx2}, params, context);
}
void LATHE_KERNEL(mla_expanded_avx512)(const void* params, const ops::LaunchContext& context) {
  expanded({Avx512Level::level(), kRowAvx512, kAttentionAvx512}, params, context);
}
void LATHE_KERNEL(mla_expanded_avx512bf16)(const void* params, const ops::LaunchContext& context) {
  expanded({Avx512Bf16Level::level(), kRowAvx512, kAttentionAvx512}, params, context);
}

}  // namespace lathe::kernels::cpu
