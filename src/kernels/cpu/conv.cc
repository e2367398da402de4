// short_conv, kda_gate and gated_norm, all levels.
//
// Idea    element-wise over channels; weights and constants of a launch are brought into floats once. Rows run side by side; a sequence's ring is
//         written after all its rows have been computed: at once if it has a single one, else after every row. Of a BF16 ring the rows of the step are
//         rounded once as well, for those behind them; decode steps have no such rows.
// Floor   bytes of the rows in and out.
#include <cmath>

#include "kernels/cpu/kda_isa.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/matmul_isa.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/vectors.h"
#include "ops/kda.h"

namespace lathe::kernels::cpu {
namespace {

struct Isa {
  const KdaIsa& kda;
  const RowIsa& row;
  const MatmulIsa& rounding;
};

class ShortConv {
 public:
  ShortConv(const Isa& isa, const ops::ShortConvParams& p, const ops::LaunchContext& context)
      : isa_(isa), p_(p), context_(context), channels_(p.x.dim(1)), taps_(p.weight.dim(0)), ring_(p.ring.dim(1)) {}

  void run() {
    const int64_t rows = p_.x.dim(0), sequences = p_.batch.sequences();
    LATHE_COUNT(context_, kBytesRead, (3 * sequences + 1) * 4 + channels_ * taps_ * size_of(p_.weight));
    LATHE_COUNT(context_, kWeightBytes, channels_ * taps_ * size_of(p_.weight));
    if (rows == 0) return;
    // A row of zeros, and what is not float: the taps, per sequence the rows before the step, and rows of the step that others have behind them.
    const bool convert = p_.ring.dtype != DType::kF32;
    const int64_t history = convert ? sequences * (taps_ - 1) : 0, taps = p_.weight.dtype != DType::kF32 ? taps_ : 0;
    const int64_t rounded = convert && p_.batch.longest > 1 ? rows : 0;
    float* const memory = static_cast<float*>(context_.scratch->shared((1 + taps + history + rounded) * channels_ * 4));
    if (memory == nullptr) return;
    zeros_ = memory, history_ = memory + (1 + taps) * channels_, rounded_ = history_ + history * channels_;
    std::fill_n(memory, channels_, 0.0f);
    weight_ = taps > 0 ? memory + channels_ : p_.weight.f32();
    weight_stride_ = taps > 0 ? channels_ : p_.weight.step(0);
    for (int64_t j = 0; j < taps; ++j) isa_.row.from_bf16(p_.weight.bf16() + j * p_.weight.step(0), channels_, memory + (1 + j) * channels_);
    if (convert) convert_history();
    for_pieces(context_, rounded, channels_, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) isa_.rounding.round_bf16(p_.x.f32() + t * p_.x.step(0), channels_, rounded_ + t * channels_);
    });
    for_pieces(context_, rows, channels_ * 4, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) one_row(t);
    });
    for (int64_t s = 0; s < sequences; ++s) {
      if (!alone(s)) keep(s);
    }
  }

 private:
  static constexpr int64_t kTapsMax = 64;

  int64_t ring_offset(int64_t s, int64_t position) const { return p_.slot.i32()[s] * p_.ring.step(0) + position % ring_ * p_.ring.step(1); }

  void convert_history() {
    for (int64_t s = 0; s < p_.batch.sequences(); ++s) {
      if (p_.batch.begin.i32()[s] == p_.batch.begin.i32()[s + 1]) continue;
      for (int64_t j = 0; j < taps_ - 1; ++j) {
        const int64_t position = p_.batch.start.i32()[s] - (taps_ - 1) + j;
        float* const to = history_ + (s * (taps_ - 1) + j) * channels_;
        if (position < 0) continue;
        isa_.row.from_bf16(p_.ring.bf16() + ring_offset(s, position), channels_, to);
      }
    }
  }

  void one_row(int64_t t) {
    const int32_t* const begin = p_.batch.begin.i32();
    const int64_t s = std::upper_bound(begin, begin + p_.batch.sequences() + 1, static_cast<int32_t>(t)) - begin - 1;
    const int64_t start = p_.batch.start.i32()[s], position = start + t - begin[s];
    const float* rows[kTapsMax];
    for (int64_t j = 0; j < taps_; ++j) {
      const int64_t at = position - (taps_ - 1) + j;
      if (at < 0) {
        rows[j] = zeros_;
      } else if (at >= start && at < position && p_.ring.dtype != DType::kF32) {
        rows[j] = rounded_ + (begin[s] + at - start) * channels_;
      } else if (at >= start) {
        rows[j] = p_.x.f32() + (begin[s] + at - start) * p_.x.step(0);
      } else if (p_.ring.dtype == DType::kF32) {
        rows[j] = p_.ring.f32() + ring_offset(s, at);
      } else {
        rows[j] = history_ + (s * (taps_ - 1) + at - start + taps_ - 1) * channels_;
      }
    }
    isa_.kda.conv({.rows = rows,
                   .weight = weight_,
                   .weight_stride = weight_stride_,
                   .taps = taps_,
                   .channels = channels_,
                   .out = p_.out.f32() + t * p_.out.step(0)});
    if (alone(s)) keep(s);
    // The first row brings what there is of history; the others find it in the cache.
    [[maybe_unused]] const int64_t fetched = t == begin[s] ? std::min(start, taps_ - 1) : 0;
    LATHE_COUNT(context_, kBytesRead, channels_ * 4 + fetched * channels_ * size_of(p_.ring));
    LATHE_COUNT(context_, kBytesWritten, channels_ * 4);
    LATHE_COUNT(context_, kFlops, channels_ * (2 * taps_ + 1));
    LATHE_COUNT(context_, kExponentials, channels_);
    LATHE_COUNT(context_, kDivisions, channels_);
  }

  /// Whether the sequence has one row: nobody else reads its ring, which takes the row at once.
  bool alone(int64_t s) const { return p_.batch.begin.i32()[s + 1] - p_.batch.begin.i32()[s] == 1; }

  /// The last raw rows of a sequence go to its ring.
  void keep(int64_t s) {
    const int64_t begin = p_.batch.begin.i32()[s], end = p_.batch.begin.i32()[s + 1], start = p_.batch.start.i32()[s];
    for (int64_t t = std::max(begin, end - ring_); t < end; ++t) {
      const float* const from = p_.x.f32() + t * p_.x.step(0);
      const int64_t to = ring_offset(s, start + t - begin);
      if (p_.ring.dtype == DType::kF32) {
        std::memcpy(p_.ring.f32() + to, from, static_cast<size_t>(channels_) * 4);
      } else {
        isa_.rounding.to_bf16(from, channels_, p_.ring.bf16() + to);
      }
      LATHE_COUNT(context_, kBytesWritten, channels_ * size_of(p_.ring));
    }
  }

  Isa isa_;
  const ops::ShortConvParams& p_;
  const ops::LaunchContext& context_;
  int64_t channels_, taps_, ring_;
  const float* weight_ = nullptr;
  int64_t weight_stride_ = 0;
  const float* zeros_ = nullptr;
  float* history_ = nullptr;  ///< [S, W − 1, C]
  float* rounded_ = nullptr;  ///< [T, C]
};

void gate(const Isa& isa, const ops::KdaGateParams& p, const ops::LaunchContext& context) {
  const int64_t rows = p.g.dim(0), heads = p.beta.dim(1), keys = heads > 0 ? p.g.dim(1) / heads : 0;
  [[maybe_unused]] const int64_t weights = heads * size_of(p.a_log) + heads * keys * size_of(p.dt_bias);
  LATHE_COUNT(context, kWeightBytes, weights);
  LATHE_COUNT(context, kBytesRead, weights);
  LATHE_COUNT(context, kExponentials, heads);
  if (rows == 0 || heads == 0) return;
  float* const rate = static_cast<float*>(context.scratch->shared(round_up(heads * 4, 64) + float_bytes(p.dt_bias)));
  if (rate == nullptr) return;
  for (int64_t h = 0; h < heads; ++h) rate[h] = std::exp(vector_at(p.a_log, h));
  const float* const bias = as_floats(isa.row, p.dt_bias, rate + round_up(heads, 16));
  for_pieces(context, rows, heads * keys * 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        const float* const a = p.a.f32() + t * p.a.step(0) + h * keys;
        float* const g = p.g.f32() + t * p.g.step(0) + h * keys;
        if (p.bounded) {
          isa.kda.gate_bounded(a, bias + h * keys, rate[h], p.lower_bound, keys, g);
        } else {
          isa.kda.gate_unbounded(a, bias + h * keys, rate[h], keys, g);
        }
      }
      isa.kda.sigmoid(p.b.f32() + t * p.b.step(0), heads, p.beta.f32() + t * p.beta.step(0));
    }
    LATHE_COUNT(context, kBytesRead, (end - begin) * heads * (keys + 1) * 4);
    LATHE_COUNT(context, kBytesWritten, (end - begin) * heads * (keys + 1) * 4);
    LATHE_COUNT(context, kFlops, (end - begin) * 3 * heads * keys);
    LATHE_COUNT(context, kExponentials, (end - begin) * heads * (keys + 1));
    LATHE_COUNT(context, kDivisions, (end - begin) * heads * ((p.bounded ? keys : 0) + 1));
  });
}

void gated_norm(const Isa& isa, const ops::GatedNormParams& p, const ops::LaunchContext& context) {
  const int64_t rows = p.o.dim(0), heads = p.o.dim(1), width = p.o.dim(2);
  LATHE_COUNT(context, kWeightBytes, width * size_of(p.weight));
  LATHE_COUNT(context, kBytesRead, width * size_of(p.weight));
  if (rows == 0 || heads == 0) return;
  const int64_t bytes = float_bytes(p.weight);
  void* const memory = bytes > 0 ? context.scratch->shared(bytes) : nullptr;
  if (bytes > 0 && memory == nullptr) return;
  const float* const weight = as_floats(isa.row, p.weight, memory);
  for_pieces(context, rows, heads * width * 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        isa.kda.gated_norm(p.o.f32() + t * p.o.step(0) + h * p.o.step(1), p.gate.f32() + t * p.gate.step(0) + h * width, weight, p.eps, width,
                           p.out.f32() + t * p.out.step(0) + h * width);
      }
    }
    [[maybe_unused]] const int64_t count = (end - begin) * heads;
    LATHE_COUNT(context, kBytesRead, count * width * 8);
    LATHE_COUNT(context, kBytesWritten, count * width * 4);
    LATHE_COUNT(context, kFlops, count * 5 * width);
    LATHE_COUNT(context, kRowsNormalised, count);
    LATHE_COUNT(context, kExponentials, count * width);
    LATHE_COUNT(context, kDivisions, count * (width + 1));
  });
}

}  // namespace

#define LATHE_KDA_KERNELS(level, Level)                                                                                      \
  void LATHE_KERNEL(short_conv_##level)(const void* params, const ops::LaunchContext& context) {                             \
    ShortConv({kKda##Level, kRow##Level, kMatmul##Level}, *static_cast<const ops::ShortConvParams*>(params), context).run(); \
  }                                                                                                                          \
  void LATHE_KERNEL(kda_gate_##level)(const void* params, const ops::LaunchContext& context) {                               \
    gate({kKda##Level, kRow##Level, kMatmul##Level}, *static_cast<const ops::KdaGateParams*>(params), context);              \
  }                                                                                                                          \
  void LATHE_KERNEL(gated_norm_##level)(const void* params, const ops::LaunchContext& context) {                             \
    gated_norm({kKda##Level, kRow##Level, kMatmul##Level}, *static_cast<const ops::GatedNormParams*>(params), context);      \
  }

LATHE_KDA_KERNELS(scalar, Scalar)
LATHE_KDA_KERNELS(avx2, Avx2)
LATHE_KDA_KERNELS(avx512, Avx512)

}  // namespace lathe::kernels::cpu
