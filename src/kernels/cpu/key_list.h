#pragma once
// Which keys a row of sparse attention sees. Included in kernel files only; internal linkage.

#include <algorithm>

#include "ops/mla.h"

namespace lathe::kernels::cpu {
namespace {

constexpr int64_t kHeadsTogether = 16;

/// First token of the tail of row t at `position`.
inline int64_t tail_of(const ops::Selection& selection, int64_t t, int64_t position) {
  if (selection.tail_begin.present()) return selection.tail_begin.i32()[t];
  return (position + 1) / selection.kpool * selection.kpool;
}

/// At most so many keys.
inline int64_t key_count(const ops::Selection& selection, int64_t t, int64_t position) {
  const int32_t* const pools = selection.pools.i32() + t * selection.pools.step(0);
  int64_t chosen = 0;
  for (int64_t i = 0; i < selection.pools.dim(1); ++i) chosen += pools[i] >= 0 ? 1 : 0;
  return chosen * selection.kpool + std::max<int64_t>(0, position + 1 - tail_of(selection, t, position));
}

/// Calls body(first position, count) for every run of neighbouring keys, ascending.
template <class Body>
void for_runs(const ops::Selection& selection, int64_t t, int64_t position, const Body& body) {
  const int32_t* const pools = selection.pools.i32() + t * selection.pools.step(0);
  for (int64_t i = 0; i < selection.pools.dim(1); ++i) {
    if (pools[i] >= 0) body(int64_t{pools[i]} * selection.kpool, int64_t{selection.kpool});
  }
  const int64_t tail = tail_of(selection, t, position);
  if (tail <= position) body(tail, position + 1 - tail);
}

}  // namespace
}  // namespace lathe::kernels::cpu
