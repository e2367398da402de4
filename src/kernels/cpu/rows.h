#pragma once
// Rows of x in the formats that products take. Included in kernel files only; internal linkage.

#include <cstring>

#include "kernels/cpu/panel.h"
#include "tensor/quantised.h"

namespace lathe::kernels::cpu {
namespace {

/// Work below this many elements stays on the calling thread: waking the pool costs about a microsecond.
constexpr int64_t kInlineElements = 16384;
/// Likewise a few rows times weights of fewer bytes: one core reads them in the time that two need to meet.
constexpr int64_t kInlineWeightBytes = 128 << 10;

/// Runs body(begin, end, worker) over [0, count) in pieces; `cost` is the work of one, in elements. As many pieces for each thread, so that a thread gets
/// the same rows in one op after the other.
template <class Body>
void for_pieces(const ops::LaunchContext& context, int64_t count, int64_t cost, const Body& body) {
  if (count <= 0) return;
  const int64_t work = count * std::max<int64_t>(cost, 1);
  const int threads = context.pool != nullptr ? context.pool->threads() : 1;
  if (threads == 1 || work < kInlineElements || count == 1) return body(int64_t{0}, count, 0);
  const int64_t pieces = threads * std::clamp<int64_t>(work / (kInlineElements * threads), 1, 4);
  const int64_t size = ceil_div(count, std::min(pieces, count));
  context.pool->for_each(ceil_div(count, size), [&](int64_t piece, int worker) { body(piece * size, std::min(count, (piece + 1) * size), worker); });
}

/// Bytes from row to row of converted rows; their starts are spread over cache sets.
inline int64_t row_stride(int64_t channels, RowFormat format) {
  const int64_t padded = round_up(channels * channel_bytes(format), 64);
  return padded % 512 == 0 ? padded + 64 : padded;
}
/// Memory of `rows` converted rows.
inline int64_t rows_bytes(int64_t rows, int64_t channels, RowFormat format) { return rows * row_stride(channels, format); }

/// Converts one row.
inline void convert_row(const MatmulIsa& isa, RowFormat format, const float* x, int64_t channels, void* out) {
  if (format == RowFormat::kPairs) {
    isa.to_bf16(x, channels, static_cast<uint16_t*>(out));
  } else if (format == RowFormat::kRounded) {
    isa.round_bf16(x, channels, static_cast<float*>(out));
  } else {
    std::memcpy(out, x, static_cast<size_t>(channels) * 4);
  }
}

/// Codes of one row, whose largest magnitude is `amax`.
inline CodeRow code_row(const CodesIsa& isa, const float* x, int64_t channels, float amax, void* out) {
  const tensor::RunScale scale = tensor::run_scale(amax, DType::kI8);
  return {.scale = scale.scale, .sum = isa.to_codes(x, channels, scale.inverse, out)};
}

/// Rows of x f32 [T, K] in one format, in memory of `bytes` that somebody gives.
struct RowMaker {
  const Level& level;
  const View& x;
  RowFormat format = RowFormat::kFloat;
  View amax{};  ///< absent, or f32 [T]: largest magnitudes of the whole rows, for codes

  int64_t bytes() const {
    if (format == RowFormat::kFloat) return 0;
    const int64_t rows = x.dim(0);
    return rows_bytes(rows, x.dim(1), format) + (is_codes(format) ? round_up(rows * static_cast<int64_t>(sizeof(CodeRow)), 64) : 0);
  }
  /// kFloat: x itself.
  Rows make(void* memory, const ops::LaunchContext& context) const {
    if (format == RowFormat::kFloat) return {.data = x.data, .stride = x.step(0) * 4};
    const int64_t channels = x.dim(1), stride = row_stride(channels, format);
    char* const rows = static_cast<char*>(memory);
    CodeRow* const codes = is_codes(format) ? reinterpret_cast<CodeRow*>(rows + x.dim(0) * stride) : nullptr;
    for_pieces(context, x.dim(0), channels, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        const float* const from = x.f32() + t * x.step(0);
        if (codes == nullptr) {
          convert_row(*level.base, format, from, channels, rows + t * stride);
        } else {
          codes[t] =
              code_row(*level.codes, from, channels, amax.present() ? amax.f32()[t] : level.codes->magnitude(from, channels), rows + t * stride);
        }
      }
    });
    return {.data = memory, .stride = stride, .codes = codes};
  }
};

/// Element i of a weight vector, f32 or bf16.
inline float vector_at(const View& v, int64_t i) {
  return v.dtype == DType::kF32 ? static_cast<const float*>(v.data)[i] : tensor::bf16_to_float(static_cast<const uint16_t*>(v.data)[i]);
}

/// Rows of x that a task takes at once: enough to pay for the packing; fewer, if threads would be without a task.
inline int64_t block_rows(int64_t rows, int64_t panels, const ops::LaunchContext& context) {
  constexpr int64_t kMost = 192, kLeast = 48;  // whole tiles of every level
  const int64_t wanted = ceil_div(2 * context.pool->threads(), std::max<int64_t>(panels, 1));
  return std::max<int64_t>(1, ceil_div(rows, std::max<int64_t>(1, std::max(ceil_div(rows, kMost), std::min(wanted, rows / kLeast)))));
}

/// Panels that a task takes: one if packed whole; else so many that a task has 16 KiB of weights, but no more tasks than the pool can share.
inline int64_t panels_per_task(int64_t panels, bool whole, int64_t weight_bytes, const ops::LaunchContext& context) {
  if (whole) return 1;
  const int threads = context.pool->threads();
  const int64_t tasks = threads == 1 || weight_bytes < kInlineWeightBytes ? 1 : std::clamp<int64_t>(weight_bytes / 16384, 1, int64_t{4} * threads);
  return std::max<int64_t>(1, ceil_div(panels, std::min(tasks, std::max<int64_t>(panels, 1))));
}

}  // namespace
}  // namespace lathe::kernels::cpu
