// moe, all levels: the chosen experts of every row, each expert's weights read once.
//
// Idea    pairs (row, chosen expert) are sorted by expert; then three passes over the pool: gate and up with swiglu between (expert × panel), down times
//         the routing weight (expert × panel), and per row the canonical tree over its experts. Rows are copied pair by pair into the product's format,
//         so that an expert's rows lie together. INT8: the inner rows are kept as floats until they are whole, then become codes.
// Limits  gate and up of one dtype. Experts out of the local range are skipped.
// Floor   few rows: weight bytes of the chosen experts; many rows: 6·pairs·I·D over the peak of FMA or BF16 dot products.
#include "ops/moe.h"

#include "kernels/cpu/gate_up.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/levels.h"

namespace lathe::kernels::cpu {
namespace {

/// Scratch of one launch. Pairs are numbered by expert, then row.
struct Groups {
  int32_t* begin = nullptr;    ///< [experts + 1]: pairs of local expert e
  int32_t* active = nullptr;   ///< [experts]: local experts with pairs
  int32_t* row = nullptr;      ///< [pairs]: row of x
  float* weight = nullptr;     ///< [pairs]
  int32_t* pair_of = nullptr;  ///< [T, k]: pair, −1 if the expert is elsewhere
  int64_t active_count = 0;
  int64_t pairs = 0;
  int64_t most = 0;  ///< largest number of pairs of an expert
};

class Moe {
 public:
  Moe(const Level& level, const ops::MoeParams& p, const ops::LaunchContext& context)
      : level_(level), p_(p), context_(context), rows_(p.x.dim(0)), chosen_(p.ids.dim(1)), channels_(p.x.dim(1)), experts_(p.gate.count) {
    if (experts_ > 0) {
      inner_ = p.gate.items[0].rows();
      in_ = row_format(level, p.compute, p.gate.items[0].values.dtype);
      out_ = row_format(level, p.compute, p.down.items[0].values.dtype);
    }
  }

  void run() {
    if (!allocate()) return;
    group();
    gather();
    gate_up();
    if (is_codes(out_)) inner_codes();
    down();
    combine();
  }

 private:
  /// False: no memory.
  bool allocate() {
    const int64_t pairs = rows_ * chosen_;
    const int64_t ints = round_up((2 * experts_ + 1 + 3 * pairs) * 4, 64);
    x_.stride = row_stride(channels_, in_), h_.stride = row_stride(std::max<int64_t>(inner_, 1), out_);
    const int64_t x_bytes = round_up(pairs * x_.stride, 64), h_bytes = round_up(pairs * h_.stride, 64), y_bytes = pairs * channels_ * 4;
    const int64_t code_bytes = pairs * static_cast<int64_t>(sizeof(CodeRow)), inner_bytes = is_codes(out_) ? pairs * inner_ * 4 : 0;
    char* const memory = static_cast<char*>(context_.scratch->shared(ints + x_bytes + h_bytes + y_bytes + 2 * code_bytes + inner_bytes));
    if (memory == nullptr) return false;
    groups_.begin = reinterpret_cast<int32_t*>(memory);
    groups_.active = groups_.begin + experts_ + 1;
    groups_.row = groups_.active + experts_;
    groups_.pair_of = groups_.row + pairs;
    groups_.weight = reinterpret_cast<float*>(groups_.pair_of + pairs);
    x_.data = memory + ints;
    h_.data = memory + ints + x_bytes;
    y_ = reinterpret_cast<float*>(memory + ints + x_bytes + h_bytes);
    codes_[0] = reinterpret_cast<CodeRow*>(memory + ints + x_bytes + h_bytes + y_bytes);
    codes_[1] = codes_[0] + pairs;
    inner_rows_ = reinterpret_cast<float*>(codes_[1] + pairs);
    x_.codes = codes_[0], h_.codes = codes_[1];
    return true;
  }

  /// Local number of the expert, −1 if another rank holds it.
  int64_t local(int64_t t, int64_t j) const {
    const int64_t expert = p_.ids.i32()[t * p_.ids.step(0) + j] - p_.expert_begin;
    return expert >= 0 && expert < experts_ ? expert : -1;
  }

  void group() {
    std::fill_n(groups_.begin, experts_ + 1, 0);
    for (int64_t t = 0; t < rows_; ++t) {
      for (int64_t j = 0; j < chosen_; ++j) {
        if (const int64_t expert = local(t, j); expert >= 0) ++groups_.begin[expert + 1];
      }
    }
    for (int64_t e = 0; e < experts_; ++e) {
      if (groups_.begin[e + 1] > 0) groups_.active[groups_.active_count++] = static_cast<int32_t>(e);
      groups_.most = std::max<int64_t>(groups_.most, groups_.begin[e + 1]);
      groups_.begin[e + 1] += groups_.begin[e];
    }
    groups_.pairs = groups_.begin[experts_];
    for (int64_t t = 0; t < rows_; ++t) {
      for (int64_t j = 0; j < chosen_; ++j) {
        int32_t& pair = groups_.pair_of[t * chosen_ + j] = -1;
        const int64_t expert = local(t, j);
        if (expert < 0) continue;
        pair = groups_.begin[expert]++;  // moved back below
        groups_.row[pair] = static_cast<int32_t>(t);
        groups_.weight[pair] = p_.weights.f32()[t * p_.weights.step(0) + j];
      }
    }
    for (int64_t e = experts_; e > 0; --e) groups_.begin[e] = groups_.begin[e - 1];
    groups_.begin[0] = 0;
    LATHE_COUNT(context_, kBytesRead, rows_ * chosen_ * 8);
  }

  void gather() {
    for_pieces(context_, groups_.pairs, channels_, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        take(in_, p_.x.f32() + groups_.row[i] * p_.x.step(0), channels_, x_, i);
        LATHE_COUNT(context_, kBytesRead, channels_ * 4);
      }
    });
  }

  /// Row i of `rows` = x in their format.
  void take(RowFormat format, const float* x, int64_t channels, const Rows& rows, int64_t i) {
    if (!is_codes(format)) return convert_row(*level_.base, format, x, channels, row_of(rows, i));
    codes_[&rows == &h_ ? 1 : 0][i] = code_row(*level_.codes, x, channels, level_.codes->magnitude(x, channels), row_of(rows, i));
  }

  void inner_codes() {
    for_pieces(context_, groups_.pairs, inner_, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) take(out_, inner_rows_ + i * inner_, inner_, h_, i);
    });
  }

  /// Calls body(expert, panel, worker) for every panel of the active experts.
  template <class Body>
  void for_panels(int64_t panels, int64_t expert_bytes, const Body& body) {
    const int64_t all = groups_.active_count * panels;
    const bool many = groups_.most > level_.base->tile_rows;
    const int64_t group = panels_per_task(all, many, groups_.active_count * expert_bytes, context_);
    context_.pool->for_each(ceil_div(all, group), [&](int64_t task, int worker) {
      for (int64_t i = task * group; i < std::min(all, (task + 1) * group); ++i) {
        const int64_t expert = groups_.active[i / panels];
        body(expert, i % panels, worker);
      }
    });
  }

  void gate_up() {
    if (groups_.pairs == 0) return;
    const MatmulIsa& isa = *level_.base;
    const int64_t width = isa.width, panels = ceil_div(inner_, width), block = block_rows(groups_.most, groups_.active_count * panels, context_);
    for_panels(panels, 2 * p_.gate.items[0].bytes(), [&](int64_t expert, int64_t panel, int worker) {
      const GateUp pair(level_, p_.gate.items[expert], p_.up.items[expert], p_.compute);
      void* const memory = context_.scratch->local(worker, pair.bytes(block));
      if (memory == nullptr) return;
      pair.run(panel, groups_.begin[expert], groups_.begin[expert + 1], x_, x_, block, memory, context_,
               [&](int64_t row, int64_t count, int64_t present, float* gate, float* up) {
                 for (int64_t r = 0; r < count; ++r) {
                   isa.swiglu(gate + r * width, up + r * width, p_.limit, present, gate + r * width);
                   if (is_codes(out_)) {
                     std::memcpy(inner_rows_ + (row + r) * inner_ + panel * width, gate + r * width, static_cast<size_t>(present) * 4);
                   } else {
                     convert_row(isa, out_, gate + r * width, present, row_of(h_, row + r) + panel * width * channel_bytes(out_));
                   }
                 }
                 count_swiglu(count * present, context_);
               });
    });
  }

  void down() {
    if (groups_.pairs == 0) return;
    const MatmulIsa& isa = *level_.base;
    const int64_t width = isa.width, panels = ceil_div(channels_, width), block = block_rows(groups_.most, groups_.active_count * panels, context_);
    for_panels(panels, p_.down.items[0].bytes(), [&](int64_t expert, int64_t panel, int worker) {
      const PanelSource source(level_, p_.down.items[expert], p_.compute, 0);
      void* const memory = context_.scratch->local(worker, PanelRun::bytes(source, block, 1));
      if (memory == nullptr) return;
      PanelRun run(source, context_, memory, block);
      run.begin(panel);
      const int64_t begin = groups_.begin[expert], end = groups_.begin[expert + 1], blocks = ceil_div(end - begin, block);
      for (int64_t i = 0; i < blocks; ++i) {
        const int64_t row = begin + (end - begin) * i / blocks, count = begin + (end - begin) * (i + 1) / blocks - row;
        const float* const totals = run.node(h_, row, count, 0, 1, 0);
        for (int64_t r = 0; r < count; ++r) {
          float* const to = y_ + (row + r) * channels_ + panel * width;
          isa.scaled(totals + r * width, groups_.weight[row + r], run.present(), to);
        }
        LATHE_COUNT(context_, kFlops, count * run.present());
      }
    });
  }

  /// Sum of the chosen experts lo … hi − 1 of row t, which lie in node [a, b): into out. At least one.
  void evaluate(int64_t t, int64_t lo, int64_t hi, int64_t a, int64_t b, float* out) {
    if (hi - lo == 1) {
      std::memcpy(out, y_ + groups_.pair_of[t * chosen_ + lo] * channels_, static_cast<size_t>(channels_) * 4);
      return;
    }
    const int64_t middle = tensor::tree_middle(a, b);
    const int64_t split = first_at(t, lo, hi, middle);
    if (split == lo) return evaluate(t, lo, hi, middle, b, out);
    if (split == hi) return evaluate(t, lo, hi, a, middle, out);
    evaluate(t, lo, split, a, middle, out);
    if (hi - split == 1) {
      level_.base->add(out, y_ + groups_.pair_of[t * chosen_ + split] * channels_, channels_);
    } else {
      // The left part is complete: its first pair's row is free to hold the right part.
      float* const spare = y_ + groups_.pair_of[t * chosen_ + lo] * channels_;
      evaluate(t, split, hi, middle, b, spare);
      level_.base->add(out, spare, channels_);
    }
    LATHE_COUNT(context_, kFlops, channels_);
  }
  /// First of the chosen lo … hi − 1 of row t whose expert id is at least `id`.
  int64_t first_at(int64_t t, int64_t lo, int64_t hi, int64_t id) const {
    while (lo < hi && p_.ids.i32()[t * p_.ids.step(0) + lo] < id) ++lo;
    return lo;
  }

  void combine_node(int64_t node, int64_t a, int64_t b, int64_t t) {
    const int64_t lo = first_at(t, 0, chosen_, a), hi = first_at(t, lo, chosen_, b);
    float* const out = p_.y.f32() + (p_.y.rank == 3 ? node * p_.y.step(0) : 0) + t * p_.y.step(-2);
    if (lo == hi) {
      std::fill_n(out, channels_, 0.0f);
    } else {
      evaluate(t, lo, hi, a, b, out);
    }
    if (p_.present.present()) p_.present.i32()[node * p_.present.step(0) + t] = lo == hi ? 0 : 1;
    LATHE_COUNT(context_, kBytesWritten, channels_ * 4 + (p_.present.present() ? 4 : 0));
  }

  /// Walks the cover of the local experts; returns the number of the next node.
  int64_t cover(int64_t node, int64_t a, int64_t b, int64_t t) {
    const int64_t lo = p_.expert_begin, hi = lo + experts_;
    if (b <= lo || hi <= a) return node;
    if (lo <= a && b <= hi) {
      combine_node(node, a, b, t);
      return node + 1;
    }
    const int64_t middle = tensor::tree_middle(a, b);
    return cover(cover(node, a, middle, t), middle, b, t);
  }

  void combine() {
    for_pieces(context_, rows_, channels_ * (chosen_ + 1), [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        if (p_.y.rank == 2) {
          combine_node(0, 0, std::max(p_.experts_total, 1), t);
        } else {
          cover(0, 0, p_.experts_total, t);
        }
      }
    });
  }

  static char* row_of(const Rows& rows, int64_t i) { return static_cast<char*>(const_cast<void*>(rows.data)) + i * rows.stride; }

  const Level& level_;
  const ops::MoeParams& p_;
  const ops::LaunchContext& context_;
  int64_t rows_, chosen_, channels_, experts_, inner_ = 0;
  RowFormat in_ = RowFormat::kFloat, out_ = RowFormat::kFloat;
  Groups groups_;
  Rows x_, h_;
  float* y_ = nullptr;           ///< [pairs, D]: w · down(…)
  CodeRow* codes_[2] = {};       ///< of x_ and h_
  float* inner_rows_ = nullptr;  ///< [pairs, I], if h_ is codes
};

template <class L>
void run(const void* params, const ops::LaunchContext& context) {
  const auto& p = *static_cast<const ops::MoeParams*>(params);
  if (p.x.dim(0) == 0) return;
  const Level level = L::level();
  Moe(level, p, context).run();
}

}  // namespace

void LATHE_KERNEL(moe_scalar)(const void* params, const ops::LaunchContext& context) { run<ScalarLevel>(params, context); }
void LATHE_KERNEL(moe_avx2)(const void* params, const ops::LaunchContext& context) { run<Avx2Level>(params, context); }
void LATHE_KERNEL(moe_avx512)(const void* params, const ops::LaunchContext& context) { run<Avx512Level>(params, context); }
void LATHE_KERNEL(moe_avx512vnni)(const void* params, const ops::LaunchContext& context) { run<Avx512VnniLevel>(params, context); }
void LATHE_KERNEL(moe_avx512bf16)(const void* params, const ops::LaunchContext& context) { run<Avx512Bf16Level>(params, context); }

}  // namespace lathe::kernels::cpu
