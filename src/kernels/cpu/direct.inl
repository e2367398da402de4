// Products of few rows straight from the weights as they lie, for floats and for BF16 pairs (matmul_isa.h). After simd.h; brings tile.inl.
//
// Idea    a pass over a panel's rows serves one or a few rows of x: packing would write and read every weight once more than the product itself does. The
//         vectors, lanes and order of additions are those of pack and tile, so the bits are too.
// Memory  16 rows are read side by side, a cache line of each at a time; lines that come 8 KiB later in this order are asked for on the way (a decode step
//         of the built-in model, one thread: 725 µs in kernels with it, 896 without).
#include "kernels/cpu/tile.inl"

namespace lathe::kernels::cpu::LATHE_ISA {
namespace {

/// The rows of a group, evenly spaced: vector i holds rows i, 4 + i, … in its parts.
struct EvenRows {
  const char* first[4];
  int64_t four;  ///< bytes from a row to the one four below

  LATHE_INLINE EvenRows make(const DirectArgs& args, int group) {
    const char* const base = args.weights + group * kLanes * args.row_bytes;
    return {{base, base + args.row_bytes, base + 2 * args.row_bytes, base + 3 * args.row_bytes}, 4 * args.row_bytes};
  }
  inline __attribute__((always_inline)) void load(int i, int64_t offset, Vi (&out)[1]) const { out[0] = load_strided(first[i] + offset, four); }
  template <int kPieces>
  inline __attribute__((always_inline)) void load(int i, int64_t offset, Vi (&out)[kPieces]) const {
    load_square(first[i] + offset, four, out);
  }
};

/// A group that the matrix ends in: rows past its end repeat the last one.
struct EndRows {
  const char* rows[kLanes];

  LATHE_INLINE EndRows make(const DirectArgs& args, int group) {
    EndRows all;
    for (int r = 0; r < kLanes; ++r) {
      const int64_t row = group * kLanes + r;
      all.rows[r] = args.weights + (row < args.present ? row : args.present - 1) * args.row_bytes;
    }
    return all;
  }
  template <int kPieces>
  inline __attribute__((always_inline)) void load(int i, int64_t offset, Vi (&out)[kPieces]) const {
#pragma GCC unroll 4
    for (int p = 0; p < kPieces; ++p) out[p] = load_parts(rows + i, offset + 16 * p);
  }
};

/// Asks for the line at `offset` in every row of a group; an address outside any mapping does nothing.
LATHE_INLINE void prefetch_group(const char* base, int64_t row_bytes, int64_t offset) {
#pragma GCC unroll 16
  for (int r = 0; r < kLanes; ++r)
    __builtin_prefetch(reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(base) + static_cast<uintptr_t>(offset + r * row_bytes)));
}

constexpr int kSquare = kLanes / 4;  // rows, and pieces of 16 bytes in each, that are loaded at once

/// sum += x · rows over 16 · kPieces bytes of the weights from `at` on.
template <int kRows, int kPieces, class Decode, class Step, class Group>
LATHE_INLINE void direct_pieces(const DirectArgs& args, const Decode& decode, const Group& rows, int64_t at, Vf scale, Sums<kRows>& sum) {
  constexpr int kSteps = Decode::kSteps;
  const char* const x = args.x + at * kSteps;
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    Vi raw[kPieces];
    rows.load(i, at, raw);
#pragma GCC unroll 4
    for (int p = 0; p < kPieces; ++p) {
      Vi w[kSteps];
      decode(raw[p], scale, w);
#pragma GCC unroll 4
      for (int s = 0; s < kSteps; ++s) {
#pragma GCC unroll 6
        for (int r = 0; r < kRows; ++r) {
          sum.v[r][i] = Step::multiply(broadcast_part(x + r * args.x_stride + 16 * (p * kSteps + s)), w[s], sum.v[r][i]);
        }
      }
    }
  }
}

/// One segment: sum += x · rows over weight bytes [begin, end).
template <int kRows, class Decode, class Step, class Group>
LATHE_INLINE void direct_segment(const DirectArgs& args, const Decode& decode, const Group& rows, const char* base, int64_t begin, int64_t end,
                                 Vf scale, Sums<kRows>& sum) {
  int64_t at = begin;
  if constexpr (kSquare > 1) {
    for (; at + 16 * kSquare <= end; at += 16 * kSquare) {
      if (at % 64 == 0) prefetch_group(base, args.row_bytes, at + (at < args.turn ? args.ahead : args.wrap));
      direct_pieces<kRows, kSquare, Decode, Step, Group>(args, decode, rows, at, scale, sum);
    }
  }
  for (; at < end; at += 16) direct_pieces<kRows, 1, Decode, Step, Group>(args, decode, rows, at, scale, sum);
}

/// One leaf: lanes = x · rows over weight bytes [begin, end); `block_end` and `scale` go on from leaf to leaf.
template <int kRows, class Decode, class Step, class Group>
struct DirectLeaf {
  const DirectArgs& args;
  const Decode& decode;
  Group rows;
  const char* base;
  int64_t block_end;
  const float* scale;

  inline __attribute__((always_inline)) void run(int64_t begin, int64_t end, Sums<kRows>& lanes) {
    Sums<kRows> sum;
    clear(sum);
    if (args.scales == nullptr) {
      direct_segment<kRows, Decode, Step, Group>(args, decode, rows, base, begin, end, zero(), sum);
      lanes = sum;
      return;
    }
    for (int64_t at = begin; at < end;) {
      const int64_t next = block_end < end ? block_end : end;
      const Vf factor = set1(*scale);
      direct_segment<kRows, Decode, Step, Group>(args, decode, rows, base, at, next, factor, sum);
      if constexpr (!Decode::kFolds) {
        take_scaled(factor, at == begin, sum, lanes);
        clear(sum);
      }
      at = next;
      if (at == block_end) ++scale, block_end += args.block;
    }
    if constexpr (Decode::kFolds) lanes = sum;
  }

 private:
  LATHE_INLINE void clear(Sums<kRows>& sum) {
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) sum.v[r][i] = zero();
    }
  }
  LATHE_INLINE void take_scaled(Vf factor, bool first, const Sums<kRows>& sum, Sums<kRows>& lanes) {
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) lanes.v[r][i] = first ? mul(sum.v[r][i], factor) : fma(sum.v[r][i], factor, lanes.v[r][i]);
    }
  }
};

template <int kRows, class Decode, class Step, class Group>
LATHE_INLINE void direct_group(const DirectArgs& args, const Decode& decode, int group) {
  DirectLeaf<kRows, Decode, Step, Group> leaf{
      args, decode, Group::make(args, group), args.weights + group * kLanes * args.row_bytes, args.first_block, args.scales};
  float* total = args.total + group * kLanes;
  for (int64_t begin = 0; begin < args.bytes; begin += args.leaf, total += args.total_stride) {
    Sums<kRows> lanes;
    leaf.run(begin, begin + args.leaf < args.bytes ? begin + args.leaf : args.bytes, lanes);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) store(total + r * 2 * kLanes, Step::total(lanes.v[r]));
  }
}

template <int kRows, class Decode, class Step>
void direct(const DirectArgs& args) {
  const Decode decode;
  for (int group = 0; group < 2 && group * kLanes < args.present; ++group) {
    if ((group + 1) * kLanes <= args.present) {
      direct_group<kRows, Decode, Step, EvenRows>(args, decode, group);
    } else {
      direct_group<kRows, Decode, Step, EndRows>(args, decode, group);
    }
  }
}

}  // namespace
}  // namespace lathe::kernels::cpu::LATHE_ISA
