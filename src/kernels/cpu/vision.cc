// vision_rope and vision_attend, all levels.
//
// Idea    rope: norm and rotation of a head while it is in the first-level cache; the angles of a row serve all its heads. attend: per segment, head and block
//         of rows: scores against all keys, softmax in two passes, weighted sum key after key.
// Floor   4 · n² · H · hd over the FMA peak for a segment of n rows.
#include "ops/vision.h"

#include <cmath>

#include "kernels/cpu/attention_isa.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/vectors.h"

namespace lathe::kernels::cpu {
namespace {

struct Isa {
  const RowIsa& row;
  const AttentionIsa& attention;
};

constexpr int64_t kBlockRows = 16;

void rope(const Isa& isa, const ops::VisionRopeParams& p, const ops::LaunchContext& context) {
  const int64_t rows = p.qkv.dim(0), heads = p.qkv.dim(2), size = p.qkv.dim(3), half = size / 2, quarter = size / 4;
  LATHE_COUNT(context, kWeightBytes, size * (size_of(p.q_norm) + size_of(p.k_norm)));
  LATHE_COUNT(context, kBytesRead, size * (size_of(p.q_norm) + size_of(p.k_norm)));
  if (rows == 0 || heads == 0 || size == 0) return;
  const int64_t q_bytes = float_bytes(p.q_norm), k_bytes = float_bytes(p.k_norm);
  char* const memory = static_cast<char*>(context.scratch->shared(q_bytes + k_bytes + quarter * 8 + 64));
  if (memory == nullptr) return;
  const float* const norms[2] = {as_floats(isa.row, p.q_norm, memory), as_floats(isa.row, p.k_norm, memory + q_bytes)};
  double* const frequency = reinterpret_cast<double*>(memory + q_bytes + k_bytes);
  for (int64_t j = 0; j < quarter; ++j) frequency[j] = std::pow(10000.0, -2.0 * static_cast<double>(j) / static_cast<double>(half));
  for_pieces(context, rows, 8 * heads * size, [&](int64_t begin, int64_t end, int worker) {
    float* const cosine = static_cast<float*>(context.scratch->local(worker, size * 4));
    if (cosine == nullptr) return;
    float* const sine = cosine + half;
    for (int64_t t = begin; t < end; ++t) {
      const int32_t* const at = p.positions.i32() + t * p.positions.step(0);
      for (int64_t j = 0; j < half; ++j) {
        const double angle = static_cast<double>(at[j < quarter ? 0 : 1]) * frequency[j % quarter];
        cosine[j] = static_cast<float>(std::cos(angle)), sine[j] = static_cast<float>(std::sin(angle));
      }
      for (int64_t i = 0; i < 2 * heads; ++i) {
        float* const x = row(p.qkv, t) + i / heads * p.qkv.step(1) + i % heads * p.qkv.step(2);
        isa.row.rms_norm(x, norms[i / heads], p.eps, size, x);
        isa.attention.rotate(x, cosine, sine, half);
      }
    }
    [[maybe_unused]] const int64_t touched = (end - begin) * 2 * heads;
    LATHE_COUNT(context, kBytesRead, (end - begin) * 8 + touched * size * 4);
    LATHE_COUNT(context, kBytesWritten, touched * size * 4);
    LATHE_COUNT(context, kFlops, 7 * touched * size);
    LATHE_COUNT(context, kRowsNormalised, touched);
    LATHE_COUNT(context, kDivisions, touched);
  });
}

/// Rows [begin, end) of one segment [first, last), one head, for one worker.
struct Block {
  int64_t first, last, begin, end, head;
  int worker;
};

void attend_block(const Isa& isa, const ops::VisionAttendParams& p, const Block& block, const ops::LaunchContext& context) {
  const int64_t first = block.first, last = block.last, begin = block.begin, end = block.end, head = block.head;
  const int64_t count = last - first, size = p.qkv.dim(3), stride = round_up(count, 16), rows = end - begin;
  char* const memory = static_cast<char*>(context.scratch->local(block.worker, stride * 8 + rows * stride * 4));
  if (memory == nullptr) return;
  const char** const keys = reinterpret_cast<const char**>(memory);
  float* const scores = reinterpret_cast<float*>(memory + stride * 8);
  const auto part = [&](int64_t t, int64_t which) { return row(p.qkv, t) + which * p.qkv.step(1) + head * p.qkv.step(2); };
  for (int64_t j = 0; j < count; ++j) keys[j] = reinterpret_cast<const char*>(part(first + j, 1));
  const float scale = 1.0f / std::sqrt(static_cast<float>(size));
  // Rows of the block stand in for heads: they share the keys.
  isa.attention.scores({.q = part(begin, 0),
                        .q_stride = p.qkv.step(0),
                        .heads = rows,
                        .width = size,
                        .keys = {.rows = keys, .count = count},
                        .scale = scale,
                        .out = scores,
                        .out_stride = stride});
  float sums[kBlockRows];
  for (int64_t r = 0; r < rows; ++r) sums[r] = isa.attention.soften(scores + r * stride, count, isa.attention.largest(scores + r * stride, count));
  float* const out = row(p.out, begin) + head * size;
  const KeyRows values{.rows = keys, .count = count, .offset = p.qkv.step(1) * 4};
  isa.attention.blend({.p = scores, .p_stride = stride, .heads = rows, .width = size, .values = values, .out = out, .out_stride = p.out.step(0)});
  for (int64_t r = 0; r < rows; ++r) isa.attention.scale(out + r * p.out.step(0), size, 1.0f / sums[r]);
  LATHE_COUNT(context, kBytesRead, (rows + 2 * count) * size * 4);
  LATHE_COUNT(context, kBytesWritten, rows * size * 4);
  LATHE_COUNT(context, kFlops, rows * count * 4 * size);
  LATHE_COUNT(context, kExponentials, rows * count);
  LATHE_COUNT(context, kRowsNormalised, rows);
  LATHE_COUNT(context, kDivisions, rows);
}

void attend(const Isa& isa, const ops::VisionAttendParams& p, const ops::LaunchContext& context) {
  const int64_t heads = p.qkv.dim(2), segments = p.segment_begin.dim(0) - 1;
  LATHE_COUNT(context, kBytesRead, (segments + 1) * 4);
  for (int64_t i = 0; i < segments; ++i) {
    const int64_t first = p.segment_begin.i32()[i], last = p.segment_begin.i32()[i + 1], blocks = ceil_div(last - first, kBlockRows);
    context.pool->for_each(blocks * heads, [&](int64_t task, int worker) {
      const int64_t begin = first + task / heads * kBlockRows;
      const int64_t end = std::min(last, begin + kBlockRows);
      attend_block(isa, p, {.first = first, .last = last, .begin = begin, .end = end, .head = task % heads, .worker = worker}, context);
    });
  }
}

}  // namespace

#define LATHE_VISION_KERNEL(name, function, Params)                                              \
  void LATHE_KERNEL(name##_scalar)(const void* params, const ops::LaunchContext& context) {      \
    function({kRowScalar, kAttentionScalar}, *static_cast<const ops::Params*>(params), context); \
  }                                                                                              \
  void LATHE_KERNEL(name##_avx2)(const void* params, const ops::LaunchContext& context) {        \
    function({kRowAvx2, kAttentionAvx2}, *static_cast<const ops::Params*>(params), context);     \
  }                                                                                              \
  void LATHE_KERNEL(name##_avx512)(const void* params, const ops::LaunchContext& context) {      \
    function({kRowAvx512, kAttentionAvx512}, *static_cast<const ops::Params*>(params), context); \
  }

LATHE_VISION_KERNEL(vision_rope, rope, VisionRopeParams)
LATHE_VISION_KERNEL(vision_attend, attend, VisionAttendParams)

#undef LATHE_VISION_KERNEL

}  // namespace lathe::kernels::cpu
