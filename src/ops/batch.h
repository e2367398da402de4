#pragma once
// The rows of one step: sequences of different lengths, one after the other (a ragged batch).

#include "ops/op.h"

namespace lathe::ops {

/// Where the T rows of a step belong. Lives in device memory, written once per step.
struct Ragged {
  View begin;           ///< i32 [S + 1]: rows [begin[s], begin[s+1]) are sequence s; begin[S] = T; empty sequences are legal
  View start;           ///< i32 [S]: absolute position of the first row of s
  int64_t longest = 0;  ///< largest number of rows of one sequence (host copy, for grids and scratch)
  const int32_t* host_begin =
      nullptr;  ///< optional host copies of begin and start: only cost() reads them, which otherwise assumes the most work that fits
  const int32_t* host_start = nullptr;
  template <class Self, class V>
  static void visit(Self& s, V& v) {
    v.in("begin", s.begin);
    v.in("start", s.start);
  }
  int64_t sequences() const { return start.dim(0); }
};

/// Rows of a cache family that is stored in blocks: row r of sequence s lies at pool row table[s, r / block_rows] · block_rows + r mod block_rows.
/// 8-bit rows have one f32 scale for each run of 128 values, the last run of a row possibly shorter (tensor/quantised.h): 528 bytes for 512 values.
/// They are made when a row is written, and whoever reads a value reads code · scale.
struct Paged {
  View pool;               ///< [pool rows, width] f32, bf16, i8 or f8_e4m3
  View table;              ///< i32 [S, blocks_max]; entries past the sequence's end are not read
  int64_t block_rows = 0;  ///< rows of this family per block
  View scales{};           ///< of i8 and f8_e4m3: f32 [pool rows, ceil(width / 128)]
};

}  // namespace lathe::ops
