// mhc_in and mhc_out, all levels.
//
// Idea    fn · f is a product of the flattened streams with 2S + S² rows and goes through panels like any other (panel.h); 1/rms is a factor of the result,
//         so statistics and product share one reading. Sinkhorn runs with one token per lane: no shuffles, and a token's bits do not depend on its
//         neighbours. The S entries of a row or column share one division.
//         Few rows go straight to fn, direct_rows at a time (direct.inl): reading its BF16 again costs less than writing and reading it as floats.
// Limits  S ≤ 8.
// Floor   decode: bytes of fn; prefill: 2 · T · (2S + S²) · S·D over the FMA peak, and the streams once in and out.
#include <cmath>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/levels.h"
#include "kernels/cpu/vectors.h"
#include "ops/mhc.h"

namespace lathe::kernels::cpu {
namespace {

constexpr int64_t kRowsMax = 2 * kStreamsMax + kStreamsMax * kStreamsMax;
constexpr int64_t kLanesMax = 16;
constexpr int64_t kFewRows = 4;

class MhcIn {
 public:
  MhcIn(const Level& level, const RowIsa& isa, const ops::MhcInParams& p, const ops::LaunchContext& context)
      : level_(level),
        isa_(isa),
        p_(p),
        context_(context),
        streams_(p.streams.dim(1)),
        width_(p.streams.dim(2)),
        outputs_(p.fn.rows()),
        source_(level, p.fn, ops::Compute::kF32, 0),
        flat_(p.streams.step(1) == width_) {}

  void run() {
    const int64_t rows = p_.streams.dim(0);
    if (rows == 0) return;
    LATHE_COUNT(context_, kWeightBytes, outputs_ * size_of(p_.base) + 3 * size_of(p_.scale));
    LATHE_COUNT(context_, kBytesRead, outputs_ * size_of(p_.base) + 3 * size_of(p_.scale));
    for (int64_t i = 0; i < outputs_; ++i) base_[i] = vector_at(p_.base, i);
    // Enough rows to pay for decoding fn: whole lane groups, or a thread's share of few rows.
    const int threads = context_.pool->threads();
    const int64_t few = std::max<int64_t>(ceil_div(rows, threads), kFewRows);
    block_ = few <= isa_.lanes ? few : std::clamp<int64_t>(round_up(ceil_div(rows, 2 * threads), isa_.lanes), isa_.lanes, 8 * isa_.lanes);
    const int64_t blocks = ceil_div(rows, block_);
    context_.pool->for_each(blocks, [&](int64_t block, int worker) { rows_of_block(block * block_, std::min(rows, (block + 1) * block_), worker); });
  }

 private:
  void rows_of_block(int64_t begin, int64_t end, int worker) {
    const int64_t rows = end - begin, width = source_.width();
    // Few rows: straight from fn, tile by tile. Copies of rows take room: of a tile as well.
    const bool many = rows > 2 * level_.base->tile_rows;
    const int64_t tile = !many ? level_.base->direct_rows : flat_ ? rows : level_.base->tile_rows;
    const int64_t run_bytes = round_up(PanelRun::bytes(source_, tile, 1), 64), flat_bytes = flat_ ? 0 : tile * streams_ * width_ * 4;
    char* const memory = static_cast<char*>(context_.scratch->local(worker, run_bytes + round_up(flat_bytes, 64) + block_ * kRowsMax * 4));
    if (memory == nullptr) return;
    float* const copies = reinterpret_cast<float*>(memory + run_bytes);
    float* const m = reinterpret_cast<float*>(memory + run_bytes + round_up(flat_bytes, 64));  // [rows][outputs]
    PanelRun panels(source_, context_, memory, tile);
    for (int64_t panel = 0; panel < source_.panels(); ++panel) {
      panels.begin(panel);
      for (int64_t row0 = 0; row0 < rows; row0 += tile) {
        const int64_t count = std::min(tile, rows - row0);
        const Rows x = flat_rows(begin + row0, count, copies);
        const float* const totals = panels.node(x, 0, count, 0, 1, 0);
        for (int64_t r = 0; r < count; ++r)
          std::memcpy(m + (row0 + r) * outputs_ + panel * width, totals + r * width, static_cast<size_t>(panels.present()) * 4);
      }
    }
    LATHE_COUNT(context_, kBytesRead, rows * (p_.streams.step(1) == 0 ? 1 : streams_) * width_ * 4);
    for (int64_t row0 = 0; row0 < rows; row0 += isa_.lanes)
      coefficients(begin + row0, std::min<int64_t>(isa_.lanes, rows - row0), m + row0 * outputs_);
  }

  /// Rows of S·D floats: the streams themselves, or copies.
  Rows flat_rows(int64_t t, int64_t count, float* copies) const {
    if (flat_) return {.data = row(p_.streams, t), .stride = p_.streams.step(0) * 4};
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t s = 0; s < streams_; ++s)
        std::memcpy(copies + (r * streams_ + s) * width_, row(p_.streams, t + r, s), static_cast<size_t>(width_) * 4);
    }
    return {.data = copies, .stride = streams_ * width_ * 4};
  }

  float mean_square(int64_t t) const {
    float sum = 0;
    if (flat_) {
      sum = isa_.sum_of_squares(row(p_.streams, t), streams_ * width_);
    } else {
      for (int64_t s = 0; s < streams_; ++s) sum += isa_.sum_of_squares(row(p_.streams, t, s), width_);
    }
    return sum / static_cast<float>(streams_ * width_);
  }

  /// Coefficients and collapse of `count` ≤ lanes tokens; m is [count][outputs].
  void coefficients(int64_t t, int64_t count, const float* m) const {
    const int64_t lanes = isa_.lanes;
    float transposed[kRowsMax * kLanesMax], factor[kLanesMax] = {};
    float pre[kStreamsMax * kLanesMax], post[kStreamsMax * kLanesMax], comb[kStreamsMax * kStreamsMax * kLanesMax];
    std::fill_n(transposed, outputs_ * lanes, 0.0f);
    for (int64_t r = 0; r < count; ++r) {
      factor[r] = 1.0f / std::sqrt(mean_square(t + r) + p_.eps);
      for (int64_t i = 0; i < outputs_; ++i) transposed[i * lanes + r] = m[r * outputs_ + i];
    }
    isa_.mhc({.m = transposed,
              .factor = factor,
              .base = base_,
              .scale = {vector_at(p_.scale, 0), vector_at(p_.scale, 1), vector_at(p_.scale, 2)},
              .hc_eps = p_.hc_eps,
              .streams = streams_,
              .iterations = p_.iterations,
              .pre = pre,
              .post = post,
              .comb = comb});
    for (int64_t r = 0; r < count; ++r) {
      const float* rows[kStreamsMax];
      float weights[kStreamsMax];
      for (int64_t s = 0; s < streams_; ++s) {
        rows[s] = row(p_.streams, t + r, s), weights[s] = pre[s * lanes + r];
        row(p_.post, t + r)[s] = post[s * lanes + r];
      }
      for (int64_t i = 0; i < streams_ * streams_; ++i) row(p_.comb, t + r)[i] = comb[i * lanes + r];
      isa_.combine(rows, weights, streams_, width_, row(p_.x, t + r));
    }
    [[maybe_unused]] const int64_t passes = 2 * int64_t{p_.iterations};
    LATHE_COUNT(context_, kBytesWritten, count * (width_ + streams_ + streams_ * streams_) * 4);
    LATHE_COUNT(context_, kFlops, count * (4 * streams_ * width_ + 3 * outputs_ + 2 * streams_ * streams_ * passes));
    LATHE_COUNT(context_, kRowsNormalised, count);
    LATHE_COUNT(context_, kExponentials, count * outputs_);
    LATHE_COUNT(context_, kDivisions, count * (1 + 2 * streams_ + streams_ * passes));
  }

  const Level& level_;
  const RowIsa& isa_;
  const ops::MhcInParams& p_;
  const ops::LaunchContext& context_;
  int64_t streams_, width_, outputs_;
  PanelSource source_;
  bool flat_;
  int64_t block_ = 0;
  float base_[kRowsMax];
};

void mhc_in(const Level& level, const RowIsa& isa, const void* params, const ops::LaunchContext& context) {
  MhcIn(level, isa, *static_cast<const ops::MhcInParams*>(params), context).run();
}

void mhc_out(const RowIsa& isa, const void* params, const ops::LaunchContext& context) {
  const auto& p = *static_cast<const ops::MhcOutParams*>(params);
  const int64_t streams = p.streams.dim(1), width = p.streams.dim(2);
  for_pieces(context, p.streams.dim(0), 2 * streams * width, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const float* rows[kStreamsMax];
      float* out[kStreamsMax];
      for (int64_t s = 0; s < streams; ++s) rows[s] = row(p.streams, t, s), out[s] = row(p.out, t, s);
      isa.spread(rows, row(p.y, t), row(p.post, t), row(p.comb, t), streams, width, out);
    }
    LATHE_COUNT(context, kBytesRead, (end - begin) * ((p.streams.step(1) == 0 ? 1 : streams) * width + width + streams + streams * streams) * 4);
    LATHE_COUNT(context, kBytesWritten, (end - begin) * streams * width * 4);
    LATHE_COUNT(context, kFlops, (end - begin) * streams * width * (2 * streams + 1));
  });
}

}  // namespace

void LATHE_KERNEL(mhc_in_scalar)(const void* params, const ops::LaunchContext& context) { mhc_in(ScalarLevel::level(), kRowScalar, params, context); }
void LATHE_KERNEL(mhc_in_avx2)(const void* params, const ops::LaunchContext& context) { mhc_in(Avx2Level::level(), kRowAvx2, params, context); }
void LATHE_KERNEL(mhc_in_avx512)(const void* params, const ops::LaunchContext& context) { mhc_in(Avx512Level::level(), kRowAvx512, params, context); }
void LATHE_KERNEL(mhc_out_scalar)(const void* params, const ops::LaunchContext& context) { mhc_out(kRowScalar, params, context); }
void LATHE_KERNEL(mhc_out_avx2)(const void* params, const ops::LaunchContext& context) { mhc_out(kRowAvx2, params, context); }
void LATHE_KERNEL(mhc_out_avx512)(const void* params, const ops::LaunchContext& context) { mhc_out(kRowAvx512, params, context); }

}  // namespace lathe::kernels::cpu
