#include <algorithm>
#include <limits>

#include "ops/contracts.h"
#include "ops/costing.h"

namespace lathe::ops {

Cost cost(const RouteParams& p) {
  Cost c;
  const int64_t rows = p.logits.dim(0);
  const int64_t chosen = p.ids.elements();
  add_weights(c, bytes(p.bias));
  c[Counter::kBytesRead] += bytes(p.logits);
  c[Counter::kBytesWritten] = bytes(p.ids) + bytes(p.weights);
  c[Counter::kFlops] = p.logits.elements() + 2 * chosen;
  c[Counter::kExponentials] = p.logits.elements();
  c[Counter::kDivisions] = p.logits.elements() + (p.normalise ? chosen : 0);
  c[Counter::kRowsNormalised] = p.normalise ? rows : 0;
  return c;
}

// Which experts are chosen is known on the device only: as many different ones as the rows can reach, all of them held here.
Cost cost(const MoeParams& p) {
  Cost c;
  const int64_t chosen = p.gate.count == 0 ? 0 : p.ids.elements();
  const int64_t experts = std::min<int64_t>(p.gate.count, chosen);
  c[Counter::kBytesRead] = bytes(p.x) + bytes(p.ids) + bytes(p.weights);
  c[Counter::kBytesWritten] = bytes(p.y) + bytes(p.present);
  if (experts == 0) return c;
  int64_t smallest = std::numeric_limits<int64_t>::max();  // which experts are chosen is not known here
  for (int32_t e = 0; e < p.gate.count; ++e) smallest = std::min(smallest, bytes(p.gate.items[e]) + bytes(p.up.items[e]) + bytes(p.down.items[e]));
  add_weights(c, experts * smallest);
  const int64_t width = p.gate.items[0].rows();
  c[Counter::kFlops] = chosen * (6 * width + 1) * p.x.dim(1) + (chosen - p.x.dim(0)) * p.x.dim(1);  // products, weights; sums
  add_swiglu(c, chosen * width);
  return c;
}

Cost cost(const VisionRopeParams& p) {
  Cost c;
  const int64_t rows = p.qkv.dim(0);
  const int64_t heads = p.qkv.dim(2);
  const int64_t hd = p.qkv.dim(3);
  const int64_t touched = 2 * rows * heads * hd;
  add_weights(c, bytes(p.q_norm) + bytes(p.k_norm));
  c[Counter::kBytesRead] += bytes(p.positions) + touched * int64_t{sizeof(float)};
  c[Counter::kBytesWritten] = touched * int64_t{sizeof(float)};
  c[Counter::kFlops] = 7 * touched;
  c[Counter::kRowsNormalised] = 2 * rows * heads;
  c[Counter::kDivisions] = 2 * rows * heads;
  return c;
}

// Segments are known on the device only: one segment of all rows.
Cost cost(const VisionAttendParams& p) {
  Cost c;
  const int64_t rows = p.qkv.dim(0);
  const int64_t heads = p.qkv.dim(2);
  const int64_t pairs = rows * rows * heads;
  c[Counter::kBytesRead] = bytes(p.qkv) + bytes(p.segment_begin);
  c[Counter::kBytesWritten] = bytes(p.out);
  c[Counter::kFlops] = 4 * pairs * p.qkv.dim(3);
  c[Counter::kRowsNormalised] = rows * heads;
  c[Counter::kExponentials] = pairs;
  c[Counter::kDivisions] = rows * heads;
  return c;
}

}  // namespace lathe::ops
