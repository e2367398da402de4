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
struct Paged {
  View pool;               ///< [pool rows, width] f32 or bf16
  View table;              ///< i32 [S, blocks_max]; entries past the sequence's end are not read
  int64_t block_rows = 0;  ///< rows of this family per block
};

}  // namespace lathe::ops
