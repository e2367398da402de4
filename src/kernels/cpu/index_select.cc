// index_select, all levels.
//
// Idea    the pooled keys are the weight rows of a matrix product (matmul_isa.h) whose x are the index heads of a row: a panel of keys is packed once for a
//         block of rows and multiplied by all their heads. Scores of a panel stay in the first-level cache: those that can still be among the best go to the
//         row's list of candidates, which is cut back whenever it is full. A candidate is one integer (score in order, then lower pool), so the choice is exact
//         and does not depend on blocks. Few rows: the pools are cut into pieces, each with its own list, merged at the end.
// Limits  none. Keys of codes become floats, a panel at a time, and then a panel like any other.
// Floor   one row: bytes of the keys; many rows: 2 · pools · N · dx a row over the FMA peak.
#include <atomic>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/cpu/attention_isa.h"
#include "kernels/cpu/batch_rows.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/vectors.h"
#include "ops/mla.h"

namespace lathe::kernels::cpu {
namespace {

constexpr int64_t kBlockRows = 16;

struct Isa {
  const MatmulIsa& matmul;
  const RowIsa& row;
  const AttentionIsa& attention;
};

/// Larger for a larger score (NaN: the smallest), then for a lower pool. 0 is smaller than any candidate.
uint64_t candidate(float score, int64_t pool) {
  uint32_t order = 0;
  if (score == score) {
    const auto raw = std::bit_cast<uint32_t>(score + 0.0f);  // −0 as 0
    order = (raw >> 31) != 0 ? ~raw : raw | 0x80000000u;
  }
  return (uint64_t{order} << 32) | (0xFFFFFFFFu - static_cast<uint32_t>(pool));
}
int32_t pool_of(uint64_t entry) { return static_cast<int32_t>(0xFFFFFFFFu - static_cast<uint32_t>(entry)); }
float score_of(uint64_t entry) {
  const auto order = static_cast<uint32_t>(entry >> 32);
  if (order == 0) return -std::numeric_limits<float>::infinity();
  return std::bit_cast<float>((order >> 31) != 0 ? order & 0x7FFFFFFFu : ~order);
}

/// The best `most` of the candidates so far, and some more.
struct BestList {
  uint64_t* entries = nullptr;  ///< room for 2 · most
  int64_t most = 0;
  int64_t count = 0;
  float bound = -std::numeric_limits<float>::infinity();  ///< no lower score can be among the best

  void cut() {
    if (count <= most) return;
    std::nth_element(entries, entries + most - 1, entries + count, std::greater<uint64_t>());
    count = most;
    bound = score_of(entries[most - 1]);
  }
  void add(uint64_t entry) {
    if (count == 2 * most) cut();
    entries[count++] = entry;
  }
};

class IndexSelect {
 public:
  IndexSelect(const Isa& isa, const ops::IndexSelectParams& p, const ops::LaunchContext& context)
      : isa_(isa),
        p_(p),
        context_(context),
        rows_(p.q.dim(0)),
        heads_(p.q.dim(1)),
        width_(p.q.dim(2)),
        most_(p.selection.dim(1)),
        list_(2 * std::max<int64_t>(most_, 1)) {
    const bool bf16 = p.keys.pool.dtype == DType::kBF16;
    pack_ = bf16 ? isa.matmul.pack_bf16 : isa.matmul.pack_f32;
    codes_ = p.keys.scales.present();
    element_ = size_of(p.keys.pool);
    scale_ = 1.0f / std::sqrt(static_cast<float>(width_));
    head_scale_ = 1.0f / std::sqrt(static_cast<float>(heads_));
  }

  void run() {
    LATHE_COUNT(context_, kBytesRead, (2 * p_.batch.sequences() + 1) * 4);
    if (rows_ == 0) return;
    int64_t furthest = 0;
    for (int64_t s = 0; s < p_.batch.sequences(); ++s) {
      const int64_t count = p_.batch.begin.i32()[s + 1] - p_.batch.begin.i32()[s];
      if (count > 0) furthest = std::max(furthest, (p_.batch.start.i32()[s] + count) / p_.kpool);
    }
    const bool scored = p_.scores.present() || furthest > most_;
    if (scored) LATHE_COUNT(context_, kBytesRead, p_.keys.table.elements() * 4);
    if (p_.scores.present()) LATHE_CHECK(furthest <= p_.scores.dim(1), "{} pools, room for {} scores", furthest, p_.scores.dim(1));
    const int threads = context_.pool->threads();
    // Rows of one sequence share the packing of its keys; rows of several have nothing to share.
    if (p_.batch.sequences() >= rows_) block_ = std::clamp<int64_t>(ceil_div(rows_, int64_t{2} * threads), 1, kBlockRows);
    const int64_t blocks = ceil_div(rows_, block_), panels = ceil_div(furthest, isa_.matmul.width);
    pieces_ = !scored ? 1 : std::clamp<int64_t>(std::min(2 * threads / blocks, panels / 8), 1, 64);
    piece_pools_ = round_up(ceil_div(furthest, pieces_), isa_.matmul.width);
    if (pieces_ > 1) partial_ = static_cast<char*>(context_.scratch->shared(rows_ * pieces_ * (list_ + 1) * 8));
    if (pieces_ > 1 && partial_ == nullptr) return;
    if (!scored) {
      for (int64_t t = 0; t < rows_; ++t) choose_all(t);
      return;
    }
    std::atomic<bool> complete{true};
    context_.pool->for_each(blocks * pieces_, [&](int64_t task, int worker) {
      if (!run_block(task / pieces_, task % pieces_, worker)) complete = false;
    });
    if (pieces_ == 1 || !complete) return;
    for_pieces(context_, rows_, list_ * pieces_ * 8, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) merge(t);
    });
  }

 private:
  int64_t pools_of(int64_t t) const { return (position_of(p_.batch, sequence_of(p_.batch, t), t) + 1) / p_.kpool; }
  int32_t* selection(int64_t t) const { return p_.selection.i32() + t * p_.selection.step(0); }
  uint64_t* partial(int64_t t, int64_t piece) const {
    return reinterpret_cast<uint64_t*>(partial_) + (t * pieces_ + piece) * (list_ + 1);
  }  // count, entries

  void choose_all(int64_t t) const {
    const int64_t pools = pools_of(t);
    for (int64_t i = 0; i < most_; ++i) selection(t)[i] = i < pools ? static_cast<int32_t>(i) : -1;
    LATHE_COUNT(context_, kBytesWritten, most_ * 4);
  }

  /// Row t's best, ascending, then −1. The list is spoilt.
  void choose(int64_t t, BestList& list) const {
    list.cut();
    int32_t* const out = selection(t);
    const int64_t pools = pools_of(t), words = ceil_div(pools, 64);
    if (words <= 2 * list.count) {
      // A bit per pool is sorted by itself. The entries are read before their room is used for the bits.
      for (int64_t i = 0; i < list.count; ++i) out[i] = pool_of(list.entries[i]);
      std::fill_n(list.entries, words, 0);
      for (int64_t i = 0; i < list.count; ++i) list.entries[out[i] / 64] |= uint64_t{1} << (out[i] % 64);
      int64_t at = 0;
      for (int64_t word = 0; word < words; ++word) {
        for (uint64_t set = list.entries[word]; set != 0; set &= set - 1) out[at++] = static_cast<int32_t>(word * 64 + std::countr_zero(set));
      }
    } else {
      for (int64_t i = 0; i < list.count; ++i) out[i] = pool_of(list.entries[i]);
      std::sort(out, out + list.count);
    }
    std::fill(out + list.count, out + most_, -1);
    LATHE_COUNT(context_, kBytesWritten, most_ * 4);
  }

  struct Memory {
    char* packed = nullptr;       ///< one panel of keys
    float* dots = nullptr;        ///< [heads][width of a panel]
    float* lanes = nullptr;       ///< of a tile
    float* scores = nullptr;      ///< of a panel
    float* keys = nullptr;        ///< of a panel, of codes alone
    float* weights = nullptr;     ///< [block rows][heads], times N^-0.5
    uint64_t* entries = nullptr;  ///< [block rows][2 · most]
  };

  Memory memory(int worker) const {
    const int64_t panel = isa_.matmul.width, steps = round_up(width_, 4);
    const int64_t keys = codes_ ? panel * width_ : 0;
    const int64_t floats = steps * panel + (heads_ + 1) * panel + 4 * isa_.matmul.tile_rows * panel + kBlockRows * heads_ + keys;
    char* const at = static_cast<char*>(context_.scratch->local(worker, round_up(floats * 4, 64) + kBlockRows * list_ * 8));
    if (at == nullptr) return {};
    float* const base = reinterpret_cast<float*>(at);
    Memory m{.packed = at, .dots = base + steps * panel};
    m.lanes = m.dots + heads_ * panel;
    m.scores = m.lanes + 4 * isa_.matmul.tile_rows * panel;
    m.weights = m.scores + panel;
    m.keys = m.weights + kBlockRows * heads_;
    m.entries = reinterpret_cast<uint64_t*>(at + round_up(floats * 4, 64));
    return m;
  }

  /// False: no memory.
  bool run_block(int64_t block, int64_t piece, int worker) {
    const Memory m = memory(worker);
    if (m.packed == nullptr) return false;
    const int64_t end = std::min(rows_, (block + 1) * block_);
    for (int64_t t = block * block_; t < end;) {
      const int64_t s = sequence_of(p_.batch, t), stop = std::min<int64_t>(end, p_.batch.begin.i32()[s + 1]);
      run_rows(m, s, t, stop, piece);
      t = stop;
    }
    return true;
  }

  /// Rows [begin, end) of sequence s against one piece of its pools.
  void run_rows(const Memory& m, int64_t s, int64_t begin, int64_t end, int64_t piece) {
    BestList lists[kBlockRows];
    for (int64_t t = begin; t < end; ++t) {
      lists[t - begin] = {.entries = m.entries + (t - begin) * list_, .most = most_};
      for (int64_t h = 0; h < heads_; ++h) m.weights[(t - begin) * heads_ + h] = row(p_.weights, t)[h] * head_scale_;
      LATHE_COUNT(context_, kBytesRead, heads_ * 4);
      if (p_.scores.present() && piece == 0) fill_scores(t, pools_of(t));
    }
    const int64_t first = piece * piece_pools_, last = std::min(first + piece_pools_, pools_of(end - 1));
    for (int64_t pool = first; pool < last; pool += isa_.matmul.width) {
      const int64_t present = std::min<int64_t>(isa_.matmul.width, last - pool);
      bool packed = false;
      for (int64_t t = begin; t < end; ++t) {
        const int64_t pools = pools_of(t), count = std::min(present, pools - pool);
        if (count <= 0 || (pools <= most_ && !p_.scores.present())) continue;
        if (!packed) pack(m, s, pool, present);
        packed = true;
        score(m, t, t - begin, count);
        if (pool == first) LATHE_COUNT(context_, kBytesRead, heads_ * width_ * 4);
        if (p_.scores.present()) std::memcpy(row(p_.scores, t) + pool, m.scores, static_cast<size_t>(count) * 4);
        if (pools > most_ && most_ > 0) collect(lists[t - begin], m.scores, pool, count);
      }
    }
    for (int64_t t = begin; t < end; ++t) {
      BestList& list = lists[t - begin];
      if (pools_of(t) <= most_) {
        if (piece == 0) choose_all(t);
      } else if (pieces_ == 1) {
        choose(t, list);
      } else {
        list.cut();
        uint64_t* const to = partial(t, piece);
        to[0] = static_cast<uint64_t>(list.count);
        std::copy_n(list.entries, list.count, to + 1);
      }
    }
  }

  void fill_scores(int64_t t, int64_t pools) const {
    std::fill(row(p_.scores, t) + pools, row(p_.scores, t) + p_.scores.dim(1), -std::numeric_limits<float>::infinity());
    LATHE_COUNT(context_, kBytesWritten, p_.scores.dim(1) * 4);
  }

  void pack(const Memory& m, int64_t s, int64_t pool, int64_t present) const {
    const char* rows[kPanelWidthMax];
    const char* const base = static_cast<const char*>(p_.keys.pool.data);
    int64_t prefetch = isa_.matmul.width * p_.keys.pool.step(0) * element_;
    for (int64_t i = 0; i < isa_.matmul.width; ++i) {
      const int64_t at = paged_row(p_.keys, s, pool + std::min(i, present - 1));
      rows[i] = base + at * p_.keys.pool.step(0) * element_;
      if (!codes_) continue;
      float* const key = m.keys + std::min(i, present - 1) * width_;
      if (i < present) read_paged(isa_.row, p_.keys, at, key);
      rows[i] = reinterpret_cast<const char*>(key), prefetch = 0;
    }
    pack_({.rows = rows, .channels = width_, .prefetch = prefetch, .out = m.packed});
    LATHE_COUNT(context_, kBytesRead, present * paged_row_bytes(p_.keys));
  }

  /// Scores of a packed panel for row t: m.scores.
  void score(const Memory& m, int64_t t, int64_t local, int64_t count) const {
    const int64_t panel = isa_.matmul.width, tiles = ceil_div(heads_, isa_.matmul.tile_rows);
    for (int64_t i = 0; i < tiles; ++i) {
      const int64_t head = heads_ * i / tiles, together = heads_ * (i + 1) / tiles - head;
      isa_.matmul.tile[together]({.x = reinterpret_cast<const char*>(row(p_.q, t, head)),
                                  .x_stride = p_.q.step(1) * 4,
                                  .panel = m.packed,
                                  .channels = width_,
                                  .lanes = m.lanes,
                                  .total = m.dots + head * panel,
                                  .first = true,
                                  .last = true});
    }
    isa_.attention.relu_sum(m.dots, panel, m.weights + local * heads_, heads_, scale_, count, m.scores);
    LATHE_COUNT(context_, kFlops, count * heads_ * (2 * width_ + 2));
  }

  void collect(BestList& list, const float* scores, int64_t pool, int64_t count) const {
    for (uint32_t found = isa_.attention.at_least(scores, count, list.bound); found != 0; found &= found - 1) {
      const int64_t i = std::countr_zero(found);
      list.add(candidate(scores[i], pool + i));
    }
  }

  void merge(int64_t t) const {
    if (pools_of(t) <= most_) return;
    uint64_t* const all = partial(t, 0);  // the lists move together over what lies between them
    int64_t count = 0;
    for (int64_t piece = 0; piece < pieces_; ++piece) {
      const uint64_t* const from = partial(t, piece);
      const auto size = static_cast<int64_t>(from[0]);
      std::memmove(all + count, from + 1, static_cast<size_t>(size) * 8);
      count += size;
    }
    BestList list{.entries = all, .most = most_, .count = count};
    choose(t, list);
  }

  const Isa& isa_;
  const ops::IndexSelectParams& p_;
  const ops::LaunchContext& context_;
  int64_t rows_, heads_, width_, most_, list_;
  PackFn pack_ = nullptr;
  bool codes_ = false;
  int64_t element_ = 4;  ///< bytes of one in the pool
  float scale_ = 1, head_scale_ = 1;
  int64_t block_ = kBlockRows, pieces_ = 1, piece_pools_ = 0;
  char* partial_ = nullptr;
};

void run(const Isa& isa, const void* params, const ops::LaunchContext& context) {
  IndexSelect(isa, *static_cast<const ops::IndexSelectParams*>(params), context).run();
}

}  // namespace

void LATHE_KERNEL(index_select_scalar)(const void* params, const ops::LaunchContext& context) {
  run({kMatmulScalar, kRowScalar, kAttentionScalar}, params, context);
}
void LATHE_KERNEL(index_select_avx2)(const void* params, const ops::LaunchContext& context) {
  run({kMatmulAvx2, kRowAvx2, kAttentionAvx2}, params, context);
}
void LATHE_KERNEL(index_select_avx512)(const void* params, const ops::LaunchContext& context) {
  run({kMatmulAvx512, kRowAvx512, kAttentionAvx512}, params, context);
}

}  // namespace lathe::kernels::cpu
